"""Timing as ratios: works that are compared run in turn in one process, so that noise of the machine meets them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Work = Callable[[], object]
Times = dict[str, list[float]]  # name of a work -> seconds of each round


@dataclass(frozen=True)
class Spread:
    """The middle of many measurements, and the quartiles around it."""

    low: float
    middle: float
    high: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles; one value alone is all three."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, middle, high, len(values))


def exactly(value: float) -> Spread:
    """A figure that does not vary, such as a count of bytes."""
    return Spread(value, value, value, 1)


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(works: Mapping[str, Work], rounds: int, warmup: int = 1) -> Times:
    """Seconds of every work in every round; each second round goes through them backwards. Warm-up is not counted."""
    times: Times = {name: [] for name in works}
    for number in range(-warmup, rounds):
        for name in list(works) if number % 2 else reversed(list(works)):
            spent = seconds(works[name])
            if number >= 0:
                times[name].append(spent)
    return times


def ratio(times: Times, above: str, below: str) -> Spread:
    """How many times longer `above` takes than `below`: the ratios of neighbours, round by round."""
    return spread([a / b for a, b in zip(times[above], times[below], strict=True)])
