"""CLA: current features, through a head, are aligned with past ones (AEP, APRE, ARP in public code)."""

from typing import Literal

from ocssl.objectives import Objective
from ocssl.objectives.contrastive import cosine
from ocssl.objectives.objective import by_view, predictor
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Share, Weight
from ocssl.terms.term import TERMS, Penalty, Step, Term


@TERMS.add("cla-e")
class ClaE(Term):
    """CLA-E: projections, through a head, are aligned with those of a momentum (EMA) network.

    It is 0 while there is no replay. `on` says which rows are aligned; a higher `momentum` makes an older past.
    """

    rows = frozenset({"replay"})

    def __init__(
        self,
        objective: Objective,
        *,
        weight: Weight = 0.1,
        momentum: Share = 0.999,
        on: Literal["all", "replay"] = "all",
    ) -> None:
        super().__init__(objective, weight)
        self.momentum, self.on = momentum, on
        self.head = predictor(objective.projection)
        self.teacher = Teacher(objective, live=True)

    def begin(self, objective: Objective) -> None:
        self.teacher.take(objective)

    def after_step(self, objective: Objective) -> None:
        self.teacher.follow(objective, self.momentum)

    def forward(self, step: Step) -> Penalty:
        if not len(step.replay):
            return Penalty(step.measured.loss.new_zeros(()))
        first = 0 if self.on == "all" else step.fresh
        target = self.teacher(step.views)[:, first:]  # the whole batch, so that batch norm sees what the network saw
        aligned = by_view(self.head, step.out.projected[:, first:])
        return Penalty(-cosine(aligned, target).mean())


@TERMS.add("cla-r")
class ClaR(Term):
    """CLA-R: projections of replayed samples, through a head, are aligned with those stored beside them."""

    needs = frozenset({"projected"})
    rows = frozenset({"replay"})

    def __init__(self, objective: Objective, *, weight: Weight = 0.1) -> None:
        super().__init__(objective, weight)
        self.head = predictor(objective.projection)

    def forward(self, step: Step) -> Penalty:
        if not len(step.replay):
            return Penalty(step.measured.loss.new_zeros(()))
        target = step.memory.store["projected"][step.replay.slots]  # [n, P] as it was before this step's refresh
        aligned = by_view(self.head, step.out.projected[:, step.fresh :])
        return Penalty(-cosine(aligned, target.expand_as(aligned)).mean())
