"""Charts of runs as plotly figures: plain dictionaries that plotly.js draws, the same bytes for the same runs."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ocssl.report.runs import ONLINE, Run

# Okabe and Ito's colours without black and yellow, first those that stand out on light and dark ground alike
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
FAINT = "rgba(128,128,128,0.6)"
MANY = 8  # series from which on colours repeat or curves hide one another
MOST_POINTS, FEW_POINTS, MOST_BOUNDARIES = 150, 40, 60
ACTIVE = "overlap.active"  # has a chart of its own

Numbers = Sequence[float | None]
Columns = Callable[[Run], Mapping[str, Numbers]]  # what a chart shows of a run, by signal; "" is the thing itself


@dataclass(frozen=True)
class Style:
    """How a series looks in every chart and in the table: colour by method, dash and marker by series."""

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


@dataclass(frozen=True)
class Line:
    """A curve of a run."""

    run: Run
    x: Numbers  # share of the stream, %
    y: Numbers
    told: Numbers  # images or steps, told when a reader points at the curve
    signal: str = ""  # of a term, where a chart has several curves of a run
    number: int = 0  # of the curve among them


def styles(runs: Sequence[Run]) -> dict[str, Style]:
    """The style of each series, in order of appearance: those of one colour differ in dash."""
    methods = list(dict.fromkeys(run.method for run in runs))
    look: dict[str, Style] = {}
    for i, (series, method) in enumerate({run.series: run.method for run in runs}.items()):
        colour = COLOURS[methods.index(method) % len(COLOURS)]
        used = sum(style.colour == colour for style in look.values())
        look[series] = Style(colour, DASHES[used % len(DASHES)], SYMBOLS[i % len(SYMBOLS)])
    return look


def all_charts(runs: Sequence[Run]) -> dict[str, list[Chart | None]]:
    """The charts of each part of the page; None where no run has the numbers."""
    objectives = dict.fromkeys(run.objective for run in runs if run.has_loss)
    terms = dict.fromkeys(name.partition(".")[0] for run in runs for name in run.terms)
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
            *(
                _step_chart(
                    f"ssl-{i}",
                    f"SSL loss: {objective}",
                    "The objective's own loss, without terms; comparable between runs with the same objective.",
                    "SSL loss",
                    runs,
                    _own_loss(objective),
                )
                for i, objective in enumerate(objectives, 1)
            ),
            *(
                _step_chart(
                    f"term-{i}",
                    f"Loss of the term {term}",
                    "Before its weight; comparable between runs with the same term."
                    + " Thin lines with marks: its parts, or what else it shows." * _has_signals(runs, term),
                    "loss of the term",
                    runs,
                    _of_term(term),
                )
                for i, term in enumerate(terms, 1)
            ),
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
            _step_chart(
                "spread",
                "Spread",
                "Near 0, all images get the same features.",
                "spread of features",
                runs,
                lambda run: {"": run.trace["spread"]},
            ),
            _step_chart(
                "rank",
                "Effective rank",
                "Near 1, features vary along one line only.",
                "directions used",
                runs,
                lambda run: {"": run.trace["rank"]},
            ),
            _step_chart(
                "active",
                "Active overlap pairs",
                "Share of pairs on which the Overlap term acts; 0 means that it does nothing.",
                "active pairs, %",
                runs,
                lambda run: {"": run.terms.get(ACTIVE, [])},
                percent=100,
            ),
        ],
    }


def _own_loss(objective: str) -> Columns:
    return lambda run: {"": run.trace["ssl"]} if run.has_loss and run.objective == objective else {}


def _of_term(term: str) -> Columns:
    def columns(run: Run) -> dict[str, Numbers]:
        names = [name for name in run.terms if name.partition(".")[0] == term and name != ACTIVE]
        return {name.partition(".")[2]: run.terms[name] for name in names}

    return columns


def _has_signals(runs: Sequence[Run], term: str) -> bool:
    return any(name.startswith(f"{term}.") and name != ACTIVE for run in runs for name in run.terms)


def _evaluation_chart(
    key: str, title: str, words: str, axis: str, runs: Sequence[Run], *, percent: float | None = None
) -> Chart | None:
    """A measure of the evaluations over the stream, one line a run, experiences' ends as faint lines.

    `percent` is the factor that makes it per cent; None leaves it as it is.
    """
    ends = {round(e.share, 1) for run in runs for e in run.evaluations if e.experience > 0 and e.share is not None}
    shapes = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
        | {"line": {"color": FAINT, "width": 1, "dash": "dot"}}
        for x in (sorted(ends) if len(ends) <= MOST_BOUNDARIES else [])
    ]
    lines = [
        Line(
            run,
            [e.share for e in run.evaluations],
            _scaled([getattr(e, key) for e in run.evaluations], percent),
            [e.seen for e in run.evaluations],
        )
        for run in runs
    ]
    value = "%{y:.1f} %" if percent else "%{y:.3f}"
    layout = _layout(axis) | {"shapes": shapes}
    layout["xaxis"]["showgrid"] = not shapes
    hover = value + " after %{customdata:.0f} images"
    return _chart(key, title, words, _traces(runs, lines, hover, "lines+markers"), layout)


def _step_chart(
    key: str, title: str, words: str, axis: str, runs: Sequence[Run], columns: Columns, *, percent: float | None = None
) -> Chart | None:
    """Numbers of every training step, as means over windows of steps, one line for each column of each run."""
    most = MOST_POINTS if len({run.series for run in runs}) < MANY else FEW_POINTS
    lines, windows = [], set[int]()
    for run in runs:
        window = max(1, math.ceil((run.minibatches[1] or len(run.trace["share"])) / most))
        share, steps = (_means(run.trace[name], window) for name in ("share", "steps"))
        for number, (signal, column) in enumerate(columns(run).items()):
            if any(value is not None for value in column):
                lines.append(Line(run, share, _scaled(_means(column, window), percent), steps, signal, number))
                windows.add(window)
    layout = _layout(axis)
    several = " to ".join(str(end) for end in sorted({min(windows, default=1), max(windows, default=1)}))
    how = "not smoothed: one point a minibatch" if several == "1" else f"smoothed: means of {several} minibatches"
    layout["legend"]["title"] = {"text": how, "side": "top", "font": {"size": 12}}
    value = "%{y:.1f} %" if percent else "%{y:.3f}"
    hover = value + " at step %{customdata:.0f}, %{x:.0f} % of the stream"
    return _chart(key, title, words, _traces(runs, lines, hover, "lines"), layout)


def _scaled(values: Numbers, factor: float | None) -> Numbers:
    return [value if value is None else value * (factor or 1) for value in values]


def _means(values: Numbers, window: int) -> list[float | None]:
    """Means over windows, of the numbers that there are."""
    parts = (values[i : i + window] for i in range(0, len(values), window))
    finite = ([v for v in part if v is not None] for part in parts)
    return [sum(part) / len(part) if part else None for part in finite]


def _chart(key: str, title: str, words: str, traces: list[dict[str, Any]], layout: dict[str, Any]) -> Chart | None:
    return Chart(key, title, words, {"data": traces, "layout": layout}) if traces else None


def _traces(runs: Sequence[Run], lines: Sequence[Line], hover: str, mode: str) -> list[dict[str, Any]]:
    look, named, traces = styles(runs), set[str](), []
    for line in lines:
        if all(x is None or y is None for x, y in zip(line.x, line.y, strict=True)):
            continue
        style, name, signal = look[line.run.series], _legend(line), bool(line.signal)
        marks = {"symbol": SYMBOLS[line.number % len(SYMBOLS)], "size": 6, "maxdisplayed": 8}
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if signal else mode,
                "x": line.x,
                "y": line.y,
                "customdata": line.told,
                "name": html.escape(name),  # plotly reads some tags in texts
                "legendgroup": name,
                "showlegend": name not in named,
                "meta": html.escape(f"{line.run.label}: {line.signal}" if signal else line.run.label),
                "hovertemplate": hover + "<extra>%{meta}</extra>",
                "line": {"color": style.colour, "dash": style.dash, "width": 1 if signal else 2},
                "marker": marks if signal else {"symbol": style.symbol, "size": 8},
            }
        )
        named.add(name)
    return traces


def _legend(line: Line) -> str:
    run = line.run
    name = run.series if run.regime == ONLINE else f"{run.series} ({run.regime.partition(':')[0]})"
    return f"{name}: {line.signal}" if line.signal else name


def _layout(y: str) -> dict[str, Any]:
    """Clear ground and grey ink; the page's script paints text and grid to fit light or dark."""
    axis = {"gridcolor": FAINT, "linecolor": FAINT, "zeroline": False}
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#808080"},
        "margin": {"l": 60, "r": 12, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": "share of the stream, %"}, "range": [-1, 101]},
        "yaxis": axis | {"title": {"text": y}},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"namelength": -1},
    }
