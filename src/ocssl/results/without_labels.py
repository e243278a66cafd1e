"""Which encoder is better where there are no labels: runs are compared by instance@1 at their last evaluation.

Of the measures without labels it ranks methods most like the accuracy of a probe (docs/results.md, Selection without
labels). It is a substitute: it says how well an encoder tells single images apart, and nothing about their classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ocssl._core.measures import MEASURES
from ocssl._core.table import MISSING, Row, Table, mean_cell
from ocssl.results.compare import REFERENCE, Difference, difference
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import LATENT_VIEWS, by_series, comparable_without_labels
from ocssl.results.tables import interval_words

KEY = "instance_at_1"
LABEL = MEASURES[KEY].label


@dataclass(frozen=True)
class Standing:
    """A series in its group: its values by seed, in per cent, and its difference from the reference."""

    series: str
    group: Run  # the first run of its group
    values: dict[int | None, float]
    reference: str
    gap: Difference | None  # None: it is the reference, or they share no seed


def last_value(run: Run) -> float | None:
    """instance@1 at the last evaluation, in per cent."""
    found = run.evaluations[-1][KEY] if run.evaluations else None
    return None if found is None else 100 * found


def standings(runs: Sequence[Run]) -> list[Standing]:
    """Every series of runs without labels, the best of a group first; against `solar` if it is there, else the best."""
    found = []
    for group in comparable_without_labels(runs):
        series = by_series(group)
        values = {
            name: {run.seed: value for run in own if (value := last_value(run)) is not None}
            for name, own in series.items()
        }
        ranked = sorted((name for name in values if values[name]), key=lambda name: -fmean(values[name].values()))
        if not ranked:
            continue
        reference = next((name for name in ranked if series[name][0].method == REFERENCE), ranked[0])
        for name in ranked:
            gap = None if name == reference else difference(values[name], values[reference])
            found.append(Standing(name, group[0], values[name], reference, gap))
    return found


def table(found: Sequence[Standing]) -> Table:
    """One row a series."""
    groups = list({id(one.group): one.group for one in found}.values())
    rows = []
    for one in found:
        against = MISSING if one.series == one.reference else one.reference
        words = (MISSING, MISSING) if one.series == one.reference else interval_words(one.gap)
        cells = (one.series, str(len(one.values)), mean_cell(one.values.values()), against, *words)
        rows.append(Row(cells, _place(one.group, groups) if len(groups) > 1 else ""))
    headers = ("method", "seeds", f"{LABEL}, %", "against", "points", "is")
    caption = (
        f"There are no labels, so this is {LABEL}: of the measures without labels it ranks methods most like a probe. "
        "It is no accuracy. Differences are of runs with the same seed, with 95 % intervals by Student's t."
    )
    return Table(headers, rows, (0, 3, 5), caption=caption)


def _place(group: Run, groups: Sequence[Run]) -> str:
    """The benchmark of a group, and the settings in which it differs from the others."""
    keys = sorted({key for other in groups for key in other.settings if key.startswith(("stream.", *LATENT_VIEWS))})
    differ = [key for key in keys if any(other.settings.get(key) != group.settings.get(key) for other in groups)]
    return ", ".join([group.benchmark, *(f"{key}={group.settings.get(key)}" for key in differ)])


def records(found: Sequence[Standing]) -> list[dict[str, Any]]:
    """The same for programs, one entry a series that is compared."""
    entries = []
    for one in found:
        if one.series != one.reference:
            gap = one.gap
            names = {"method": one.series, "against": one.reference, "benchmark": one.group.benchmark, "measure": KEY}
            numbers = {"pairs": gap.pairs if gap else 0, "difference": gap.mean if gap else None}
            bounds = {"low": gap.low if gap else None, "high": gap.high if gap else None}
            entries.append({**names, **numbers, **bounds, "verdict": interval_words(gap)[1]})
    return entries
