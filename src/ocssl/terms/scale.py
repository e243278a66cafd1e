"""SCALE (Yu et al., 2023): the whole loss of a method without class or task labels, for the objective `none`."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ocssl.objectives import Objective
from ocssl.objectives.contrastive import contrast, cosines, mean, others
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Positive, Share, Size, Weight
from ocssl.terms.term import TERMS, Penalty, Step, Term

BASE = 0.07  # temperature at which the contrastive loss has its plain scale
HIDDEN = -1000.0  # stands for "never similar" where a row meets itself


@TERMS.add("scale")
class Scale(Term):
    """SCALE: contrasts the stream, with pseudo-positives, and keeps relations as they were before the minibatch.

    The whole loss of a method. `rho` is how far between mean and highest similarity a pair becomes a positive: lower
    makes more positives. `distill` is the size of the distillation as a share of the contrastive loss, measured once.
    """

    replaces_objective = True
    rows = frozenset({"stream"})
    balance: Tensor

    def __init__(
        self,
        objective: Objective,
        *,
        weight: Weight = 1.0,
        hidden: Size | None = None,  # of the head; None: as wide as the features
        outputs: Size = 128,
        rho: Share = 0.1,
        temperature: Positive = 0.1,
        past_temperature: Positive = 0.01,
        mask_temperature: Positive = 0.1,
        distill: Weight = 0.15,
    ) -> None:
        super().__init__(objective, weight)
        self.rho, self.distill = rho, distill
        self.temperature, self.past_temperature, self.mask_temperature = temperature, past_temperature, mask_temperature
        width = hidden or objective.dimension
        self.head = nn.Sequential(nn.Linear(objective.dimension, width), nn.ReLU(), nn.Linear(width, outputs))
        self.past = Teacher(objective, live=False)
        self.register_buffer("balance", torch.tensor(0.0))  # weight of the distillation; 0: not yet measured

    def begin(self, objective: Objective) -> None:
        self.past.take(objective)

    def forward(self, step: Step) -> Penalty:
        if step.number == 0:
            self.past.take(step.objective)
        features = step.out.features
        rows = self.head(features)  # [V, B, P]
        with torch.no_grad():
            then = self.head(self.past.features(step.views[:1]))[0]
        same = pseudo_positives(features.detach(), step.fresh, self.rho, self.mask_temperature)
        contrastive = stream_contrast(rows, same, self.temperature)
        distillation = relation_distillation(rows[0], then, self.temperature, self.past_temperature)
        signals = {"contrast": contrastive.detach(), "distill": distillation.detach()}
        self._measure(signals["contrast"], signals["distill"])
        return Penalty(contrastive + self.balance * distillation, signals)

    def _measure(self, contrastive: Tensor, distillation: Tensor) -> None:
        """Fix the weight of the distillation at the first step that has both losses."""
        first = (self.balance == 0) & (contrastive > 0) & (distillation > 0)
        self.balance = torch.where(first, self.distill * contrastive / distillation, self.balance)


def pseudo_positives(features: Tensor, fresh: int, rho: float, temperature: float) -> Tensor:
    """Which stream samples count as views of one another: [V, B, D] -> boolean [fresh, fresh]."""
    apart = others(features.shape[1], features.device)
    similarity = torch.zeros(apart.shape, device=features.device)
    for first in features:
        for second in features:
            closeness = ((2 * cosines(first, second) - 2) / temperature).masked_fill(~apart, HIDDEN)
            similarity += (closeness.softmax(1) + closeness.softmax(0)) / 2
    similarity /= len(features) ** 2
    same = ~apart
    pairs = similarity[apart]
    if len(pairs):
        same |= similarity > torch.lerp(pairs.mean(), pairs.max(), rho)
    return same[:fresh, :fresh]


def stream_contrast(rows: Tensor, same: Tensor, temperature: float) -> Tensor:
    """Supervised contrastive loss of the stream samples, which come first: [V, B, P], boolean [F, F] -> scalar."""
    views, batch, _ = rows.shape
    fresh = len(same)
    every = rows.flatten(0, 1)
    anchors = torch.arange(views * batch, device=rows.device).view(views, batch)[:, :fresh].flatten()
    apart = others(views * batch, rows.device)[anchors]  # [V F, V B]
    positive = functional.pad(same, (0, batch - fresh)).repeat(views, views) & apart
    return mean(contrast(cosines(every[anchors], every) / temperature, positive, apart)) * temperature / BASE


def relation_distillation(now: Tensor, then: Tensor, temperature: float, past_temperature: float) -> Tensor:
    """Cross-entropy of each row's similarities to the others, past against present: [B, P], [B, P] -> scalar."""
    n = len(now)
    apart = others(n, now.device)
    present, past = (cosines(x, x)[apart].view(n, n - 1) for x in (now, then))
    return -((past / past_temperature).softmax(1) * (present / temperature).log_softmax(1)).sum(1).mean()
