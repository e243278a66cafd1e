"""Are two methods different? Differences of pairs of runs with the same seed, with a confidence interval.

Runs with one seed see the same stream in the same order, so what is easy or hard about it cancels in the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from ocssl.results.read_runs import Run
from ocssl.results.run_groups import ACCURACIES, by_series, comparable, known

CONFIDENCE = 0.95
LEAST_SPREAD = 1e-9  # points; below it, gaps differ by rounding only
REFERENCE = "solar"
BETTER, WORSE, OPEN = "better", "worse", "no clear difference"
LEAST_PAIRS = 3  # seeds that both need before one of them is called better
TOO_FEW = "too few seeds to tell"


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences with its interval, in points of accuracy."""

    mean: float
    half: float | None  # the interval is mean - half to mean + half; None where there is none
    pairs: int

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half

    @property
    def verdict(self) -> str:
        if self.pairs < LEAST_PAIRS:
            return TOO_FEW
        if not self.half or abs(self.mean) <= self.half:
            return OPEN
        return BETTER if self.mean > 0 else WORSE

    @property
    def lack(self) -> str:
        """Why there is no interval; empty where there is one."""
        if self.half is not None:
            return ""
        return TOO_FEW if self.pairs < LEAST_PAIRS else f"{self.pairs} equal gaps: no interval"


@dataclass(frozen=True)
class Comparison:
    """A series against the reference of its group; None where they share no seed."""

    series: str
    reference: str
    run: Run  # one of the series, for what they have in common
    final: Difference | None
    average: Difference | None


@dataclass(frozen=True)
class Standing:
    """Series that can be compared, in the order of their mean Average over the seeds that all of them have."""

    ranked: list[str]  # best first
    compared: dict[str, list[Run]]  # the runs that the order is from
    series: dict[str, list[Run]]  # all runs
    shared: set[int]  # seeds; none: each series is judged by its own

    @property
    def uneven(self) -> bool:
        """Whether some series have seeds that others lack."""
        return any(len(self.compared[name]) < len(own) for name, own in self.series.items())


def standing(group: Sequence[Run]) -> Standing:
    """Who leads: the order of every table, chart and sentence."""
    series = by_series(group)
    seeds = [{run.seed for run in own if run.seed is not None} for own in series.values()]
    shared = set.intersection(*seeds) if len(seeds) > 1 else set()
    compared = series
    if shared:
        compared = {name: [run for run in own if run.seed in shared] for name, own in series.items()}
    ranked = sorted(compared, key=lambda name: -fmean(known(compared[name], "average")))
    return Standing(ranked, compared, series, shared)


def without_extra_seeds(runs: Sequence[Run]) -> list[Run]:
    """The runs without those whose seed some series of their group lacks: what headline and table are from."""
    extra = set[int]()
    for now in map(standing, comparable(runs)):
        extra |= {id(run) for name, own in now.series.items() for run in own if run not in now.compared[name]}
    return [run for run in runs if id(run) not in extra]


def best_first(runs: Sequence[Run]) -> list[Run]:
    """Runs in the order in which they are listed and drawn: those that can be compared first, the best series first."""
    place = {name: i for i, name in enumerate(name for group in comparable(runs) for name in standing(group).ranked)}
    return sorted(runs, key=lambda run: (place.get(run.series, len(place)), not run.finished, run.seed or 0))


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """The best series against the next, then every series against the reference of its group; best first.

    The reference is `solar` if it is there, else the best.
    """
    found = []
    for group in comparable(runs):
        now = standing(group)
        ranked, series = now.ranked, now.series
        reference = next((name for name in ranked if series[name][0].method == REFERENCE), ranked[0])
        if reference not in ranked[:2]:
            found.append(against(ranked[0], ranked[1], series))
        found += [against(name, reference, series) for name in ranked if name != reference]
    return found


def against(name: str, reference: str, series: Mapping[str, Sequence[Run]]) -> Comparison:
    """One series against another."""
    final, average = (
        difference(*({run.seed: getattr(run, key) for run in series[side]} for side in (name, reference)))
        for key in ACCURACIES
    )
    return Comparison(name, reference, series[name][0], final, average)


def difference(ours: Mapping[int | None, float | None], theirs: Mapping[int | None, float | None]) -> Difference | None:
    """The mean of `ours` minus `theirs` over the seeds that both have, by Student's t.

    Equal gaps are chance, not certainty: without spread, as with one pair, there is no interval.

    >>> difference({0: 11.0, 1: 12.0, 2: 99.0}, {0: 10.0, 1: 11.0})
    Difference(mean=1.0, half=None, pairs=2)
    """
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed is not None and seed in theirs]
    gaps = [a - b for a, b in pairs if a is not None and b is not None]
    if not gaps:
        return None
    spread = stdev(gaps) if len(gaps) > 1 else 0.0
    half = t_quantile(len(gaps) - 1) * spread / math.sqrt(len(gaps)) if spread > LEAST_SPREAD else None
    return Difference(fmean(gaps), half, len(gaps))


def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The number that the size of Student's t stays below with this probability, by halving an interval."""
    low, high = 0.0, 1.0
    while t_within(high, freedom) < confidence:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if t_within(middle, freedom) < confidence else (low, middle)
    return high


def t_within(t: float, freedom: int) -> float:
    """The probability that the size of Student's t is at most `t` (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
