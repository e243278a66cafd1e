"""Tables of runs as plain cells: methods, comparisons, runs, evaluations; `markup` and `texts` write them down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ocssl._core.cells import mean_and_spread
from ocssl.results.bars import FILLS, phase_seconds
from ocssl.results.chart import Style, legend, styles
from ocssl.results.compare import Comparison, Difference, ranking
from ocssl.results.decay import together
from ocssl.results.read import ONLINE, Run
from ocssl.results.series import by_series, circumstances, comparable, known, spread_over
from ocssl.results.summary import DECAYS, decay_words, health, phases

NOTHING = "-"


@dataclass(frozen=True)
class Row:
    """Cells of one row; rows of a group stand together under its name."""

    cells: tuple[str, ...]
    group: str = ""
    style: Style | None = None  # of the series that it is about
    alarm: bool = False  # the last cell is bad news


@dataclass(frozen=True)
class Table:
    """A table with its caption; the columns in `text` are words, all others numbers."""

    key: str
    caption: str
    headers: tuple[str, ...]
    rows: tuple[Row, ...]
    text: tuple[int, ...]

    def groups(self) -> list[tuple[str, list[Row]]]:
        """Rows by group, online ones first, unless it is the only group, whose name says nothing then."""
        names = sorted(dict.fromkeys(row.group for row in self.rows), key=lambda name: name != ONLINE)
        hidden = names in ([ONLINE], [""])
        return [("" if hidden else name, [row for row in self.rows if row.group == name]) for name in names]


def methods(runs: Sequence[Run]) -> Table:
    """One row a series: means and standard deviations over seeds, best first; finished runs only."""
    look, rows = styles(runs), []
    for group in comparable(runs):
        series = by_series(group)
        for name in ranking(series):
            own = series[name]
            accuracies = (mean_and_spread(known(own, "final")), mean_and_spread(known(own, "average")))
            cells = (name, str(len(own)), *accuracies, decay_words(own))
            rows.append(Row(cells, own[0].regime, look[name], cells[-1].startswith(DECAYS)))
    headers = ("method", "seeds", "final, %", "average, %", "latent space")
    caption = "Mean ± standard deviation over seeds, finished runs only, best average first."
    return Table("methods", caption, headers, tuple(rows), text=(0, 4))


def comparison(comparisons: Sequence[Comparison], runs: Sequence[Run]) -> Table:
    """Every series against the reference of its group."""
    groups = comparable(runs)
    look, firsts = styles(runs), [group[0] for group in groups]
    of = {id(run): group[0] for group in groups for run in group}
    rows = [
        Row(
            (
                c.series,
                c.reference,
                str(max(d.pairs if d else 0 for d in (c.final, c.average))),
                *_told(c.final),
                *_told(c.average),
            ),
            f"{c.run.benchmark}, {circumstances(of[id(c.run)], firsts)}" if len(groups) > 1 else "",
            look[c.series],
        )
        for c in comparisons
    ]
    headers = ("method", "against", "pairs", "final, points", "final is", "average, points", "average is")
    caption = (
        "Mean of the differences between runs with the same seed, so the same stream in the same order, with a 95 % "
        "confidence interval by Student's t; each is for itself, so of many intervals some miss by chance."
    )
    return Table("comparison", caption, headers, tuple(rows), text=(0, 1, 4, 6))


def _told(found: Difference | None) -> tuple[str, str]:
    if found is None:
        return NOTHING, "no shared seed"
    if found.half is None:
        return f"{found.mean:+.2f}", found.lack
    return f"{found.mean:+.2f} [{found.mean - found.half:+.2f}, {found.mean + found.half:+.2f}]", found.verdict


def each_run(runs: Sequence[Run]) -> Table:
    """One row a run: what it reached, what it took, and whether it is well."""
    look = styles(runs)
    rows = [
        Row(
            (
                run.name,
                run.benchmark,
                NOTHING if run.seed is None else str(run.seed),
                *map(_show, (run.start, run.final, run.average)),
                _show(run.steps, ".0f"),
                _show(run.seconds),
                health(run),
            ),
            run.regime,
            look[run.series],
            run.collapsed,
        )
        for run in runs
    ]
    headers = ("method", "benchmark", "seed", "start, %", "final, %", "average, %", "steps", "seconds", "health")
    caption = "Average: mean accuracy over all evaluations but the start's. Unfinished runs: numbers so far."
    return Table("runs", caption, headers, tuple(rows), text=(0, 1, 8))


def evaluations(runs: Sequence[Run]) -> Table:
    """Every evaluation, for readers who cannot use a chart."""
    rows = [
        Row(
            (
                run.label,
                str(e.experience),
                _show(e.seen, ".0f"),
                _show(e.accuracy),
                _show(e.deviation, ".3f"),
                _show(e.overlap, ".1%"),
                _show(e.online_overlap, ".1%"),
            ),
            run.regime,
        )
        for run in runs
        for e in run.evaluations
    ]
    headers = ("run", "experience", "images seen", "accuracy, %", "Deviation", "Overlap", "Overlap in the memory")
    return Table("evaluations", "Experience 0 is the untrained encoder.", headers, tuple(rows), text=(0,))


def tasks(runs: Sequence[Run]) -> Table:
    """The accuracy of each task at the last evaluation and its best before."""
    rows = []
    for group in by_series(runs).values():
        last = [run.evaluations[-1].tasks for run in group if run.evaluations]
        for task in range(max(map(len, last), default=0)):
            ends = [own[task] for own in last if task < len(own)]
            seen = [[e.tasks[task] for e in run.evaluations if task < len(e.tasks)] for run in group]
            top = fmean(max(own) for own in seen if own)
            rows.append(Row((legend(group[0]), str(task + 1), f"{fmean(ends):.1f}", f"{top:.1f}")))
    headers = ("method", "task", "last, %", "highest, %")
    return Table("task-accuracy", "Means over seeds.", headers, tuple(rows), text=(0,))


def held(runs: Sequence[Run]) -> Table:
    """What memories held at each evaluation, in few numbers."""
    rows = [
        Row(
            (
                run.label,
                _show(h.share, ".0f"),
                f"{h.stored:.0f}",
                _show(h.age[2] if h.age else None, ".0f"),
                _show(h.age[4] if h.age else None, ".0f"),
                _show(h.loss[2] if h.loss else None, ".3f"),
                str(sum(n > 0 for n in h.classes)) if h.classes else NOTHING,
            )
        )
        for run in runs
        for h in run.holdings
    ]
    headers = ("run", "stream, %", "stored", "median age", "highest age", "median loss", "classes")
    return Table("held", "Ages are counted in stream images.", headers, tuple(rows), text=(0,))


def compute(runs: Sequence[Run]) -> Table:
    """Seconds by phase."""
    found = {legend(group[0]): phase_seconds(group) for group in by_series(runs).values()}
    rows = tuple(Row((name, *(f"{seconds[p]:.1f}" for p in FILLS))) for name, seconds in found.items() if seconds)
    return Table("seconds", "Means over seeds, in seconds.", ("method", *FILLS), rows, text=(0,))


def _show(value: float | None, form: str = ".1f") -> str:
    return NOTHING if value is None else format(value, form)


def _exact(value: float | None) -> str:
    """A number for programs: whole ones with all their digits."""
    return _show(value, ".0f" if value is not None and float(value).is_integer() else ".6g")


def numbers_of_methods(runs: Sequence[Run]) -> Table:
    """The table of methods for programs: one number a cell."""
    rows = []
    for own in (own for group in comparable(runs) for own in by_series(group).values()):
        final, average = known(own, "final"), known(own, "average")
        decay = together(phases(own))
        cells = (_mean(final), spread_over(final), _mean(average), spread_over(average), decay.start if decay else None)
        told = (_exact(value) for value in cells)
        rows.append(Row((own[0].series, own[0].benchmark, str(len(own)), *told), own[0].regime))
    measured = ("final_mean", "final_sd", "average_mean", "average_sd", "decay_start_percent")
    return Table("methods", "", ("method", "benchmark", "seeds", *measured), tuple(rows), text=(0, 1))


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def numbers_of_comparison(comparisons: Sequence[Comparison]) -> Table:
    """The comparison for programs: one number a cell."""
    rows = []
    for c in comparisons:
        for measure, found in (("final", c.final), ("average", c.average)):
            half = found.half if found else None
            ends = (found.mean - half, found.mean + half) if found and half is not None else (None, None)
            cells = [_exact(value) for value in (found.mean if found else None, *ends)]
            verdict = found.verdict if found else NOTHING
            rows.append(
                Row((c.series, c.reference, measure, str(found.pairs if found else 0), *cells, verdict), c.run.regime)
            )
    headers = ("method", "against", "measure", "pairs", "difference", "low", "high", "verdict")
    return Table("comparison", "", headers, tuple(rows), text=(0, 1, 2, 7))


def numbers_of_evaluations(runs: Sequence[Run]) -> Table:
    """Every evaluation for programs: one number a cell."""
    rows = []
    for run in runs:
        for e in run.evaluations:
            cells = (run.seed, e.experience, e.seen, e.accuracy, e.deviation, e.overlap, e.online_overlap)
            rows.append(Row((run.name, run.benchmark, *(_exact(value) for value in cells))))
    measured = ("experience", "seen", "accuracy", "deviation", "overlap", "online_overlap")
    return Table("evaluations", "", ("method", "benchmark", "seed", *measured), tuple(rows), text=(0, 1))


def for_export(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> list[tuple[Table, Table]]:
    """The tables that are written to files: as readers see them, and as programs do."""
    return [
        (methods(runs), numbers_of_methods(runs)),
        (comparison(comparisons, runs), numbers_of_comparison(comparisons)),
        (each_run(runs), each_run(runs)),
        (evaluations(runs), numbers_of_evaluations(runs)),
    ]
