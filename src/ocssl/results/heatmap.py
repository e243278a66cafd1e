"""Heat maps and spectra: one panel for each series, means over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from ocssl.results.chart import COLOURS, STREAM, Chart, Trace, layout, legend, panelled, rounded, text
from ocssl.results.read import Run
from ocssl.results.records import Holding
from ocssl.results.series import by_series

MOST_COLUMNS, MOST_ROWS, LOSS_ROWS = 60, 100, 25
MOST_VALUES, LEAST_VALUE = 128, 1e-6  # of a spectrum
SCALE = "Viridis"

Column = tuple[float, Sequence[float]]  # a place in the stream, and numbers from bottom to top


def task_map(runs: Sequence[Run]) -> Chart | None:
    """Accuracy of each task's own probe at each evaluation."""
    return _map(
        "tasks",
        "Accuracy by task",
        "Each row is a task, each column an evaluation, brighter is better: a row that darkens to the right is a task "
        "that is being forgotten.",
        "task",
        "accuracy, %",
        runs,
        lambda run: [(e.share, e.tasks) for e in run.evaluations if e.share is not None and e.tasks],
        lambda n, size: (i * size + 1 for i in range(n)),
    )


def born_map(runs: Sequence[Run]) -> Chart | None:
    """Where in the stream the stored images come from."""
    return _map(
        "born",
        "Where stored images come from",
        "Each column is the memory at an evaluation, each row a part of the stream: a bright diagonal keeps what is "
        "new, bright rows keep what is old, an even colour below the diagonal keeps all alike.",
        "arrival, % of the stream",
        "share of the memory, %",
        runs,
        _shares_of(lambda held: held.born),
        lambda n, size: (100 * (i + 0.5) * size / (n * size) for i in range(n)),
    )


def class_map(runs: Sequence[Run]) -> Chart | None:
    """How many of each class are stored; labels only serve to count."""
    return _map(
        "classes",
        "Classes in the memory",
        "Each row is a class, in the order of the benchmark: an even column is a balanced memory.",
        "class",
        "share of the memory, %",
        runs,
        _shares_of(lambda held: held.classes),
        lambda n, size: (i * size for i in range(n)),
    )


def loss_map(runs: Sequence[Run]) -> Chart | None:
    """Histograms of stored losses through time, on one scale for each series."""
    panels: dict[str, list[Trace]] = {}
    for series, group in by_series(runs).items():
        held = [[h for h in run.holdings if h.loss and h.losses] for run in group if run.has_loss]
        if any(held):
            low, high = min(h.loss[0] for own in held for h in own), max(h.loss[-1] for own in held for h in own)
            step = (high - low) / LOSS_ROWS or 1.0
            columns = [[(h.share, _rebinned(h, low, step)) for h in own if h.share is not None] for own in held]
            rows = [low + (i + 0.5) * step for i in range(LOSS_ROWS)]
            if mean := _mean(columns):
                panels[legend(group[0])] = [_heat(series, mean, rows, "loss", "share of the memory, %")]
    return panelled(
        "losses",
        "Losses in the memory",
        "Each column is the histogram of stored losses at an evaluation.",
        panels,
        _axes("stored loss"),
    )


def _rebinned(held: Holding, low: float, step: float) -> list[float]:
    """A histogram on the rows of the chart, in per cent: counts are spread evenly over their part of the range."""
    width = (held.loss[-1] - held.loss[0]) / len(held.losses)
    rows = [0.0] * LOSS_ROWS
    for i, count in enumerate(held.losses):
        begin, end = ((held.loss[0] + k * width - low) / step for k in (i, i + 1))
        for row in range(max(0, int(begin)), min(LOSS_ROWS, int(end) + 1)):
            inside = (min(end, row + 1) - max(begin, row)) / (end - begin) if end > begin else float(int(begin) == row)
            rows[row] += 100 * count * max(0.0, inside) / (sum(held.losses) or 1)
    return rows


def _shares_of(counts: Callable[[Holding], tuple[float, ...]]) -> Callable[[Run], list[Column]]:
    """Counts of a memory as per cent of what is stored."""

    def columns(run: Run) -> list[Column]:
        held = [(h.share, counts(h)) for h in run.holdings]
        return [(x, [100 * n / (sum(own) or 1) for n in own]) for x, own in held if x is not None and own]

    return columns


def _map(
    key: str,
    title: str,
    words: str,
    axis: str,
    unit: str,
    runs: Sequence[Run],
    columns: Callable[[Run], list[Column]],
    rows: Callable[[int, int], Iterable[float]],
) -> Chart | None:
    panels: dict[str, list[Trace]] = {}
    for series, group in by_series(runs).items():
        mean = _mean([columns(run) for run in group])
        if mean:
            size = -(-len(mean[0][1]) // MOST_ROWS)  # neighbours in one row, where there are very many
            mean = [(x, [fmean(column[i : i + size]) for i in range(0, len(column), size)]) for x, column in mean]
            panels[legend(group[0])] = [
                _heat(series, mean, list(rows(len(mean[0][1]), size)), axis.split(",")[0], unit)
            ]
    made = panelled(key, title, words, panels, _axes(axis))
    if made:
        traces = made.figure["data"]
        top = max(v for trace in traces for row in trace["z"] for v in row if v is not None)
        bottom = min(v for trace in traces for row in trace["z"] for v in row if v is not None)
        for trace in traces:  # one scale for all panels, or they could not be compared
            trace |= {"zmin": min(bottom, top - 1) if key == "tasks" else 0, "zmax": top}
    return made


def _axes(y: str) -> dict[str, Any]:
    """Axes that end where the cells do."""
    axes = layout(STREAM, y)
    axes["xaxis"] |= {"range": None, "showgrid": False}
    axes["yaxis"]["showgrid"] = False
    return axes


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


def _heat(series: str, columns: Sequence[Column], rows: Sequence[float], what: str, unit: str) -> Trace:
    return {
        "type": "heatmap",
        "name": text(series),
        "x": rounded([x for x, _ in columns]),
        "y": rounded(rows),
        "z": [rounded([column[i] for _, column in columns]) for i in range(len(rows))],
        "colorscale": SCALE,
        "colorbar": {"title": {"text": unit, "side": "right"}, "thickness": 12, "outlinewidth": 0},
        "hovertemplate": what + " %{y:.4g} at %{x:.0f} % of the stream: %{z:.3g}<extra>%{fullData.name}</extra>",
    }


def spectrum_chart(runs: Sequence[Run]) -> Chart | None:
    """Singular values at the first, a middle and the last evaluation."""
    panels: dict[str, list[Trace]] = {}
    for group in by_series(runs).values():
        columns = [[(s.share, s.values) for s in run.spectra if s.share is not None] for run in group]
        mean = _mean(columns)
        chosen = list(dict.fromkeys([0, len(mean) // 2, len(mean) - 1])) if mean else []
        panels[legend(group[0])] = [
            _values(*mean[i], colour, dash)
            for i, colour, dash in zip(chosen, COLOURS, ("dot", "dash", "solid"), strict=False)
        ]
    axes: dict[str, Any] = layout("number of the direction", "singular value, the largest 1")
    axes["yaxis"] |= {"type": "log", "exponentformat": "power", "dtick": 1}
    return panelled(
        "spectrum",
        "Spectrum of features",
        "How much features vary along each direction, the strongest first: a steep fall uses few directions, and one "
        "that steepens from the first evaluation to the last is losing some.",
        panels,
        axes,
    )


def _values(share: float, values: Sequence[float], colour: str, dash: str) -> Trace:
    step = -(-len(values) // MOST_VALUES)
    kept = [(i + 1, v if v >= LEAST_VALUE else None) for i, v in enumerate(values) if i % step == 0]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"at {share:.0f} % of the stream",
        "x": [i for i, _ in kept],
        "y": rounded([v for _, v in kept]),
        "line": {"color": colour, "dash": dash, "width": 2},
        "showlegend": True,
        "hovertemplate": "direction %{x}: %{y:.2g}<extra>%{fullData.name}</extra>",
    }
