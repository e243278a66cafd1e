"""What every chart is made of: plotly figures as plain dictionaries, and one look for each series."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ocssl.results.read import ONLINE, Run

# Okabe and Ito's colours without black and yellow, first those that stand out on light and dark ground alike
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
FAINT = "rgba(128,128,128,0.6)"
MANY = 8  # series from which on colours repeat or curves hide one another
STREAM = "share of the stream, %"

Trace = dict[str, Any]


@dataclass(frozen=True)
class Style:
    """How a series looks in every chart and in the tables: colour by method, dash and marker by series."""

    colour: str
    dash: str
    symbol: str


@dataclass(frozen=True)
class Chart:
    """A figure with its title and one sentence on how to read it.

    A chart with panels shows one of them at a time: `layout.meta` holds the panel of each trace.
    """

    key: str
    title: str
    words: str
    figure: dict[str, Any]
    panels: tuple[str, ...] = ()
    rows: int = 0  # of a chart whose height follows from what it lists


def styles(runs: Sequence[Run]) -> dict[str, Style]:
    """The style of each series, in order of appearance: those of one colour differ in dash."""
    methods = list(dict.fromkeys(run.method for run in runs))
    look: dict[str, Style] = {}
    for i, (series, method) in enumerate({run.series: run.method for run in runs}.items()):
        colour = COLOURS[methods.index(method) % len(COLOURS)]
        used = sum(style.colour == colour for style in look.values())
        look[series] = Style(colour, DASHES[used % len(DASHES)], SYMBOLS[i % len(SYMBOLS)])
    return look


def legend(run: Run) -> str:
    """The name of a run's series in a legend; offline ones say so."""
    return run.series if run.regime == ONLINE else f"{run.series} ({run.regime.partition(':')[0]})"


def chart(key: str, title: str, words: str, traces: list[Trace], layout: dict[str, Any], rows: int = 0) -> Chart | None:
    """A chart, if there is something to draw."""
    return Chart(key, title, words, {"data": traces, "layout": layout}, rows=rows) if traces else None


def panelled(key: str, title: str, words: str, panels: dict[str, list[Trace]], layout: dict[str, Any]) -> Chart | None:
    """A chart of which a reader sees one panel at a time."""
    panels = {name: traces for name, traces in panels.items() if traces}
    owners = [i for i, traces in enumerate(panels.values()) for _ in traces]
    traces = [trace for own in panels.values() for trace in own]
    for trace, owner in zip(traces, owners, strict=True):
        trace["visible"] = owner == 0
    figure = {"data": traces, "layout": layout | {"meta": owners}}
    return Chart(key, title, words, figure, tuple(panels)) if panels else None


def text(words: str) -> str:
    """Words from a run inside a chart: plotly reads some tags in texts."""
    return html.escape(words)


def rounded(values: Sequence[float | None]) -> list[float | None]:
    """Five digits, which no eye can tell from more, so that the page stays small; what is not finite is left out."""
    return [float(f"{value:.5g}") if value is not None and math.isfinite(value) else None for value in values]


def clear(colour: str, opacity: float) -> str:
    """A colour that lets what is behind it through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def layout(x: str, y: str, **more: Any) -> dict[str, Any]:
    """Clear ground and grey ink; the page's script paints text and grid to fit light or dark."""
    axis = {"gridcolor": FAINT, "linecolor": FAINT, "zeroline": False}
    over = {"range": [-1, 101]} if x == STREAM else {}
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#808080"},
        "margin": {"l": 60, "r": 12, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": x}} | over,
        "yaxis": axis | {"title": {"text": y}},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"namelength": -1},
        **more,
    }
