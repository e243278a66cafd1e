"""How well measures that need no labels rank encoders as the probe does: Spearman's rank correlation with accuracy.

Within a run: over its evaluations, the untrained encoder left out; also over the changes from one to the next, since
two curves that both rise with training correlate whatever they measure. Between methods: over the series of a group
that can be compared and has the same views, by means over seeds at the last evaluation. Intervals are percentiles of
bootstrap samples: of runs within, of methods between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl._core.measures import MEASURES
from ocssl._core.table import MISSING, Row, Table
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import by_series, comparable, same_views

SAMPLES, CONFIDENCE = 2000, 0.95  # of the bootstrap
LEAST_EVALUATIONS, LEAST_METHODS = 5, 4  # below, a correlation says nothing,
LEAST_UNITS = 6  # and below this number of runs or methods a bootstrap interval
EFFECTIVE_RANK = "effective_rank"
STEPS = (
    "spread",
    "participation_ratio",
    "ssl",
)  # measured at every step: the mean over the evaluation's stretch of the stream
ACCURACY = "accuracy"

Floats = npt.NDArray[np.float64]
Course = dict[str, list[float | None]]  # by measure, a value an evaluation


@dataclass(frozen=True)
class Correlation:
    """Spearman's coefficient with a bootstrap interval; the interval is missing where there are too few units."""

    measure: str
    rho: float
    low: float | None
    high: float | None
    units: int  # runs, or methods

    @property
    def words(self) -> str:
        return f"{self.rho:+.2f}" + (f" [{self.low:+.2f}, {self.high:+.2f}]" if self.low is not None else "")


def ranks(values: Sequence[float]) -> Floats:
    """Ranks from 0 up; equal values share the mean of theirs."""
    x = np.asarray(values, dtype=np.float64)
    found: Floats = (x[:, None] > x[None, :]).sum(1) + ((x[:, None] == x[None, :]).sum(1) - 1) / 2
    return found


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation; None where one side does not vary.

    >>> spearman([1, 2, 3], [10, 30, 20])
    0.5
    """
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    length = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / length if length > 0 else None


def bootstrap(units: Floats, value: Callable[[Floats], float | None], seed: int = 0) -> Floats:
    """The value on resampled units, sorted; samples on which it does not exist are left out."""
    generator = np.random.default_rng(seed)
    found = (value(units[generator.integers(0, len(units), len(units))]) for _ in range(SAMPLES))
    return np.sort([one for one in found if one is not None])


def course(run: Run) -> Course:
    """Every measure at the evaluations of a run after training began."""
    evaluations = [e for e in run.evaluations if e.experience > 0]
    found: Course = {measure.key: [e[measure.key] for e in evaluations] for measure in MEASURES.of("evaluation")}
    spectra = {spectrum.share: spectrum.values for spectrum in run.spectra}
    found[EFFECTIVE_RANK] = [_effective_rank(spectra.get(e.share, ())) for e in evaluations]
    ends = [e.share for e in evaluations]
    for key in STEPS:
        found[key] = [_mean_between(run, key, before, end) for before, end in zip([0.0, *ends], ends, strict=False)]
    return found


def _effective_rank(values: Sequence[float]) -> float | None:
    shares = np.asarray([value for value in values if value > 0], dtype=np.float64)
    return float(np.exp(-(shares / shares.sum() * np.log(shares / shares.sum())).sum())) if len(shares) else None


def _mean_between(run: Run, key: str, before: float | None, end: float | None) -> float | None:
    """The mean of a step measure over a stretch of the stream, in per cent."""
    if before is None or end is None:
        return None
    pairs = zip(run.trace["share"], run.trace[key], strict=True)
    values = [y for x, y in pairs if x is not None and y is not None and before < x <= end]
    return fmean(values) if values else None


def within(runs: Sequence[Run], changes: bool = False) -> list[Correlation]:
    """The mean over runs of each measure's correlation with accuracy inside a run, by values or by their changes."""
    found: dict[str, list[float]] = {}
    for run in runs:
        own = course(run)
        for key, values in own.items():
            pairs = [(a, b) for a, b in zip(values, own[ACCURACY], strict=True) if a is not None and b is not None]
            if changes:
                pairs = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(pairs)]
            rho = spearman(*zip(*pairs, strict=True)) if len(pairs) >= LEAST_EVALUATIONS else None
            if rho is not None and key != ACCURACY:
                found.setdefault(key, []).append(rho)
    return _correlations({key: np.asarray(rhos) for key, rhos in found.items()}, lambda rhos: float(rhos.mean()))


def between(runs: Sequence[Run]) -> list[Correlation]:
    """Each measure's correlation with accuracy over the series of one comparable group, at the last evaluation."""
    points: dict[str, list[tuple[float, float]]] = {}
    for own in by_series(runs).values():
        courses = [course(run) for run in own]
        last = [{key: values[-1] for key, values in each.items() if values} for each in courses]
        for key in last[0]:
            both = [(at.get(key), at.get(ACCURACY)) for at in last]
            known = [(a, b) for a, b in both if a is not None and b is not None]
            if known and key != ACCURACY:
                points.setdefault(key, []).append((fmean(a for a, _ in known), fmean(b for _, b in known)))
    tables = {key: np.asarray(pairs) for key, pairs in points.items() if len(pairs) >= LEAST_METHODS}
    return _correlations(tables, lambda table: spearman(*table.T.tolist()))


def _correlations(measured: Mapping[str, Floats], value: Callable[[Floats], float | None]) -> list[Correlation]:
    """The value of each measure over its units, with an interval where there are enough of them; the largest first."""
    found = []
    for key, units in measured.items():
        rho, low, high = value(units), None, None
        if rho is None:
            continue
        if len(units) >= LEAST_UNITS and len(samples := bootstrap(units, value)):
            tail = 100 * (1 - CONFIDENCE) / 2
            low, high = np.percentile(samples, [tail, 100 - tail]).tolist()
        found.append(Correlation(key, rho, low, high, len(units)))
    return sorted(found, key=lambda one: -abs(one.rho))


# ---- shown ----------------------------------------------------------------------------------------------------------


def label_free(runs: Sequence[Run]) -> dict[str, Any]:
    """All correlations as plain data: `within` runs, of `changes` there, and `between` the series of each group."""
    groups = comparable(runs)
    everyone = [run for group in groups for run in group]
    return {
        "within": [vars(one) for one in within(everyone)],
        "changes": [vars(one) for one in within(everyone, changes=True)],
        "between": [
            {"benchmark": group[0].benchmark, "methods": len(by_series(group)), "measures": [vars(o) for o in found]}
            for alike in groups
            for group in same_views(alike)
            if (found := between(group))
        ],
    }


def label_free_tables(found: Mapping[str, Any]) -> list[Table]:
    """The same as tables."""
    own = _table(found["within"], "runs", "Within a run: over its evaluations after the start, mean over runs.")
    steps = _table(found["changes"], "runs", "Within a run: changes from one evaluation to the next, mean over runs.")
    more = [
        _table(group["measures"], "methods", f"Between {group['methods']} methods on {group['benchmark']}, at the end.")
        for group in found["between"]
    ]
    return [table for table in (own, steps, *more) if table.rows]


def _table(found: Sequence[Mapping[str, Any]], units: str, title: str) -> Table:
    rows = []
    for facts in found:
        one = Correlation(**facts)
        label = MEASURES[one.measure].label if one.measure in MEASURES else one.measure.replace("_", " ")
        wanted = {"up": 1, "down": -1}.get(MEASURES[one.measure].better if one.measure in MEASURES else "", 0)
        clear = one.low is not None and one.high is not None and (one.low > 0 or one.high < 0)
        agrees = MISSING if not wanted else "as expected" if one.rho * wanted > 0 else "the wrong way"
        rows.append(Row([label, one.words, f"{one.units}", "yes" if clear else "no", agrees]))
    note = "Spearman's rank correlation with probe accuracy, 95 % bootstrap interval; clear: it leaves out 0."
    return Table(["measure", "correlation", units, "clear", "sign"], rows, (0, 1, 3, 4), title=title, caption=note)
