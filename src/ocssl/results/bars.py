"""Charts that list series one below the other: differences with intervals, and seconds by phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from ocssl.results.chart import COLOURS, FAINT, Chart, Trace, chart, layout, legend, rounded, text
from ocssl.results.compare import Comparison, Difference
from ocssl.results.read import Run
from ocssl.results.series import by_series
from ocssl.results.untrusted_values import short

PHASES: dict[str, tuple[str, ...]] = {
    "data": ("data",),
    "views": ("views",),
    "forward": ("forward",),
    "backward": ("backward", "optimizer"),
    "memory": ("draw", "refresh", "insert"),
    "terms": ("terms",),
    "probe": ("probe",),
    "save": ("save",),
}
OTHER = "other"
FILLS = dict(zip((*PHASES, OTHER), (*COLOURS, "#F0E442", "#999999", "#5C5C5C"), strict=True))
PATTERNS = dict(zip(FILLS, ("", "", "/", "", "\\", "x", ".", "-", "|"), strict=True))


def forest_chart(comparisons: Sequence[Comparison]) -> Chart | None:
    """Mean differences to the reference, with their intervals, one row a series."""
    rows = [f"{c.series} against {c.reference}" for c in comparisons]
    traces = [
        _differences("Final", [c.final for c in comparisons], 0.0, "circle", COLOURS[0]),
        _differences("Average", [c.average for c in comparisons], -0.22, "square-open", COLOURS[1]),
    ]
    figure = _rows("difference in accuracy, points", rows)
    line = {"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper", "line": {"color": FAINT, "width": 2}}
    figure["shapes"] = [line]
    return chart(
        "forest",
        "Differences with 95 % intervals",
        "Right of zero the method is better than what it is compared with, left of it worse; an interval that holds "
        "zero does not tell them apart.",
        [trace for trace in traces if trace["x"]],
        figure,
        rows=len(rows),
    )


def _differences(name: str, found: Sequence[Difference | None], lift: float, symbol: str, colour: str) -> Trace:
    there = [(len(found) - 1 - i + lift, d) for i, d in enumerate(found) if d is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rounded([d.mean for _, d in there]),
        "y": rounded([y for y, _ in there]),
        "error_x": {"type": "data", "array": rounded([d.half or 0.0 for _, d in there]), "thickness": 2, "width": 5},
        "marker": {"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
        "customdata": [_interval(d) for _, d in there],
        "hovertemplate": "%{x:+.2f} points, %{customdata}<extra>%{fullData.name}</extra>",
        "showlegend": True,
    }


def _interval(found: Difference) -> str:
    if found.half is None:
        return found.lack
    return f"from {found.mean - found.half:+.2f} to {found.mean + found.half:+.2f}, {found.pairs} pairs"


def compute_chart(runs: Sequence[Run]) -> Chart | None:
    """Seconds by phase, stacked, means over seeds."""
    groups = [(legend(group[0]), phase_seconds(group)) for group in by_series(runs).values()]
    groups = [(name, seconds) for name, seconds in groups if seconds]
    traces: list[Trace] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "x": rounded([seconds[phase] for _, seconds in groups]),
            "y": list(range(len(groups) - 1, -1, -1)),
            "width": 0.42,
            "marker": {
                "color": colour,
                "pattern": {"shape": PATTERNS[phase], "fillmode": "overlay", "fgopacity": 0.5, "size": 6},
            },
            "hovertemplate": "%{x:.3g} s<extra>%{fullData.name}</extra>",
            "showlegend": True,
        }
        for phase, colour in FILLS.items()
        if any(seconds[phase] for _, seconds in groups)
    ]
    figure = _rows("seconds", [name for name, _ in groups]) | {"barmode": "stack"}
    figure["xaxis"]["rangemode"] = "tozero"
    figure["legend"]["traceorder"] = "normal"
    words = "Seconds of the program by phase, means over seeds; machines and their load differ."
    return chart("compute", "Compute by phase", words, traces, figure, rows=len(groups))


def phase_seconds(group: Iterable[Run]) -> dict[str, float]:
    """Mean seconds of each phase over the runs that recorded them; phases that have no place here are `other`."""
    recorded = [run.phases for run in group if sum(run.phases.values()) > 0]
    if not recorded:
        return {}
    placed = {fine for parts in PHASES.values() for fine in parts}
    mean = {
        name: fmean(sum(run.get(fine, 0.0) for fine in parts) for run in recorded) for name, parts in PHASES.items()
    }
    return mean | {OTHER: fmean(sum(s for fine, s in run.items() if fine not in placed) for run in recorded)}


def _rows(x: str, names: Sequence[str]) -> dict[str, Any]:
    """Axes for rows from top to bottom, each with its name above it, where it takes no width."""
    figure = layout(x, "")
    figure["yaxis"] |= {
        "range": [-0.5, len(names) - 0.3],
        "showticklabels": False,
        "showgrid": False,
        "title": {"text": ""},
    }
    figure["margin"] = {"l": 12, "r": 12, "t": 8, "b": 48}
    figure["annotations"] = [
        {"text": text(short(name, 60)), "x": 0, "xref": "paper", "xanchor": "left", "align": "left", "showarrow": False}
        | {"y": len(names) - 1 - i + 0.25, "yanchor": "bottom", "font": {"size": 12}}
        for i, name in enumerate(names)
    ]
    return figure
