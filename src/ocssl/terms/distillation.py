"""Distillation from the network of the last experience, which is frozen.

CaSSLe (Fini et al., 2022), PFR (Gomez-Villa et al., 2022) and SyCON, published as PNR (Cha et al., 2024).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ocssl.objectives import Objective
from ocssl.objectives.contrastive import contrast, cosine, cosines, others
from ocssl.objectives.objective import by_view, predictor
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Size, Weight
from ocssl.terms.term import TERMS, Penalty, Step, Term

PUSH = 0.5  # weight of the other view's past as a negative, where the objective has no negatives


class PastTerm(Term):
    """The network of the last boundary is frozen in `old`; until the first one the loss is 0. It defines `distill`."""

    boundaries = True
    started: Tensor

    def __init__(self, objective: Objective, weight: float) -> None:
        super().__init__(objective, weight)
        self.old = Teacher(objective, live=False)
        self.register_buffer("started", torch.tensor(False))

    def forward(self, step: Step) -> Penalty:
        return Penalty(self.distill(step) if self.started else step.measured.loss.new_zeros(()))

    def distill(self, step: Step) -> Tensor:
        """The loss between the frozen network and the present one."""
        raise TypeError(f"{type(self).__name__} does not define distill")

    def begin(self, objective: Objective) -> None:
        self.old.take(objective)

    def boundary(self, objective: Objective) -> None:
        self.old.take(objective)
        self.started.fill_(True)


@TERMS.add("cassle")
class Cassle(PastTerm):
    """CaSSLe: projections, through a head, predict those of the network frozen at the last boundary.

    The distance is the objective's own. There is nothing to predict in the first experience. `on` says which rows are
    distilled: `replay` is CaSSLe-R. `hidden` is the head's width; None: as wide as the projection.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        weight: Weight = 1.0,
        on: Literal["all", "replay"] = "all",
        hidden: Size | None = None,
    ) -> None:
        super().__init__(objective, weight)
        self.on = on
        self.rows = frozenset({"replay"}) if on == "replay" else frozenset()
        self.head = predictor(objective.projection, hidden or objective.projection)

    def distill(self, step: Step) -> Tensor:
        first = 0 if self.on == "all" else step.fresh
        views = step.views[:, first:]
        if not views.shape[1]:
            return step.measured.loss.new_zeros(())
        return step.objective.distance(by_view(self.head, step.out.projected[:, first:]), self.old(views))


@TERMS.add("pfr")
class Pfr(PastTerm):
    """PFR: encoder features, through a head, predict those of the encoder frozen at the last boundary."""

    def __init__(self, objective: Objective, *, weight: Weight = 1.0) -> None:
        super().__init__(objective, weight)
        self.head = predictor(objective.dimension, max(1, objective.dimension // 2))

    def distill(self, step: Step) -> Tensor:
        return -cosine(by_view(self.head, step.out.features), self.old.features(step.views)).mean()


@TERMS.add("sycon")
class Sycon(PastTerm):
    """SyCON (PNR): CaSSLe in which features of the frozen and of the current network are also negatives.

    With a contrastive objective past features become further negatives of its NT-Xent loss, and the current features
    of the prediction of the past. With any other, the past of the other view is pushed away. `hidden` is the head's
    width; None: as wide as the projection.
    """

    def __init__(self, objective: Objective, *, weight: Weight = 1.0, hidden: Size | None = None) -> None:
        super().__init__(objective, weight)
        self.head = predictor(objective.projection, hidden or objective.projection)
        self.temperature: float | None = objective.temperature if objective.contrastive else None

    def distill(self, step: Step) -> Tensor:
        now, old = step.out.projected, self.old(step.views)
        predicted = by_view(self.head, now)
        if self.temperature is None:
            return push_and_pull(predicted, old)
        return pseudo_negatives(now, old, predicted, self.temperature)


def push_and_pull(predicted: Tensor, old: Tensor) -> Tensor:
    """Predict the same view's past, not the other view's: [V, B, P], [V, B, P] -> scalar."""
    pull, push = (2 - 2 * cosine(predicted, past).mean() for past in (old, old.roll(1, 0)))
    return pull - PUSH * push


def pseudo_negatives(now: Tensor, old: Tensor, predicted: Tensor, temperature: float) -> Tensor:
    """What the past's negatives add to NT-Xent, and the contrastive prediction of the past: [2, B, P] x 3 -> scalar.

    log(U + O) = log U + softplus(log O - log U), where U is the sum in NT-Xent's denominator and O that of the past.
    Rows are the samples of both views, so averaging over the orders of views is averaging over rows.
    """
    now, old, predicted = (views.flatten(0, 1) for views in (now, old, predicted))
    apart = others(len(now), now.device)
    present, past = ((cosines(now, x) / temperature).masked_fill(~apart, -torch.inf).logsumexp(1) for x in (now, old))
    logits = torch.cat([cosines(predicted, old), cosines(predicted, now)], dim=1) / temperature
    itself = torch.cat([~apart, torch.zeros_like(apart)], dim=1)
    regulariser = contrast(logits, itself, torch.cat([apart, apart], dim=1))
    return (functional.softplus(past - present) + regulariser).mean()
