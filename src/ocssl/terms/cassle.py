"""CaSSLe (Fini et al., 2022): the network of the last experience, frozen, is one more view to be predicted."""

from __future__ import annotations

from typing import Literal

from ocssl.objectives import Objective
from ocssl.objectives.heads import predictor
from ocssl.settings import Size, Weight
from ocssl.terms.heads import by_view
from ocssl.terms.previous import PastTerm
from ocssl.terms.term import TERMS, Penalty, Step


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

    def forward(self, step: Step) -> Penalty:
        first = 0 if self.on == "all" else step.fresh
        views = step.views[:, first:]
        if not self.started or not views.shape[1]:
            return Penalty(step.measured.loss.new_zeros(()))
        predicted = by_view(self.head, step.out.projected[:, first:])
        return Penalty(step.objective.distance(predicted, self.old(views)))
