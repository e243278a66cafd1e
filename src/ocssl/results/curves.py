"""Curves over the stream: means over the seeds of a series, with a band of one standard deviation around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ocssl.results.chart import (
    FAINT,
    MANY,
    STREAM,
    SYMBOLS,
    Chart,
    Style,
    Trace,
    chart,
    clear,
    layout,
    legend,
    rounded,
    styles,
    text,
)
from ocssl.results.decay import Decay
from ocssl.results.read import Run
from ocssl.results.records import Evaluation
from ocssl.results.series import by_series, means_at

MOST_POINTS, FEW_POINTS, MOST_BOUNDARIES = 150, 40, 60

Numbers = Sequence[float | None]
Columns = Callable[[Run], Mapping[str, Numbers]]  # what a chart shows of a run, by signal; "" is the thing itself
Measure = Callable[[Evaluation], float | None]


def evaluation_chart(
    key: str,
    title: str,
    words: str,
    axis: str,
    runs: Sequence[Run],
    measure: Measure,
    *,
    percent: float | None = None,
    decays: Mapping[str, Decay] | None = None,
) -> Chart | None:
    """A measure of the evaluations over the stream; ends of experiences are faint lines, decay is shaded.

    `percent` is the factor that makes it per cent; None leaves it as it is.
    """
    look, traces = styles(runs), list[Trace]()
    value = "%{y:.1f} %" if percent else "%{y:.3f}"
    for peers in _lines(runs):
        curves = [[(e.share, _scale(measure(e), percent)) for e in run.evaluations] for run in peers]
        points, told = means_at(curves), dict(means_told(peers))
        if not points:
            continue
        traces += _band(points, look[peers[0].series], legend(peers[0]))
        trace = _trace(peers, look[peers[0].series], points, [told.get(x) for x, _, _ in points], "lines+markers")
        trace["hovertemplate"] = value + " after %{customdata:.0f} images<extra>%{meta}</extra>"
        traces.append(trace)
    _name_once(traces)
    at_ends = [run for run in runs if not run.settings.get("evaluate.every")]
    ends = {round(e.share, 1) for run in at_ends for e in run.evaluations if e.experience > 0 and e.share is not None}
    lines = [_vertical(x, "dot") for x in (sorted(ends) if len(ends) <= MOST_BOUNDARIES else [])]
    shapes, notes = _shades(decays or {}, runs)
    figure = layout(STREAM, axis, shapes=lines + shapes, annotations=notes)
    figure["xaxis"]["showgrid"] = not lines
    return chart(key, title, words, traces, figure)


def means_told(peers: Sequence[Run]) -> list[tuple[float, float]]:
    """How many images were seen at each place of the stream."""
    return [(x, seen) for x, seen, _ in means_at([[(e.share, e.seen) for e in run.evaluations] for run in peers])]


def step_chart(
    key: str, title: str, words: str, axis: str, runs: Sequence[Run], columns: Columns, *, percent: float | None = None
) -> Chart | None:
    """Numbers of every training step, as means over windows of steps and over seeds."""
    most = MOST_POINTS if len({run.series for run in runs}) < MANY else FEW_POINTS
    look, traces, windows = styles(runs), list[Trace](), set[int]()
    value = "%{y:.1f} %" if percent else "%{y:.3f}"
    for peers in _lines(runs):
        window = {id(run): _window(run, most) for run in peers}
        traced = {id(run): [_means(run.trace[key], window[id(run)]) for key in ("share", "steps")] for run in peers}
        told = {x: step for x, step, _ in means_at(zip(*own, strict=True) for own in traced.values())}
        signals = list(dict.fromkeys(name for run in peers for name in columns(run)))
        for index, signal in enumerate(signals):
            curves = []
            for run in peers:
                values = _means(columns(run).get(signal, []), window[id(run)])
                curves.append([(x, _scale(y, percent)) for x, y in zip(traced[id(run)][0], values, strict=False)])
            places = {round(x, 2) for own in traced.values() for x in own[0] if x is not None}
            points = _with_gaps(means_at(curves), sorted(places))
            if all(y is None for _, y, _ in points):
                continue
            trace = _trace(
                peers, look[peers[0].series], points, [told.get(x) for x, _, _ in points], "lines", signal, index
            )
            trace["hovertemplate"] = (
                value + " at step %{customdata:.0f}, %{x:.0f} % of the stream<extra>%{meta}</extra>"
            )
            traces.append(trace)
            windows.update(window.values())
    _name_once(traces)
    figure = layout(STREAM, axis)
    several = " to ".join(str(end) for end in sorted({min(windows, default=1), max(windows, default=1)}))
    how = "not smoothed: one point a minibatch" if several == "1" else f"smoothed: means of {several} minibatches"
    figure["legend"]["title"] = {"text": how, "side": "top", "font": {"size": 12}}
    return chart(key, title, words, traces, figure)


def quantile_chart(
    key: str, title: str, words: str, axis: str, runs: Sequence[Run], quantiles: Callable[[Any], tuple[float, ...]]
) -> Chart | None:
    """The median of what memories hold over the stream, the middle half as a band."""
    look, traces = styles(runs), list[Trace]()
    for peers in _lines(runs):
        low, middle, high = (
            means_at([[(h.share, quantiles(h)[q]) for h in run.holdings if quantiles(h)] for run in peers])
            for q in (1, 2, 3)
        )
        if middle:
            style, name = look[peers[0].series], legend(peers[0])
            edges = [(x, (a + b) / 2, (b - a) / 2) for (x, a, _), (_, b, _) in zip(low, high, strict=True)]
            traces += _band(edges, style, name)
            trace = _trace(peers, style, middle, [b for _, b, _ in high], "lines+markers")
            trace["hovertemplate"] = "median %{y:.4g}, a quarter above %{customdata:.4g}<extra>%{meta}</extra>"
            traces.append(trace)
    _name_once(traces)
    return chart(key, title, words, traces, layout(STREAM, axis))


def _lines(runs: Sequence[Run]) -> list[list[Run]]:
    """What gets a line: the finished seeds of a series together, every unfinished run alone."""
    alone = [[run] for run in runs if not run.finished]
    return [*by_series(run for run in runs if run.finished).values(), *alone]


def _window(run: Run, most: int) -> int:
    return max(1, math.ceil((run.minibatches[1] or len(run.trace["share"])) / most))


def _scale(value: float | None, factor: float | None) -> float | None:
    return value if value is None else value * (factor or 1)


def _means(values: Numbers, window: int) -> list[float | None]:
    """Means over windows, of the numbers that there are."""
    parts = (values[i : i + window] for i in range(0, len(values), window))
    finite = ([v for v in part if v is not None] for part in parts)
    return [sum(part) / len(part) if part else None for part in finite]


def _with_gaps(
    points: Sequence[tuple[float, float, float | None]], places: Sequence[float]
) -> list[tuple[float, float | None, float | None]]:
    """The points at all places, so that a line breaks where there is nothing."""
    there = {x: (y, sd) for x, y, sd in points}
    return [(x, *there.get(x, (None, None))) for x in places]


def _trace(
    peers: Sequence[Run],
    style: Style,
    points: Sequence[tuple[float, float | None, float | None]],
    told: Numbers,
    mode: str,
    signal: str = "",
    index: int = 0,
) -> Trace:
    """A line of a series; `told` is what a reader learns who points at it."""
    name = f"{legend(peers[0])}: {signal}" if signal else legend(peers[0])
    who = peers[0].label if len(peers) == 1 else f"{peers[0].series}, mean of {len(peers)} seeds"
    thin = bool(signal) or not peers[0].finished
    marks = {"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 6, "maxdisplayed": 8}
    return {
        "type": "scatter",
        "mode": "lines+markers" if signal else mode,
        "x": rounded([x for x, _, _ in points]),
        "y": rounded([y for _, y, _ in points]),
        "customdata": rounded(told),
        "name": text(name),
        "legendgroup": name,
        "meta": text(f"{who}: {signal}" if signal else who),
        "line": {"color": style.colour, "dash": style.dash, "width": 1 if thin else 2},
        "marker": marks if signal else {"symbol": style.symbol, "size": 7},
    }


def _band(points: Sequence[tuple[float, float, float | None]], style: Style, name: str) -> list[Trace]:
    """One standard deviation to either side, where there is one."""
    wide = [(x, y, sd) for x, y, sd in points if sd is not None]
    if not wide:
        return []
    there, back = [(x, y + sd) for x, y, sd in wide], [(x, y - sd) for x, y, sd in reversed(wide)]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": rounded([x for x, _ in there + back]),
            "y": rounded([y for _, y in there + back]),
            "fill": "toself",
            "fillcolor": clear(style.colour, 0.18),
            "line": {"width": 0, "color": style.colour},
            "hoverinfo": "skip",
            "legendgroup": name,
            "name": text(name),
            "showlegend": False,
        }
    ]


def _name_once(traces: Sequence[Trace]) -> None:
    named = set[str]()
    for trace in traces:
        if "fill" not in trace:
            trace["showlegend"] = trace["legendgroup"] not in named
            named.add(trace["legendgroup"])


def _vertical(x: float, dash: str) -> dict[str, Any]:
    line = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    return line | {"line": {"color": FAINT, "width": 1, "dash": dash}}


def _shades(decays: Mapping[str, Decay], runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Phases of decay as bands in the colour of their series, each with its name in them."""
    look, shapes, notes = styles(runs), [], []
    for i, (series, phase) in enumerate(decays.items()):
        end = 101.0 if phase.lasts else max(phase.end, phase.start + 1)
        place = {"x0": round(phase.start, 2), "x1": round(end, 2), "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
        colour = look[series].colour
        shapes.append({"type": "rect", "fillcolor": clear(colour, 0.12), "line": {"width": 0}} | place)
        shapes.append(
            _vertical(round(phase.start, 2), "solid") | {"line": {"color": colour, "width": 2, "dash": "dash"}}
        )
        notes.append(
            {"text": text(f"{series} decays"), "x": min(round(end, 2), 100), "xanchor": "right", "showarrow": False}
            | {"yref": "paper", "y": 1 - 0.07 * i, "yanchor": "top", "font": {"size": 12}}
        )
    return shapes, notes
