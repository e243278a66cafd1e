"""What terms share that learn from the network as it was when the last experience ended."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ocssl.objectives import Objective
from ocssl.objectives.teachers import Teacher
from ocssl.terms.term import Term


class PastTerm(Term):
    """Has the network of the last boundary, frozen, in `old`; until the first boundary `started` is false."""

    boundaries: ClassVar[bool] = True
    started: Tensor

    def __init__(self, objective: Objective, weight: float) -> None:
        super().__init__(objective, weight)
        self.old = Teacher(objective, live=False)
        self.register_buffer("started", torch.tensor(False))

    def begin(self, objective: Objective) -> None:
        self.old.take(objective)

    def boundary(self, objective: Objective) -> None:
        self.old.take(objective)
        self.started.fill_(True)
