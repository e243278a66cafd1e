"""SyCON, published as PNR (Cha et al., 2024): past and present features also serve each other as negatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ocssl.objectives import Objective
from ocssl.objectives.contrast import contrast, cosine, cosines, others
from ocssl.objectives.heads import predictor
from ocssl.settings import Size, Weight
from ocssl.terms.heads import by_view
from ocssl.terms.previous import PastTerm
from ocssl.terms.term import TERMS, Penalty, Step

PUSH = 0.5  # weight of the other view's past as a negative, where the objective has no negatives


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

    def forward(self, step: Step) -> Penalty:
        if not self.started:
            return Penalty(step.measured.loss.new_zeros(()))
        now, old = step.out.projected, self.old(step.views)
        predicted = by_view(self.head, now)
        if self.temperature is None:
            return Penalty(push_and_pull(predicted, old))
        return Penalty(pseudo_negatives(now, old, predicted, self.temperature))


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
