"""Osiris (Zhang et al., 2024): contrasts current samples, past ones, and both with each other; for `none`."""

import torch
from torch import Tensor, nn

from ocssl.objectives import Objective
from ocssl.objectives.contrastive import contrast, cosine, cosines, mean, other_view, others, simclr_loss
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Positive, Size, Weight
from ocssl.terms.term import TERMS, Penalty, Step, Term


@TERMS.add("osiris-r")
class OsirisR(Term):
    """Osiris-R: contrast within the stream, within replay, and across them. It replaces the objective.

    NT-Xent of the stream in one space; in a second space stream against replay, and a loss that keeps the past. The
    second space begins as a copy of the first as soon as there is a past to keep. Before that, or without replayed
    rows, the first loss stands alone; without stream rows, the losses on them are 0.
    """

    replaces_objective = True
    rows = frozenset({"stream", "replay"})
    pairs = True
    ready: Tensor
    second: Tensor

    def __init__(
        self,
        objective: Objective,
        *,
        weight: Weight = 1.0,
        hidden: Size | None = None,  # of both heads; None: four times as wide as the features
        outputs: Size = 128,
        temperature: Positive = 0.1,
    ) -> None:
        super().__init__(objective, weight)
        self.temperature = temperature
        sizes = objective.dimension, hidden or 4 * objective.dimension, outputs
        self.head, self.past_head = _head(*sizes), _head(*sizes)
        self.register_buffer("ready", torch.tensor(not self.boundaries))  # whether there is a past to keep
        self.register_buffer("second", torch.tensor(False))  # whether the second space has begun
        if self.boundaries:
            self.old = Teacher(objective, live=False)

    def forward(self, step: Step) -> Penalty:
        features, fresh = step.out.features, step.fresh
        current = nt_xent(self.head(features[:, :fresh]), self.temperature)
        if not self.ready or not len(step.replay):
            nothing = torch.zeros_like(current)
            return Penalty(current, {"current": current.detach(), "cross": nothing, "past": nothing})
        if not self.second:
            self.past_head.load_state_dict(self.head.state_dict())
            self.second.fill_(True)
        stream, replay = (self.past_head(rows) for rows in (features[:, :fresh], features[:, fresh:]))
        border = cross(stream, replay, self.temperature)
        past = self.keep(step, stream, replay)
        signals = {"current": current.detach(), "cross": border.detach(), "past": past.detach()}
        return Penalty(current + (border + past) / 2, signals)

    def keep(self, step: Step, stream: Tensor, replay: Tensor) -> Tensor:
        """The loss that keeps the past, in the second space: [2, X, P], [2, Y, P] -> scalar."""
        return nt_xent(replay, self.temperature)


@TERMS.add("osiris-d")
class OsirisD(OsirisR):
    """Osiris-D: as Osiris-R, but the past is kept by distilling the encoder frozen at the last boundary."""

    boundaries = True

    def begin(self, objective: Objective) -> None:
        self.old.take(objective)

    def boundary(self, objective: Objective) -> None:
        self.old.take(objective)
        self.ready.fill_(True)

    def keep(self, step: Step, stream: Tensor, replay: Tensor) -> Tensor:
        old = self.past_head(self.old.features(step.views[:, : step.fresh]))
        return distillation(stream, old, self.temperature)


def nt_xent(rows: Tensor, temperature: float) -> Tensor:
    """SimCLR's loss: each row with its other view against all other rows: [2, N, P] -> scalar."""
    return mean(simclr_loss(rows[0], rows[1], temperature))


def cross(stream: Tensor, replay: Tensor, temperature: float) -> Tensor:
    """Each row with its other view against all rows of the other kind, both ways: [2, X, P], [2, Y, P] -> scalar."""
    losses = []
    for own, foreign in ((stream, replay), (replay, stream)):
        positive = cosine(own[0], own[1]).repeat(2)[:, None]  # [2N, 1]
        logits = torch.cat([positive, cosines(own.flatten(0, 1), foreign.flatten(0, 1))], dim=1) / temperature
        every = torch.ones_like(logits, dtype=torch.bool)
        first = every & (torch.arange(logits.shape[1], device=logits.device) == 0)
        losses.append(mean(contrast(logits, first, every)))
    return torch.stack(losses).mean()


def distillation(now: Tensor, old: Tensor, temperature: float) -> Tensor:
    """Each row with its own past against other samples, both ways: [2, N, P], [2, N, P] -> scalar."""
    logits = cosines(now.flatten(0, 1), old.flatten(0, 1)) / temperature
    apart = others(len(logits), logits.device)
    candidates = apart & ~other_view(len(logits), logits.device)
    return (mean(contrast(logits, ~apart, candidates)) + mean(contrast(logits.T, ~apart, candidates))) / 2


def _head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs, bias=False))
