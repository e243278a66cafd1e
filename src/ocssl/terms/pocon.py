"""POCON (Gomez-Villa et al., 2024): an expert learns what is new; the kept encoder learns from it and its own past."""

from __future__ import annotations

from copy import deepcopy
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from ocssl._core.angles import TINY, unit
from ocssl.objectives import Objective
from ocssl.objectives.objective import by_view, layer
from ocssl.settings import Weight
from ocssl.terms.term import TERMS, Penalty, Step, Term


@TERMS.add("pocon")
class Pocon(Term):
    """POCON: the objective trains an expert; the encoder that is kept learns from the expert and from its own past.

    At a boundary the past and the expert become copies of the kept encoder. For `expert_steps` optimizer steps after
    the start and after each boundary only the expert learns.
    """

    boundaries = True
    started: Tensor
    steps: Tensor

    def __init__(
        self,
        objective: Objective,
        *,
        weight: Weight = 1.0,
        adapt: Weight = 1.0,
        retain: Weight = 25.0,
        expert_steps: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        super().__init__(objective, weight)
        self.adapt, self.retain, self.expert_steps = adapt, retain, expert_steps
        width = objective.dimension
        self.main = deepcopy(objective.encoder)
        self.old = deepcopy(objective.encoder).requires_grad_(False)
        self.adapter = nn.Sequential(
            *layer(width, 2 * width), *layer(2 * width, width), *layer(width, 2 * width), nn.Linear(2 * width, width)
        )
        self.retainer = nn.Linear(width, width)
        self.register_buffer("started", torch.tensor(False))
        self.register_buffer("steps", torch.tensor(0))  # since the last boundary
        self.train()

    def train(self, mode: bool = True) -> Pocon:
        super().train(mode)
        self.old.eval()
        return self

    def begin(self, objective: Objective) -> None:
        self.main.load_state_dict(objective.encoder.state_dict())
        self.old.load_state_dict(objective.encoder.state_dict())

    def after_step(self, objective: Objective) -> None:
        self.steps += 1

    def boundary(self, objective: Objective) -> None:
        self.old.load_state_dict(self.main.state_dict())
        objective.encoder.load_state_dict(self.main.state_dict())
        self.started.fill_(True)
        self.steps.zero_()

    def evaluated(self) -> nn.Module:
        return self.main

    def forward(self, step: Step) -> Penalty:
        if self.steps < self.expert_steps:
            return Penalty(step.measured.loss.new_zeros(()))
        features = torch.stack([self.main(view) for view in step.views])
        loss = self.adapt * distance(by_view(self.adapter, features), step.out.features.detach())
        if self.started:
            with torch.no_grad():
                old = torch.stack([self.old(view) for view in step.views])
            loss = loss + self.retain * distance(self.retainer(features), old)
        return Penalty(loss)


def distance(predicted: Tensor, target: Tensor) -> Tensor:
    """Frobenius norm of the difference of unit rows, summed over views: [V, B, D], [V, B, D] -> scalar."""
    apart = unit(predicted.float()) - unit(target.float())
    return (apart.square().sum((1, 2)) + TINY).sqrt().sum()
