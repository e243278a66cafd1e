"""Charts as plain data: panels of lines with bands, marks with intervals, bars and heat maps; one look for each series.

`draw_plotly` draws them for the page, `draw_matplotlib` for print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ocssl._core.measures import Measure
from ocssl.results.latent_decay import Decay
from ocssl.results.read import ONLINE, Run
from ocssl.results.run_groups import by_series, means_at

# Okabe and Ito's colours without black and yellow, first those that stand out on light and dark ground alike
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
MANY = 8  # series from which on colours repeat or curves hide one another
STREAM = "share of the stream, %"

Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Style:
    """How a series looks in every chart and in the tables: colour by method, dash and marker by series."""

    colour: str
    dash: str = "solid"
    symbol: str = ""


@dataclass(frozen=True)
class Line:
    """A curve: a value at each x, and where there are several seeds, their standard deviation.

    The band around it is one standard deviation to either side, or `band`: x, lower and upper end.
    """

    name: str
    x: Numbers
    y: Numbers
    deviation: Numbers = ()
    band: Sequence[tuple[float, float, float]] = ()
    style: Style | None = None  # None: from the place of its name in the chart
    width: float = 2
    marks: Literal["none", "all", "few"] = "none"
    hover: str = ""  # plotly's template for the tooltip, in which `details` are the `customdata`
    details: Numbers = ()
    who: str = ""

    def edges(self) -> list[tuple[float, float, float]]:
        """The band, where there is one."""
        points = zip(self.x, self.y, self.deviation, strict=True) if self.deviation else ()
        around = [(x, y - d, y + d) for x, y, d in points if x is not None and y is not None and d is not None]
        return list(self.band) or around


@dataclass(frozen=True)
class Intervals:
    """Marks with an interval to either side, at rows counted from the bottom."""

    name: str
    x: Sequence[float]
    rows: Sequence[float]
    half: Sequence[float]
    style: Style
    details: Sequence[str]  # for the tooltip


@dataclass(frozen=True)
class Bars:
    """One part of stacked bars, a bar for each row from top to bottom."""

    name: str
    lengths: Sequence[float]
    colour: str
    hatch: str


@dataclass(frozen=True)
class HeatMap:
    """A colour for each cell of a grid, on a scale from `low` to `high`, or as far as the values go."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    values: Sequence[Numbers]  # by row, from the bottom
    unit: str
    what: str  # a row is
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Shade:
    """A stretch of the x axis in the colour of a series, with a word on it."""

    begin: float
    end: float
    colour: str
    words: str


@dataclass(frozen=True)
class Panel:
    """Axes with what is drawn on them."""

    x: str
    y: str
    items: Sequence[Line | Intervals | Bars | HeatMap]
    title: str = ""
    rows: Sequence[str] = ()  # names of what is listed from top to bottom, in place of a y axis
    boundaries: Sequence[float] = ()  # faint vertical lines
    shades: Sequence[Shade] = ()
    log: bool = False  # the y axis
    note: str = ""  # above the legend


@dataclass(frozen=True)
class Chart:
    """Panels with a title and one sentence on how to read them: the page shows one at a time, print all."""

    key: str
    title: str
    words: str
    panels: Sequence[Panel]

    def entries(self) -> int:
        """How many names the legend of a panel has, so that the page can leave room for them."""
        return len({item.name for item in self.panels[0].items if not isinstance(item, HeatMap)})


def chart(key: str, title: str, words: str, panels: Sequence[Panel]) -> Chart | None:
    """A chart of the panels in which there is something to draw, if there are any."""
    filled = [panel for panel in panels if panel.items]
    return Chart(key, title, words, filled) if filled else None


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


def rounded(values: Numbers) -> list[float | None]:
    """Five digits, which no eye can tell from more, so that the page stays small; what is not finite is left out."""
    return [float(f"{value:.5g}") if value is not None and math.isfinite(value) else None for value in values]


# ---- curves over the stream: means over the seeds of a series, with a band of one standard deviation ----------------

MOST_POINTS, FEW_POINTS, MOST_BOUNDARIES = 150, 40, 60

Columns = Callable[[Run], Mapping[str, Numbers]]  # what a chart shows of a run, by signal; "" is the measure itself
Points = Sequence[tuple[float, float | None, float | None]]  # place in the stream, mean, standard deviation


def evaluation_chart(measure: Measure, runs: Sequence[Run], decays: Mapping[str, Decay] | None = None) -> Chart | None:
    """A measure of the evaluations; ends of experiences are faint lines, decay is shaded."""
    look, lines = styles(runs), []
    for peers in _line_groups(runs):
        points = means_at(
            [[(e.share, _times(measure.factor, e[measure.key])) for e in run.evaluations] for run in peers]
        )
        seen = {x: n for x, n, _ in means_at([[(e.share, e.seen) for e in run.evaluations] for run in peers])}
        if points:
            hover = f"{measure.hover} after %{{customdata:.0f}} images"
            line = _line(peers, look[peers[0].series], points, [seen.get(x) for x, _, _ in points], hover)
            lines.append(replace(line, deviation=[sd for _, _, sd in points], marks="all"))
    at_ends = [run for run in runs if not run.settings.get("evaluate.every")]
    ends = {round(e.share, 1) for run in at_ends for e in run.evaluations if e.experience > 0 and e.share is not None}
    shades = []
    for series, phase in (decays or {}).items() if measure.shaded else ():
        end = 101.0 if phase.lasts else max(phase.end, phase.start + 1)
        shades.append(Shade(round(phase.start, 2), round(end, 2), look[series].colour, f"{series} decays"))
    boundaries = sorted(ends) if len(ends) <= MOST_BOUNDARIES else []
    panel = Panel(STREAM, measure.axis, lines, boundaries=boundaries, shades=shades)
    return chart(measure.chart, measure.title, measure.caption, [panel])


def step_chart(measure: Measure, runs: Sequence[Run], columns: Columns | None = None) -> Chart | None:
    """A measure of every training step, as means over windows of steps and over seeds."""
    columns = columns or (lambda run: {"": (run.terms if measure.of_term else run.trace).get(measure.key, [])})
    most = MOST_POINTS if len({run.series for run in runs}) < MANY else FEW_POINTS
    look, lines, windows = styles(runs), list[Line](), set[int]()
    for peers in _line_groups(runs):
        sizes = [max(1, math.ceil((run.minibatches[1] or len(run.trace["share"])) / most)) for run in peers]
        shares = [_means(run.trace["share"], size) for run, size in zip(peers, sizes, strict=True)]
        steps = [_means(run.trace["steps"], size) for run, size in zip(peers, sizes, strict=True)]
        step_at = {x: n for x, n, _ in means_at(zip(*own, strict=True) for own in zip(shares, steps, strict=True))}
        places = sorted({round(x, 2) for own in shares for x in own if x is not None})
        for index, signal in enumerate(dict.fromkeys(name for run in peers for name in columns(run))):
            values = [_means(columns(run).get(signal, []), size) for run, size in zip(peers, sizes, strict=True)]
            curves = [
                [(x, _times(measure.factor, y)) for x, y in zip(*own, strict=False)]
                for own in zip(shares, values, strict=True)
            ]
            known = {x: (y, sd) for x, y, sd in means_at(curves)}
            if known:
                points = [(x, *known.get(x, (None, None))) for x in places]  # a line breaks where nothing is known
                hover = f"{measure.hover} at step %{{customdata:.0f}}, %{{x:.0f}} % of the stream"
                numbers = [step_at.get(x) for x in places]
                lines.append(_line(peers, look[peers[0].series], points, numbers, hover, signal, index))
                windows.update(sizes)
    several = " to ".join(str(end) for end in sorted({min(windows, default=1), max(windows, default=1)}))
    how = "not smoothed: one point a minibatch" if several == "1" else f"smoothed: means of {several} minibatches"
    return chart(measure.chart, measure.title, measure.caption, [Panel(STREAM, measure.axis, lines, note=how)])


def age_chart(runs: Sequence[Run]) -> Chart | None:
    """The median age of what memories hold, the middle half as a band."""
    look, lines = styles(runs), []
    for peers in _line_groups(runs):
        low, middle, high = (
            means_at([[(m.share, m.age[quantile]) for m in run.memories if m.age] for run in peers])
            for quantile in (1, 2, 3)
        )
        if middle:
            hover = "median %{y:.4g}, a quarter above %{customdata:.4g}"
            line = _line(peers, look[peers[0].series], middle, [b for _, b, _ in high], hover)
            band = [(x, a, b) for (x, a, _), (_, b, _) in zip(low, high, strict=True)]
            lines.append(replace(line, band=band, marks="all"))
    caption = (
        "Stream images that have passed since arrival: the median as a line, the middle half as a band. A line "
        "that rises without end is a memory that no longer changes."
    )
    return chart("age", "Age of stored images", caption, [Panel(STREAM, "age, stream images", lines)])


def _line_groups(runs: Sequence[Run]) -> list[list[Run]]:
    """What gets a line: the finished seeds of a series together, every unfinished run alone."""
    alone = [[run] for run in runs if not run.finished]
    return [*by_series(run for run in runs if run.finished).values(), *alone]


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _means(values: Numbers, window: int) -> list[float | None]:
    """Means over windows, of the numbers that there are."""
    parts = (values[i : i + window] for i in range(0, len(values), window))
    finite = ([v for v in part if v is not None] for part in parts)
    return [sum(part) / len(part) if part else None for part in finite]


def _line(
    peers: Sequence[Run], style: Style, points: Points, details: Numbers, hover: str, signal: str = "", index: int = 0
) -> Line:
    """A line of a series, or of a signal of it, which is thin and has a few marks."""
    suffix = f": {signal}" if signal else ""
    who = peers[0].label if len(peers) == 1 else f"{peers[0].series}, mean of {len(peers)} seeds"
    return Line(
        legend(peers[0]) + suffix,
        [x for x, _, _ in points],
        [y for _, y, _ in points],
        style=replace(style, symbol=SYMBOLS[index % len(SYMBOLS)]) if signal else style,
        width=1 if signal or not peers[0].finished else 2,
        marks="few" if signal else "none",
        hover=hover,
        details=details,
        who=who + suffix,
    )
