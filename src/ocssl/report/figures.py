"""Charts of runs as plotly figures: plain dictionaries that plotly.js draws, the same bytes for the same runs."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ocssl.report.runs import Run

# Okabe and Ito's colours without black and yellow, first those that stand out on light and dark ground alike
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
FAINT = "rgba(128,128,128,0.6)"
MOST_POINTS, MOST_BOUNDARIES = 150, 60

Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Style:
    """How a series looks in every chart: colour by method, dash and marker by series."""

    colour: str
    dash: str
    symbol: str


@dataclass(frozen=True)
class Chart:
    """A figure with its title and one sentence on how to read it."""

    key: str
    title: str
    words: str
    figure: dict[str, Any]


def styles(runs: Sequence[Run]) -> dict[str, Style]:
    """The style of each series, in order of appearance."""
    methods = list(dict.fromkeys(run.method for run in runs))
    first = {run.series: run.method for run in runs}
    return {
        series: Style(COLOURS[methods.index(method) % len(COLOURS)], DASHES[i % len(DASHES)], SYMBOLS[i % len(SYMBOLS)])
        for i, (series, method) in enumerate(first.items())
    }


def all_charts(runs: Sequence[Run]) -> dict[str, list[Chart | None]]:
    """The charts of each part of the page; None where no run has the numbers."""
    return {
        "accuracy": [
            _evaluation_chart(
                "accuracy",
                "Accuracy over the stream",
                "Accuracy of a probe on the frozen encoder; the first point is the untrained encoder, "
                "vertical lines are the ends of experiences.",
                "accuracy, %",
                runs,
                percent=1,
            )
        ],
        "loss": [
            _step_chart("ssl", "SSL loss", "Without extra terms, so that methods can be compared.", "SSL loss", runs)
        ],
        "latent": [
            _evaluation_chart(
                "deviation",
                "Deviation",
                "How far the views of one image lie apart, from 0 to 1: a fall means that the encoder "
                "packs each image ever tighter.",
                "Deviation",
                runs,
            ),
            _evaluation_chart(
                "overlap",
                "Overlap",
                "Share of pairs of images whose views mix: a rise means that images are told apart less and less.",
                "Overlap, % of pairs",
                runs,
                percent=100,
            ),
        ],
        "health": [
            _step_chart("spread", "Spread", "Near 0, all images get the same features.", "spread of features", runs),
            _step_chart(
                "rank", "Effective rank", "Near 1, features vary along one line only.", "directions used", runs
            ),
            _step_chart(
                "active",
                "Active overlap pairs",
                "Share of pairs on which the Overlap term acts; 0 means that it does nothing.",
                "active pairs, %",
                runs,
                percent=100,
            ),
        ],
    }


def _evaluation_chart(
    key: str, title: str, words: str, axis: str, runs: Sequence[Run], *, percent: float | None = None
) -> Chart | None:
    """A measure of the evaluations over stream images, one line a run, experiences' ends as faint lines.

    `percent` is the factor that makes it per cent; None leaves it as it is.
    """
    ends = sorted({e.seen for run in runs for e in run.evaluations if e.experience > 0})
    shapes = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
        | {"line": {"color": FAINT, "width": 1, "dash": "dot"}}
        for x in (ends if len(ends) <= MOST_BOUNDARIES else [])
    ]

    def curve(run: Run) -> tuple[Numbers, Numbers]:
        values = [getattr(e, key) for e in run.evaluations]
        return [e.seen for e in run.evaluations], [v if v is None else v * (percent or 1) for v in values]

    hover = "%{y:.1f} % after %{x} images" if percent else "%{y:.3f} after %{x} images"
    layout = _layout("stream images seen", axis) | {"shapes": shapes}
    layout["xaxis"]["showgrid"] = not shapes
    return _chart(key, title, words, _traces(runs, curve, hover, "lines+markers"), layout)


def _step_chart(
    key: str, title: str, words: str, axis: str, runs: Sequence[Run], *, percent: float | None = None
) -> Chart | None:
    """A number of every training step, as means over windows of steps, one line a run."""
    longest = max((len(run.trace[key]) for run in runs), default=0)
    window = max(1, math.ceil(longest / MOST_POINTS))

    def curve(run: Run) -> tuple[Numbers, Numbers]:
        values = _means(run.trace[key], window)
        return _means(run.trace["steps"], window), [v if v is None else v * (percent or 1) for v in values]

    layout = _layout("optimizer steps", axis)
    how = f"smoothed: means of {window} minibatches" if window > 1 else "not smoothed: one point a minibatch"
    layout["legend"]["title"] = {"text": how, "side": "top", "font": {"size": 12}}
    hover = "%{y:.1f} % at step %{x:.0f}" if percent else "%{y:.3f} at step %{x:.0f}"
    return _chart(key, title, words, _traces(runs, curve, hover, "lines"), layout)


def _means(values: Numbers, window: int) -> list[float | None]:
    """Means over windows, of the numbers that there are."""
    parts = (values[i : i + window] for i in range(0, len(values), window))
    finite = ([v for v in part if v is not None] for part in parts)
    return [sum(part) / len(part) if part else None for part in finite]


def _chart(key: str, title: str, words: str, traces: list[dict[str, Any]], layout: dict[str, Any]) -> Chart | None:
    return Chart(key, title, words, {"data": traces, "layout": layout}) if traces else None


def _traces(
    runs: Sequence[Run], curve: Callable[[Run], tuple[Numbers, Numbers]], hover: str, mode: str
) -> list[dict[str, Any]]:
    look, named, traces = styles(runs), set[str](), []
    for run in runs:
        x, y = curve(run)
        if all(value is None for value in y):
            continue
        style = look[run.series]
        traces.append(
            {
                "type": "scatter",
                "mode": mode,
                "x": x,
                "y": y,
                "name": html.escape(run.series),  # plotly reads some tags in texts
                "legendgroup": run.series,
                "showlegend": run.series not in named,
                "meta": html.escape(run.label),
                "hovertemplate": hover + "<extra>%{meta}</extra>",
                "line": {"color": style.colour, "dash": style.dash, "width": 2},
                "marker": {"symbol": style.symbol, "size": 8},
            }
        )
        named.add(run.series)
    return traces


def _layout(x: str, y: str) -> dict[str, Any]:
    """Clear ground and grey ink; the page's script paints text and grid to fit light or dark."""
    axis = {"gridcolor": FAINT, "linecolor": FAINT, "zeroline": False}
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#808080"},
        "margin": {"l": 60, "r": 12, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": x}, "rangemode": "tozero"},
        "yaxis": axis | {"title": {"text": y}},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"namelength": -1},
    }
