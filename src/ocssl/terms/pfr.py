"""PFR (Gomez-Villa et al., 2022): features of the last experience stay computable from those of now."""

from __future__ import annotations

from ocssl.objectives import Objective
from ocssl.objectives.contrast import cosine
from ocssl.objectives.heads import predictor
from ocssl.settings import Weight
from ocssl.terms.heads import by_view
from ocssl.terms.previous import PastTerm
from ocssl.terms.term import TERMS, Penalty, Step


@TERMS.add("pfr")
class Pfr(PastTerm):
    """PFR: encoder features, through a head, predict those of the encoder frozen at the last boundary."""

    def __init__(self, objective: Objective, *, weight: Weight = 1.0) -> None:
        super().__init__(objective, weight)
        self.head = predictor(objective.dimension, max(1, objective.dimension // 2))

    def forward(self, step: Step) -> Penalty:
        if not self.started:
            return Penalty(step.measured.loss.new_zeros(()))
        predicted = by_view(self.head, step.out.features)
        return Penalty(-cosine(predicted, self.old.features(step.views)).mean())
