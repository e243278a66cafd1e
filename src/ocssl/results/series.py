"""Runs that belong together: seeds of one series, and series that may be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Literal

from ocssl.results.read import ONLINE, Run

Points = Iterable[tuple[float | None, float | None]]


def by_series(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but the seed, together; of several with one seed the last, finished ones first."""
    groups: dict[str, dict[int | None, Run]] = {}
    for run in runs:
        group = groups.setdefault(run.series, {})
        if run.finished or run.seed not in group or not group[run.seed].finished:
            group[run.seed] = run
    return {series: list(group.values()) for series, group in groups.items()}


def comparable(runs: Sequence[Run]) -> list[list[Run]]:
    """Finished runs with an accuracy, in groups that can be compared: one benchmark, regime, stream and evaluation."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.regime != ONLINE):
        if run.finished and run.average is not None:
            probe = run.settings.get("evaluate.probe")
            groups.setdefault(f"{run.benchmark} {run.regime} {probe} {sorted(_alike(run).items())}", []).append(run)
    return list(groups.values())


def circumstances(run: Run, others: Sequence[Run]) -> str:
    """The probe, and in what a group differs from the others on its benchmark; each is given by one of its runs."""
    others = [other for other in others if other.benchmark == run.benchmark]
    words = [f"{run.settings.get('evaluate.probe', 'unknown')} probe"]
    if {other.regime for other in others} != {ONLINE}:
        words.append(run.regime)
    mine, theirs = _alike(run), [_alike(other) for other in others]
    keys = sorted({key for other in theirs for key in other})
    differ = [key for key in keys if any(other.get(key) != mine.get(key) for other in theirs)]
    return "; ".join(words + [f"{key}={json.dumps(mine.get(key), default=str)}" for key in differ])


def _alike(run: Run) -> dict[str, Any]:
    """What runs must have in common to be compared, beside probe and regime, which speaks for the epochs."""
    stream = {key: value for key, value in run.settings.items() if key.startswith("stream.") and key != "stream.epochs"}
    evaluated = {key: run.settings.get(key) for key in ("evaluate.compat", "evaluate.every")}
    return stream | evaluated | {"images": run.images and run.images[:8]}


def shared_seeds(series: Mapping[str, Sequence[Run]]) -> set[int]:
    """Seeds that every series has."""
    seeds = [{run.seed for run in group if run.seed is not None} for group in series.values()]
    return set.intersection(*seeds) if seeds else set()


def known(runs: Iterable[Run], measure: Literal["final", "average"]) -> list[float]:
    """A measure of the runs that have it."""
    return [value for value in (getattr(run, measure) for run in runs) if value is not None]


def spread_over(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds, if there are several."""
    return stdev(values) if len(values) > 1 else None


def means_at(curves: Iterable[Points]) -> list[tuple[float, float, float | None]]:
    """Curves of seeds as one: place, mean, and standard deviation where several have a value there.

    >>> means_at([[(0.0, 1.0), (50.0, 2.0)], [(0.0, 3.0), (50.0, None)]])
    [(0.0, 2.0, 1.4142135623730951), (50.0, 2.0, None)]
    """
    found: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in curve:
            if x is not None and y is not None:
                found.setdefault(round(x, 2), []).append(y)
    return [(x, fmean(values), spread_over(values)) for x, values in sorted(found.items())]
