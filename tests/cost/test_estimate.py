"""Estimates of whole runs: of every method and objective, and of the paper's own setting."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ocssl import recipes
from ocssl.cost import ImageCounts, Machine, estimate, gpu
from ocssl.objectives import OBJECTIVES
from ocssl.runs.config import resolve_run

pytestmark = pytest.mark.slow

HERE = Machine("here", 8e10, 5e10, 6e9, 2e-4)
TINY: dict[str, Any] = {
    "objective.projection": 16,
    "memory.capacity": 40,
    "schedule.batch": 12,
    "schedule.stream_batch": 4,
    "schedule.passes": 1,
    "stream.epochs": 1,
}
OWN: dict[str, dict[str, Any]] = {"none": {"objective.weight": 0.0, "terms.scale.weight": 1.0}}


def made(method: str, own: dict[str, Any]) -> None:
    settings = resolve_run(method, "synthetic", 0, TINY | own)
    found = estimate(settings, HERE)
    ends = ImageCounts.expected(settings).minibatches(settings)
    assert found.steps == ends[-1]
    assert found.measured
    for value in (found.flops, found.bytes, found.memory, found.seconds):
        assert math.isfinite(value)
        assert value > 0
    assert found.seconds == pytest.approx(sum(found.parts.values()))
    assert all(math.isfinite(part) and part >= 0 for part in found.parts.values())
    assert found.parts["training"] > 0


@pytest.mark.parametrize("method", sorted(recipes.methods()))
def test_every_method(method: str) -> None:
    made(method, {})


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_objective(name: str) -> None:
    made("er-fifo", {"objective.name": name, **OWN.get(name, {})})


def test_a_method_with_more_passes_costs_more() -> None:
    costs = {
        method: estimate(resolve_run(method, "synthetic", 0, TINY), HERE).flops
        for method in ("finetune", "er-fifo", "cla-e", "mir")
    }
    assert list(costs) == sorted(costs, key=lambda method: costs[method])


def test_settings_of_the_passes_do_not_slow_a_trial_down() -> None:
    """Neither compilation nor another precision changes the count, and a trial does without them."""
    plain = estimate(resolve_run("er-fifo", "synthetic", 0, TINY), HERE)
    other = estimate(resolve_run("er-fifo", "synthetic", 0, TINY | {"compute.compile": True}), HERE)
    assert other == plain


def test_the_papers_run() -> None:
    """27,000 steps of 0.93 TFLOP; images lie in memory, 45 + 5 + 10 thousand of them."""
    found = estimate(resolve_run("er-fifo", "cifar100", 0, {"schedule.passes": 6}), gpu("a100-40gb"))
    assert found.steps == 27_000
    assert not found.measured
    assert 2.4e16 < found.flops < 2.8e16
    assert found.memory > 60_000 * 3 * 32 * 32
