"""Every registered term keeps the contract and, in a learner, an exact state; the contract catches wrong terms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import ocssl
from conftest import random_images, small_learner
from ocssl.checks import ContractError, check_term
from ocssl.objectives import Objective
from ocssl.objectives.teachers import Teacher
from ocssl.terms import TERMS, Penalty, Step, Term

WHOLE = ("scale", "osiris-r", "osiris-d")  # losses of methods without an objective
BOTH = ("sycon", "cassle")  # other forms for contrastive objectives
CASES = [(name, "none" if name in WHOLE else "simsiam") for name in TERMS] + [(name, "simclr") for name in BOTH]


@pytest.mark.parametrize(("name", "objective"), CASES)
def test_every_term_passes(name: str, objective: str) -> None:
    check_term(name, objective)


def learner_with(name: str, objective: str, **more: Any) -> ocssl.Learner:
    settings = {f"terms.{name}.weight": 1.0, "schedule.boundaries": TERMS[name].boundaries, "objective.name": objective}
    return small_learner("er-fifo", **settings, **more)


def live(learner: ocssl.Learner, seeds: range) -> list[ocssl.Info]:
    found = []
    for seed in seeds:
        found.append(learner.partial_fit(random_images(6, seed=seed)))
        if learner.settings.schedule.boundaries and seed % 2 == 1:
            learner.boundary()
    return found


@pytest.mark.parametrize(("name", "objective"), CASES)
def test_a_loaded_learner_goes_on_bit_for_bit(name: str, objective: str, tmp_path: Path) -> None:
    learner = learner_with(name, objective)
    live(learner, range(3))
    learner.save(tmp_path / "saved")
    again = ocssl.Learner.load(tmp_path / "saved")
    assert repr(live(learner, range(3, 5))) == repr(live(again, range(3, 5)))
    for key, tensor in learner.tensors().items():
        assert torch.equal(tensor, again.tensors()[key]), key


@pytest.mark.parametrize(("name", "objective"), CASES)
def test_single_images_and_constant_images_are_finite(name: str, objective: str) -> None:
    learner = learner_with(name, objective, **{"schedule.batch": 2, "schedule.stream_batch": 1})
    for images in (random_images(1), torch.zeros(2, 3, 8, 8, dtype=torch.uint8), random_images(3, seed=1)):
        for _ in range(2):
            assert torch.isfinite(torch.tensor(learner.partial_fit(images).loss))
        if learner.settings.schedule.boundaries:
            learner.boundary()


class Right(Term):
    needs: ClassVar[frozenset[str]] = frozenset({"feature"})

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective, 1.0)
        self.teacher = Teacher(objective, live=True)

    def begin(self, objective: Objective) -> None:
        self.teacher.take(objective)

    def after_step(self, objective: Objective) -> None:
        self.teacher.follow(objective, 0.5)

    def forward(self, step: Step) -> Penalty:
        return Penalty((step.out.projected - self.teacher(step.views)).square().sum() + step.measured.loss.mean())


class TwoNumbers(Right):
    def forward(self, step: Step) -> Penalty:
        return Penalty(step.measured.loss)


class NotFinite(Right):
    def forward(self, step: Step) -> Penalty:
        return Penalty(step.out.features.norm(dim=-1).reciprocal().sum())


class UnstableGradient(Right):
    def forward(self, step: Step) -> Penalty:
        return Penalty((step.out.projected - step.out.projected.detach()).square().sum().sqrt())


class Detached(Right):
    def forward(self, step: Step) -> Penalty:
        return Penalty(step.out.features.detach().mean())


class Writes(Right):
    def forward(self, step: Step) -> Penalty:
        step.memory.store["loss"].add_(1)
        return super().forward(step)


class ReadsMore(Right):
    def forward(self, step: Step) -> Penalty:
        return Penalty(super().forward(step).loss + step.memory.store["projected"].sum())


class ChangesTheNetwork(Right):
    def forward(self, step: Step) -> Penalty:
        with torch.no_grad():
            next(step.objective.parameters()).data.add_(1)
        return super().forward(step)


class KeepsTheGraph(Right):
    def forward(self, step: Step) -> Penalty:
        loss = super().forward(step).loss
        return Penalty(loss, {"shown": loss})


class ShowsSometimes(Right):
    def forward(self, step: Step) -> Penalty:
        penalty = super().forward(step)
        return Penalty(penalty.loss, {"shown": penalty.loss.detach()} if len(step.replay) else {})


class Forgets(Right):
    steps = 0

    def after_step(self, objective: Objective) -> None:
        super().after_step(objective)
        self.steps += 1

    def forward(self, step: Step) -> Penalty:
        return Penalty(super().forward(step).loss * self.steps)


class Noisy(Right):
    def forward(self, step: Step) -> Penalty:
        return Penalty(super().forward(step).loss * torch.rand(()))


class OneRowNorm(Right):
    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        self.norm = nn.BatchNorm1d(objective.projection)

    def forward(self, step: Step) -> Penalty:
        return Penalty(self.norm(step.out.projected[0, step.fresh :]).sum())


WRONG = [
    (TwoNumbers, ContractError, "one number"),
    (NotFinite, ContractError, "loss is not finite"),
    (UnstableGradient, ContractError, "gradient is not finite"),
    (Detached, ContractError, "reaches the encoder"),
    (Writes, ContractError, "writes to the memory"),
    (ReadsMore, ContractError, "needs"),
    (ChangesTheNetwork, ContractError, "changes the objective"),
    (KeepsTheGraph, ContractError, "detach"),
    (ShowsSometimes, ContractError, "other names"),
    (Forgets, ContractError, "whole state"),
    (Noisy, ContractError, "global"),
    (OneRowNorm, ValueError, "more than 1 value"),
]


def test_a_right_term_passes() -> None:
    check_term(Right)


@pytest.mark.parametrize(("term", "error", "complaint"), WRONG)
def test_check_term_catches(term: Callable[..., Term], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        check_term(term)
