"""Timing: workloads in turn, ratios of neighbours, medians and quartiles."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocssl.bench import timing
from ocssl.bench.timing import exact, interleaved, ratio, spread


def test_every_round_runs_every_workload_and_each_second_round_backwards() -> None:
    calls: list[str] = []
    times = interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, rounds=3, warmup=1)
    assert calls == list("abc" + "cba" + "abc" + "cba")
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_warm_up_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock) ** 2)
    assert interleaved({"a": lambda: None}, rounds=2, warmup=2)["a"] == [5**2 - 4**2, 7**2 - 6**2]


def test_a_ratio_is_that_of_neighbours_not_of_sums() -> None:
    times = {"slow": [2.0, 20.0, 200.0], "fast": [1.0, 10.0, 100.0]}
    assert ratio(times, "slow", "fast") == timing.Spread(2.0, 2.0, 2.0, 3)
    times["slow"][2] = 4000.0  # a hiccup in one round moves the median of the ratios not at all
    assert ratio(times, "slow", "fast").middle == 2.0


def test_workloads_of_different_rounds_have_no_ratio() -> None:
    with pytest.raises(ValueError):
        ratio({"a": [1.0], "b": [1.0, 2.0]}, "a", "b")


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30))
def test_the_median_lies_between_the_quartiles_and_they_inside_the_values(values: list[float]) -> None:
    told = spread(values)
    assert min(values) <= told.low <= told.middle <= told.high <= max(values)
    assert told.middle == pytest.approx(statistics.median(values))
    assert told.rounds == len(values)


def test_a_figure_that_does_not_vary_has_no_spread() -> None:
    assert exact(3.0) == timing.Spread(3.0, 3.0, 3.0, 1)
