"""A step beside the bare network, its phases, and what each method costs."""

from __future__ import annotations

import math

import pytest
import torch

from ocssl import recipes
from ocssl.bench import steps
from ocssl.bench.steps import ROWS, minibatch, ready
from ocssl.bench.timing import Bar
from ocssl.runs.profiler import AROUND, PHASES, PhaseClock

pytestmark = pytest.mark.slow

SMALL = {"memory.capacity": 20, "schedule.batch": 12, "encoder.name": "resnet10", "objective.projection": 16}


def test_the_bare_step_is_the_learners_own_without_the_rest() -> None:
    learner = ready("er-fifo", 2, 8, **SMALL)
    before = [p.clone() for p in learner.network.parameters()]
    steps.bare_step(learner)()
    assert any(not torch.equal(a, b) for a, b in zip(before, learner.network.parameters(), strict=True))


def test_in_planes_the_network_computes_the_same() -> None:
    last, planes = ready("er-fifo", 4, 8, **SMALL), ready("er-fifo", 4, 8, **SMALL)
    steps.bare_step(last)()
    steps.bare_step(steps.to_nchw(planes))()
    for a, b in zip(last.network.parameters(), planes.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    weight = planes.network.objective.encoder.stages[0].conv1.weight
    assert weight.is_contiguous()
    assert not weight.is_contiguous(memory_format=torch.channels_last)


def test_the_clock_changes_no_bit_and_its_phases_add_up() -> None:
    plain, clocked = ready("solar", 2, 8, **SMALL), ready("solar", 2, 8, **SMALL)
    clock = PhaseClock(clocked)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    for learner, generator in zip((plain, clocked), generators, strict=True):
        for _ in range(3):
            learner.partial_fit(minibatch(learner, generator))
    for a, b in zip(plain.network.state_dict().values(), clocked.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert tuple(clock.seconds) == (*PHASES, *AROUND)
    assert all(clock.seconds[phase] > 0 for phase in PHASES)
    assert not any(clock.seconds[phase] for phase in AROUND)


def test_a_phase_inside_another_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PhaseClock(ready("solar", 2, 8, **SMALL))
    now = iter([0.0, 1.0, 3.0, 6.0])
    monkeypatch.setattr("ocssl.runs.profiler.time.perf_counter", lambda: next(now))
    inner = clock._timed(lambda: None, "views")
    clock._timed(inner, "draw")()
    assert clock.seconds["draw"] == 1.0 + 3.0
    assert clock.seconds["views"] == 2.0


def test_waiting_for_the_device_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, now = ready("solar", 2, 8, **SMALL), [0.0]
    monkeypatch.setattr("ocssl.runs.profiler.time.perf_counter", lambda: now[0])
    clock = PhaseClock(learner)
    settle = learner._guard.settle

    def slow() -> None:  # where a device's queue is waited for
        now[0] += 5.0
        settle()

    monkeypatch.setattr(learner._guard, "settle", slow)
    learner.partial_fit(minibatch(learner, torch.Generator().manual_seed(0)))
    assert clock.seconds["rest"] == 5.0


def test_a_phase_that_fails_is_ended() -> None:
    clock = PhaseClock(ready("solar", 2, 8, **SMALL))
    with pytest.raises(ZeroDivisionError):
        clock._timed(lambda: 1 / 0, "draw")()
    assert clock._running == []


def test_step_rows_have_figures_and_their_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(steps.WHOLE, (2, 8), Bar(1.25))
    monkeypatch.setitem(steps.SOLAR, (2, 8), Bar(1.03))
    told = [*steps.steps(2, 8, rounds=2), *steps.phases(2, 8, rounds=2), *steps.layout(2, 8, rounds=2)]
    assert all(math.isfinite(row.value.middle) and row.value.middle > 0 for row in told)
    assert len({row.key for row in told}) == len(told)
    assert [str(row.bar) for row in told if row.bar] == ["at most 1.03", "at most 1.25", "at most 1.25"]


def test_a_ready_learner_has_a_full_memory_and_takes_its_own_minibatch() -> None:
    solar, offline = ready("solar", 2, 8, **SMALL), ready("cassle", 2, 8)
    assert len(solar.memory) == 20
    assert len(minibatch(solar, torch.Generator())) == 10
    assert len(minibatch(offline, torch.Generator())) == ROWS


@pytest.mark.parametrize("name", ["mir", "cmp", "byol"])
def test_methods_rows_have_figures(name: str) -> None:
    told = list(steps.method_cost(name, 2, 8, rounds=1))
    assert [row.unit for row in told] == ["images/s", "x", "x"]
    assert all(row.value.middle > 0 for row in told)


def test_extra_passes_are_told_of_known_methods_only() -> None:
    known = {*recipes.methods(), *steps.OBJECTIVES}
    assert {*steps.EXTRA, *steps.INSTEAD, *steps.QUICK} <= known
