"""Tables of the report: methods, comparisons, runs, evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ocssl._core.measures import MEASURES
from ocssl._core.table import MISSING, Row, Table, mean_and_deviation, mean_cell, number_cell
from ocssl.results.chart import ends_of, legend
from ocssl.results.compare import LEAST_PAIRS, Comparison, Difference, standing
from ocssl.results.figures import FILLS, phase_seconds
from ocssl.results.latent_decay import median_phase
from ocssl.results.read_runs import ONLINE, Run
from ocssl.results.run_groups import ACCURACIES, by_series, circumstances, comparable, known
from ocssl.results.summary import DECAYS, counted, decay_words, health, phases


def methods(runs: Sequence[Run]) -> Table:
    """One row a series: means and standard deviations over seeds, best first; finished runs only.

    Where some series lack seeds, all numbers are over those that all have, as in the sentence above the table.
    """
    groups = comparable(runs)
    rows, standings, firsts = [], [standing(group) for group in groups], [group[0] for group in groups]
    uneven = any(now.uneven for now in standings)
    for now, first in zip(standings, firsts, strict=True):
        place = f"{first.benchmark}, {circumstances(first, firsts)}" if len(groups) > 1 else first.regime
        for name in now.ranked:
            own, compared = now.series[name], now.compared[name]
            seeds = str(len(own)) if len(compared) == len(own) else f"{len(compared)} of {len(own)}"
            accuracies = [mean_cell(known(compared, key)) for key in ACCURACIES]
            cells = (name, seeds, *accuracies, decay_words(own))
            rows.append(Row(cells, place, name, cells[-1].startswith(DECAYS)))
    headers = ["method", "seeds", "final, %", "average, %", "latent space"]
    caption = "Mean ± standard deviation over seeds, finished runs only, best average first"
    caption += "; accuracies are over the seeds that all methods have." if uneven else "."
    return Table(headers, rows, (0, len(headers) - 1), caption=caption, key="methods", first=ONLINE)


def health_table(runs: Sequence[Run]) -> Table:
    """One row a series: how its latent space and its features went from the beginning to the end."""
    rows = []
    for name, group in by_series(runs).items():
        measured = (_change([[e[key] for e in run.evaluations] for run in group], form) for key, form in LATENT)
        traced = (_change([run.trace[key] for run in group], form) for key, form in TRACED)
        seen = mean_and_deviation(run.evaluations[-1].seen for run in group if run.evaluations)[0]
        ill = sum(run.collapsed for run in group)
        words = "ok" if not ill else "collapsed" if len(group) == 1 else f"{ill} of {len(group)} collapsed"
        rows.append(Row((name, number_cell(seen, form=",.0f"), *measured, *traced, words), "", name, bool(ill)))
    headers = ("method", "images seen", "Deviation", "Overlap", "spread", "participation ratio", "SSL loss", "collapse")
    caption = (
        "From the first value to the last, means over seeds; Deviation and Overlap begin with the untrained encoder. "
        "Of values of every step, means of the first and last 5 %."
    )
    return Table(headers, rows, (0, 2, 3, 4, 5, 6, 7), caption=caption, key="health-table")


LATENT, TRACED = (
    [(key, MEASURES[key].format) for key in keys]
    for keys in (("deviation", "overlap"), ("spread", "participation_ratio", "ssl"))
)


def _change(curves: Sequence[Sequence[float | None]], form: str) -> str:
    """The first and the last value, means over seeds; of long curves, means of their ends."""
    found = ends_of(curves)
    return f"{found[0]:{form}} → {found[1]:{form}}" if found else MISSING


def skipped(runs: Sequence[Run]) -> Table:
    """Images and files that runs did not use, by reason, with some names of each."""
    rows = []
    for run in runs:
        reasons: dict[tuple[bool, str], list[str]] = {}
        for file in run.skipped:
            reasons.setdefault((not file.image, file.reason), []).append(file.name)
        for (other, reason), names in sorted(reasons.items(), key=lambda item: (item[0][0], -len(item[1]))):
            shown = ", ".join(names[:MOST_SKIPPED]) + ", …" * (len(names) > MOST_SKIPPED)
            what = counted(len(names), "other file" if other else "image")
            rows.append(Row((run.label, what, reason, shown), "", run.series))
    headers = ("run", "skipped", "why", "which")
    caption = "Files that a run did not use; its folder lists all of them in skipped.tsv."
    return Table(headers, rows, (0, 1, 2, 3), caption=caption, key="skipped")


MOST_SKIPPED = 12  # names of one reason


def comparison(comparisons: Sequence[Comparison], runs: Sequence[Run]) -> Table:
    """Every series against the reference of its group."""
    groups = comparable(runs)
    firsts = [group[0] for group in groups]
    of = {id(run): group[0] for group in groups for run in group}
    rows = []
    for c in comparisons:
        pairs = max(d.pairs if d else 0 for d in (c.final, c.average))
        cells = (c.series, c.reference, str(pairs), *interval_words(c.final), *interval_words(c.average))
        group = f"{c.run.benchmark}, {circumstances(of[id(c.run)], firsts)}" if len(groups) > 1 else ""
        rows.append(Row(cells, group, c.series))
    headers = ("method", "against", "pairs", "final, points", "final is", "average, points", "average is")
    caption = "Mean of the differences between runs with the same seed, so the same stream in the same order"
    intervals = sum(bool(d and _shown(d)) for c in comparisons for d in (c.final, c.average))
    if intervals:
        caption += ", with a 95 % confidence interval by Student's t"
        if intervals > 1:
            caption += f". These {intervals} intervals are not corrected for their number: of 20, one misses by chance"
    return Table(headers, rows, (0, 1, 4, 6), caption=f"{caption}.", key="comparison")


def interval_words(found: Difference | None) -> tuple[str, str]:
    """A difference with its interval, and its verdict."""
    if found is None:
        return MISSING, "no shared seed"
    if not _shown(found):
        return f"{found.mean:+.2f}", found.lack or found.verdict
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]", found.verdict


def _shown(found: Difference) -> bool:
    """Whether the interval is shown: one of two pairs is so wide that it says nothing."""
    return found.half is not None and found.pairs >= LEAST_PAIRS


def comparison_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The comparison for programs, as numbers: one entry a method and measure."""
    found = []
    for c in comparisons:
        for measure, d in zip(ACCURACIES, (c.final, c.average), strict=True):
            entry = {"method": c.series, "against": c.reference, "benchmark": c.run.benchmark, "measure": measure}
            mean, low, high = (d.mean, d.low, d.high) if d else (None, None, None)
            numbers = {"pairs": d.pairs if d else 0, "difference": mean, "low": low, "high": high}
            found.append({**entry, **numbers, "verdict": (d.lack or d.verdict) if d else "no shared seed"})
    return found


def each_run(runs: Sequence[Run]) -> Table:
    """One row a run: what it reached, what it took, and whether it is well; without labels no accuracies."""
    rows = []
    without = not any(run.labelled for run in runs)
    for run in runs:
        seed = MISSING if run.seed is None else str(run.seed)
        accuracies = () if without else map(number_cell, (run.start, run.final, run.average))
        spent = (number_cell(run.steps, form=".0f"), number_cell(run.seconds))
        cells = (run.name, run.benchmark, seed, *accuracies, *spent, health(run))
        rows.append(Row(cells, run.regime, run.series, run.collapsed))
    measured = () if without else ("start, %", "final, %", "average, %")
    headers = ("method", "benchmark", "seed", *measured, "steps", "seconds", "health")
    caption = "What each run took." if without else "Average: mean accuracy over all evaluations but the start's."
    caption += "" if all(run.finished for run in runs) else " Unfinished runs: numbers so far."
    return Table(headers, rows, (0, 1, len(headers) - 1), caption=caption, key="runs", first=ONLINE)


def evaluations(runs: Sequence[Run]) -> Table:
    """Every evaluation, for readers who cannot use a chart."""
    measures = [m for m in MEASURES.of("evaluation") if any(e[m.key] is not None for r in runs for e in r.evaluations)]
    rows = []
    for run in runs:
        for e in run.evaluations:
            numbers = (number_cell(e[measure.key], form=measure.format) for measure in measures)
            cells = (run.label, str(e.experience), number_cell(e.seen, form=".0f"), *numbers)
            rows.append(Row(cells, run.regime))
    headers = ("run", "experience", "images seen", *(measure.heading for measure in measures))
    return Table(headers, rows, caption="Experience 0 is the untrained encoder.", key="evaluations", first=ONLINE)


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
    return Table(headers, rows, caption="Means over seeds.", key="task-accuracy")


def memories(runs: Sequence[Run]) -> Table:
    """What memories held at each evaluation, in few numbers."""
    rows = []
    for run in runs:
        for m in run.memories:
            ages = (number_cell(m.age[quantile] if m.age else None, form=".0f") for quantile in (2, 4))
            loss = number_cell(m.loss[2] if m.loss else None, form=".3f")
            classes = str(sum(n > 0 for n in m.classes)) if m.classes else MISSING
            rows.append(Row((run.label, number_cell(m.share, form=".0f"), f"{m.stored:.0f}", *ages, loss, classes)))
    headers = ("run", "stream, %", "stored", "median age", "highest age", "median loss", "classes")
    return Table(headers, rows, caption="Ages are counted in stream images.", key="held")


def compute(runs: Sequence[Run]) -> Table:
    """Seconds by phase."""
    rows = [Row((name, *(f"{seconds[p]:.1f}" for p in FILLS))) for name, seconds in phase_seconds(runs).items()]
    return Table(("method", *FILLS), rows, caption="Means over seeds, in seconds.", key="seconds")


def _exact(value: float | None) -> str:
    """A number for programs: whole ones with all their digits."""
    return number_cell(value, form=".0f" if value is not None and float(value).is_integer() else ".6g")


def numbers_of_methods(runs: Sequence[Run]) -> Table:
    """The table of methods for programs: one number a cell."""
    rows = []
    for now, name in ((group, name) for group in map(standing, comparable(runs)) for name in group.ranked):
        own, compared = now.series[name], now.compared[name]
        decay = median_phase(phases(own))
        accuracies = (number for key in ACCURACIES for number in mean_and_deviation(known(compared, key)))
        numbers = map(_exact, (*accuracies, decay.start if decay else None))
        rows.append(Row((name, own[0].benchmark, str(len(compared)), *numbers), own[0].regime))
    measured = ("final_mean", "final_sd", "average_mean", "average_sd", "decay_start_percent")
    return Table(("method", "benchmark", "seeds", *measured), rows, (0, 1), key="methods")


def numbers_of_comparison(comparisons: Sequence[Comparison]) -> Table:
    """The comparison for programs: one number a cell."""
    rows = []
    for c in comparisons:
        for accuracy, found in zip(ACCURACIES, (c.final, c.average), strict=True):
            numbers = map(_exact, (found.mean, found.low, found.high) if found else (None, None, None))
            pairs, verdict = (str(found.pairs), found.verdict) if found else ("0", MISSING)
            rows.append(Row((c.series, c.reference, accuracy, pairs, *numbers, verdict), c.run.regime))
    headers = ("method", "against", "measure", "pairs", "difference", "low", "high", "verdict")
    return Table(headers, rows, (0, 1, 2, 7), key="comparison")


def numbers_of_evaluations(runs: Sequence[Run]) -> Table:
    """Every evaluation for programs: one number a cell."""
    keys = [measure.key for measure in MEASURES.of("evaluation")]
    rows = []
    for run in runs:
        for e in run.evaluations:
            numbers = map(_exact, (run.seed, e.experience, e.seen, *(e[key] for key in keys)))
            rows.append(Row((run.name, run.benchmark, *numbers)))
    return Table(("method", "benchmark", "seed", "experience", "seen", *keys), rows, (0, 1), key="evaluations")


def for_export(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> list[tuple[Table, Table]]:
    """The tables that are written to files: as readers see them, and as programs do."""
    return [
        (methods(runs), numbers_of_methods(runs)),
        (comparison(comparisons, runs), numbers_of_comparison(comparisons)),
        (each_run(runs), each_run(runs)),
        (evaluations(runs), numbers_of_evaluations(runs)),
    ]
