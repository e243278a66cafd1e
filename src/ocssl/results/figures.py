"""All charts of a report, part by part: curves, heat maps, spectra and bars; the same runs give the same figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ocssl._core.measures import MEASURES, Measure
from ocssl.results.chart import (
    STREAM,
    Bars,
    Chart,
    Columns,
    HeatMap,
    Intervals,
    Level,
    Line,
    Mark,
    Numbers,
    Panel,
    age_chart,
    chart,
    evaluation_chart,
    legend,
    step_chart,
)
from ocssl.results.compare import LEAST_PAIRS, Comparison, Difference, without_extra_seeds
from ocssl.results.palette import QUANTITIES, Style, styles
from ocssl.results.read_runs import MemorySummary, Run
from ocssl.results.run_groups import by_series
from ocssl.results.summary import decays

MOST_COLUMNS, MOST_ROWS, LOSS_ROWS = 60, 100, 25  # of a heat map
MOST_VALUES, LEAST_VALUE = 128, 1e-6  # of a spectrum
STORED = "share of the memory, %"
OTHER = "other"
PHASES = ("data", "views", "forward", "backward", "memory", "terms", "evaluate", "save", OTHER)
PARTS = {  # as they are recorded; all others have one
    "backward": ("backward", "optimizer"),
    "memory": ("draw", "refresh", "insert"),
    "evaluate": ("probe",),  # and what is measured without labels
}
FILLS = dict(zip(PHASES, QUANTITIES, strict=True))
PATTERNS = dict(zip(FILLS, ("", "", "/", "", "\\", "x", ".", "-", "|"), strict=True))

Column = tuple[float, Sequence[float]]  # a place in the stream, and numbers from bottom to top


def all_charts(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> dict[str, list[Chart]]:
    """The charts of each part of the page, without those for which no run has the numbers."""
    phases = decays(runs)

    def evaluated(section: str, runs: Sequence[Run] = runs) -> list[Chart | None]:
        levels, says = {"accuracy": accuracy_levels(runs)}, {"overlap": _centred(runs)}
        measures = MEASURES.charted("evaluation", section)
        return [
            evaluation_chart(measure, runs, phases, levels.get(measure.key, ()), says.get(measure.key, ()))
            for measure in measures
        ]

    made: dict[str, list[Chart | None]] = {
        "comparison": [forest_chart(comparisons, runs)],
        "accuracy": evaluated("accuracy", without_extra_seeds(runs)),
        "tasks": [heat_map(replace(TASKS, caption=TASKS.caption + _task_chance(runs)), runs)],
        "latent": evaluated("latent"),
        "spectrum": [spectrum_chart(runs)],
        "loss": _losses(runs),
        "health": [step_chart(measure, runs) for measure in MEASURES.charted("step", "health")],
        "memory": [heat_map(BORN, runs), age_chart(runs), heat_map(CLASSES, runs), loss_map(runs)],
        "compute": [compute_chart(runs)],
    }
    return {part: [chart for chart in charts if chart] for part, charts in made.items()}


def _centred(runs: Sequence[Run]) -> list[str]:
    """A warning where methods push apart other features than those whose Overlap is drawn."""
    names = dict.fromkeys(run.series for run in runs if run.settings.get("memory.center", "none") != "none")
    if not names:
        return []
    who = " and ".join(names)
    return [f"{who}: trained on features less their running mean, but measured here without that. Compare the course."]


def _losses(runs: Sequence[Run]) -> list[Chart | None]:
    """The loss of each objective, and of each term with those of its signals that have no chart."""
    charts, ssl = [], MEASURES["ssl"]
    for i, objective in enumerate(dict.fromkeys(run.objective for run in runs if run.has_loss), 1):
        named = replace(ssl, chart=f"ssl-{i}", title=f"{ssl.title}: {objective}")
        charts.append(step_chart(named, runs, _own_loss(objective)))
    for i, term in enumerate(dict.fromkeys(name.partition(".")[0] for run in runs for name in run.terms), 1):
        columns = _of_term(term)
        caption = "Before its weight; comparable between runs with the same term."
        if any(signal for run in runs for signal in columns(run)):
            caption += " Thin lines with marks: its parts, or what else it shows."
        title = f"Loss of the term {term}"
        named = Measure(term, "", axis="loss of the term", chart=f"term-{i}", title=title, caption=caption)
        charts.append(step_chart(named, runs, columns))
    return charts


def _own_loss(objective: str) -> Columns:
    return lambda run: {"": run.trace["ssl"]} if run.has_loss and run.objective == objective else {}


def _of_term(term: str) -> Columns:
    charted = {measure.key for measure in MEASURES.of("step") if measure.caption}

    def columns(run: Run) -> dict[str, Numbers]:
        names = [name for name in run.terms if name.partition(".")[0] == term and name not in charted]
        return {name.partition(".")[2]: run.terms[name] for name in names}

    return columns


def accuracy_levels(runs: Sequence[Run]) -> list[Level]:
    """What accuracies are read against: chance, and the untrained encoder; each where the runs agree on it."""
    levels = []
    counts = {len(memory.classes) for run in runs for memory in run.memories if memory.classes}
    if len(counts) == 1:
        chance = 100 / counts.pop()
        levels.append(Level(chance, f"chance {chance:.3g} %"))
    starts = [run.start for run in runs if run.start is not None]
    if starts and len({run.benchmark for run in runs}) == 1:
        levels.append(Level(fmean(starts), f"untrained {fmean(starts):.1f} %"))
    return levels


def _task_chance(runs: Sequence[Run]) -> str:
    """Chance among the classes of one task, where the runs agree on it and all tasks have as many."""
    counts = {
        (len(memory.classes), len(run.evaluations[-1].tasks))
        for run in runs
        for memory in run.memories[-1:]
        if memory.classes and run.evaluations and run.evaluations[-1].tasks
    }
    classes, tasks = counts.pop() if len(counts) == 1 else (1, 1)
    return f" Chance is {100 * tasks / classes:.3g} %." if tasks < classes and classes % tasks == 0 else ""


def forest_chart(comparisons: Sequence[Comparison], runs: Sequence[Run]) -> Chart | None:
    """Mean differences to the reference, with their intervals where there are any, one row a series."""
    look, alike = styles(runs), len({c.reference for c in comparisons}) == 1
    rows = [c.series if alike else f"{c.series} against {c.reference}" for c in comparisons]
    looks = [look[c.series] for c in comparisons]
    items = [
        Intervals("average", _marks([c.average for c in comparisons], looks)),
        Intervals("final", _marks([c.final for c in comparisons], looks), filled=False),
    ]
    there = any(mark.half is not None for item in items for mark in item.marks)
    against = f" against {comparisons[0].reference}" if alike else ""
    words = f"Right of zero the method is better{against or ' than what it is compared with'}, left of it worse. "
    words += "Filled marks: average accuracy, hollow ones: final accuracy. "
    words += (
        "Bars are 95 % confidence intervals; one that holds zero does not tell the two apart."
        if there
        else "There are no intervals: too few seeds."
    )
    return chart(
        "forest",
        f"Differences in accuracy{against}",
        words,
        [Panel("difference in accuracy, points", "", [item for item in items if item.marks], rows=rows)],
    )


def _marks(found: Sequence[Difference | None], looks: Sequence[Style]) -> list[Mark]:
    return [
        Mark(d.mean, row, d.half if d.pairs >= LEAST_PAIRS else None, look, f"{d.mean:+.2f}, {d.lack or d.verdict}")
        for row, (d, look) in enumerate(zip(found, looks, strict=True))
        if d is not None
    ]


def compute_chart(runs: Sequence[Run]) -> Chart | None:
    """Seconds by phase, stacked, means over seeds."""
    found = phase_seconds(runs)
    bars = [
        Bars(phase, [seconds[phase] for seconds in found.values()], colour, PATTERNS[phase])
        for phase, colour in FILLS.items()
        if any(seconds[phase] for seconds in found.values())
    ]
    words = "Seconds of the program by phase, means over seeds; machines and their load differ."
    return chart("compute", "Compute by phase", words, [Panel("seconds", "", bars, rows=list(found))])


def phase_seconds(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Seconds of each phase by series, means over the runs that recorded any; what has no place here is `other`."""
    phase_of = {part: phase for phase in PHASES for part in PARTS.get(phase, (phase,))}
    found = {}
    for group in by_series(runs).values():
        recorded = [run.phases for run in group if sum(run.phases.values()) > 0]
        spent = dict.fromkeys(PHASES, 0.0)
        for part, seconds in (item for phases in recorded for item in phases.items()):
            spent[phase_of.get(part, OTHER)] += seconds / len(recorded)
        if recorded:
            found[legend(group[0])] = spent
    return found


@dataclass(frozen=True)
class MapSpec:
    """A heat map over the stream: one panel for each series, means over its seeds."""

    key: str
    title: str
    caption: str
    axis: str
    unit: str
    columns: Callable[[Run], list[Column]]
    rows: Callable[[int, int], Iterable[float]]  # places of n rows, each of `size` neighbours
    from_zero: bool = True  # the scale of colours


def _shares_of(counts: Callable[[MemorySummary], tuple[float, ...]]) -> Callable[[Run], list[Column]]:
    """Counts of a memory as per cent of what is stored."""

    def columns(run: Run) -> list[Column]:
        held = [(memory.share, counts(memory)) for memory in run.memories]
        return [(x, [100 * n / (sum(own) or 1) for n in own]) for x, own in held if x is not None and own]

    return columns


TASKS = MapSpec(
    "tasks",
    "Accuracy by task",
    "Each row is a task, each column an evaluation, brighter is better: a row that darkens to the right is a task "
    "that is being forgotten. Each task is scored by a probe of its own, among its own classes only, so these numbers "
    "are higher than the accuracy over all classes.",
    "task",
    "accuracy, %",
    lambda run: [(e.share, e.tasks) for e in run.evaluations if e.share is not None and e.tasks],
    lambda n, size: (i * size + 1 for i in range(n)),
    from_zero=False,
)
BORN = MapSpec(
    "born",
    "Where stored images come from",
    "Each column is the memory at an evaluation, each row a part of the stream: a bright diagonal keeps what is "
    "new, bright rows keep what is old, an even colour below the diagonal keeps all alike.",
    "arrival, % of the stream",
    STORED,
    _shares_of(lambda memory: memory.born),
    lambda n, size: (100 * (i + 0.5) * size / (n * size) for i in range(n)),
)
CLASSES = MapSpec(
    "classes",
    "Classes in the memory",
    "Each row is a class, in the order of the benchmark: an even column is a balanced memory.",
    "class",
    STORED,
    _shares_of(lambda memory: memory.classes),
    lambda n, size: (i * size for i in range(n)),
)


def heat_map(spec: MapSpec, runs: Sequence[Run]) -> Chart | None:
    """The chart of a heat map, on one scale for all panels."""
    maps: dict[str, HeatMap] = {}
    for series, group in by_series(runs).items():
        mean = _mean([spec.columns(run) for run in group])
        if mean:
            size = -(-len(mean[0][1]) // MOST_ROWS)  # neighbours in one row, where there are very many
            mean = [(x, [fmean(column[i : i + size]) for i in range(0, len(column), size)]) for x, column in mean]
            places = list(spec.rows(len(mean[0][1]), size))
            maps[legend(group[0])] = _cells(series, mean, places, spec.axis.split(",")[0], spec.unit)
    known = [v for cells in maps.values() for row in cells.values for v in row if v is not None]
    top, bottom = max(known, default=0.0), min(known, default=0.0)
    low = 0 if spec.from_zero else min(bottom, top - 1)
    look = styles(runs)
    panels = [
        Panel(STREAM, spec.axis, [replace(cells, low=low, high=top)], name, style=look[cells.name])
        for name, cells in maps.items()
    ]
    return chart(spec.key, spec.title, spec.caption, panels)


def loss_map(runs: Sequence[Run]) -> Chart | None:
    """Histograms of stored losses through time, on one scale for all series with the same objective."""
    panels, look = [], styles(runs)
    ends: dict[str, list[float]] = {}
    for run in runs:
        if run.has_loss:
            found = (end for m in run.memories if m.loss and m.losses for end in (m.loss[0], m.loss[-1]))
            ends.setdefault(run.objective, []).extend(found)
    for series, group in by_series(runs).items():
        held = [[m for m in run.memories if m.loss and m.losses] for run in group if run.has_loss]
        if any(held):
            low, high = min(ends[group[0].objective]), max(ends[group[0].objective])
            step = (high - low) / LOSS_ROWS or 1.0
            columns = [[(m.share, _rebinned(m, low, step)) for m in own if m.share is not None] for own in held]
            rows = [low + (i + 0.5) * step for i in range(LOSS_ROWS)]
            if mean := _mean(columns):
                cells = _cells(series, mean, rows, "loss", STORED)
                panels.append(Panel(STREAM, "stored loss", [cells], legend(group[0]), style=look[series]))
    words = (
        "Each column is the histogram of stored losses at an evaluation. A band that moves down: the encoder learns "
        "what is stored; one that stays high: the memory keeps what is hard. Panels of one objective share the scale."
    )
    return chart("losses", "Losses in the memory", words, panels)


def _rebinned(memory: MemorySummary, low: float, step: float) -> list[float]:
    """A histogram on the rows of the chart, in per cent: counts are spread evenly over their part of the range."""
    width = (memory.loss[-1] - memory.loss[0]) / len(memory.losses)
    rows = [0.0] * LOSS_ROWS
    for i, count in enumerate(memory.losses):
        begin, end = ((memory.loss[0] + k * width - low) / step for k in (i, i + 1))
        for row in range(max(0, int(begin)), min(LOSS_ROWS, int(end) + 1)):
            inside = (min(end, row + 1) - max(begin, row)) / (end - begin) if end > begin else float(int(begin) == row)
            rows[row] += 100 * count * max(0.0, inside) / (sum(memory.losses) or 1)
    return rows


def _mean(curves: Sequence[Sequence[Column]]) -> list[Column]:
    """Columns of seeds as one: the mean of those that have as many rows as the longest."""
    found: dict[float, list[Sequence[float]]] = {}
    for curve in curves:
        for x, column in curve:
            found.setdefault(round(x, 2), []).append(column)
    places = sorted(found)
    if len(places) > MOST_COLUMNS:
        places = [places[round(i * (len(places) - 1) / (MOST_COLUMNS - 1))] for i in range(MOST_COLUMNS)]
    most = max((len(column) for x in places for column in found[x]), default=0)
    fit = {x: [column for column in found[x] if len(column) == most] for x in places}
    return [(x, [fmean(row) for row in zip(*own, strict=True)]) for x, own in fit.items() if own]


def _cells(series: str, columns: Sequence[Column], rows: Sequence[float], what: str, unit: str) -> HeatMap:
    values = [[column[i] for _, column in columns] for i in range(len(rows))]
    return HeatMap(series, [x for x, _ in columns], rows, values, unit, what)


def spectrum_chart(runs: Sequence[Run]) -> Chart | None:
    """Singular values at the first, a middle and the last evaluation."""
    panels, look = [], styles(runs)
    for series, group in by_series(runs).items():
        mean = _mean([[(s.share, s.values) for s in run.spectra if s.share is not None] for run in group])
        chosen = list(dict.fromkeys([0, len(mean) // 2, len(mean) - 1])) if mean else []
        looks = zip(chosen, ("dot", "dash", "solid"), (0.5, 0.75, 1.0), strict=False)
        lines = [_values(*mean[i], replace(look[series], dash=dash, opacity=clear)) for i, dash, clear in looks]
        axes = ("number of the direction", "singular value, the largest 1")
        panels.append(Panel(*axes, lines, legend(group[0]), log=True, style=look[series]))
    return chart(
        "spectrum",
        "Spectrum of features",
        "How much features vary along each direction, the strongest first: a steep fall uses few directions, and one "
        "that steepens from the first evaluation to the last is losing some. Lines: after shares of the stream.",
        panels,
    )


def _values(share: float, values: Sequence[float], style: Style) -> Line:
    step = -(-len(values) // MOST_VALUES)
    kept = [(i + 1, v if v >= LEAST_VALUE else None) for i, v in enumerate(values) if i % step == 0]
    places, numbers = zip(*kept, strict=True)
    return Line(f"after {share:.0f} %", places, numbers, style=style, form=".2g")
