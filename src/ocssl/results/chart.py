"""Charts as plain data: panels of lines with bands, marks with intervals, bars and heat maps.

`draw_page` draws them for the page, `draw_matplotlib` for print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from ocssl._core.measures import Measure
from ocssl.results.latent_decay import Decay
from ocssl.results.palette import DASHES, SYMBOLS, Style, styles
from ocssl.results.read_runs import ONLINE, Run
from ocssl.results.run_groups import by_series, means_at

MANY = 8  # series from which on colours repeat or curves hide one another
STREAM = "share of the stream, %"

Numbers = Sequence[float | None]


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
    form: str = ".3g"  # of a number in the tooltip
    unit: str = ""
    details: Numbers = ()  # a second number of each point, for the tooltip
    detail: str = ""  # what that number is, around a `#` for it
    who: str = ""
    series: str = ""  # whose line it is; lines of one series are shown and hidden together

    def edges(self) -> list[tuple[float, float, float]]:
        """The band, where there is one."""
        points = zip(self.x, self.y, self.deviation, strict=True) if self.deviation else ()
        around = [(x, y - d, y + d) for x, y, d in points if x is not None and y is not None and d is not None]
        return list(self.band) or around


@dataclass(frozen=True)
class Mark:
    """A number in a row counted from the top, with an interval to either side where there is one."""

    x: float
    row: int
    half: float | None
    style: Style
    words: str  # beside it


@dataclass(frozen=True)
class Intervals:
    """Marks of one kind."""

    name: str
    marks: Sequence[Mark]
    filled: bool = True


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
class Level:
    """A horizontal line that curves are read against: chance, a threshold."""

    y: float
    words: str
    alarm: bool = False  # below it something is wrong


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
    levels: Sequence[Level] = ()
    log: bool = False  # the y axis
    note: str = ""  # how the numbers were made
    style: Style | None = None  # of the series that the panel is about


@dataclass(frozen=True)
class Chart:
    """Panels side by side, with a title and one sentence on how to read them."""

    key: str
    title: str
    words: str
    panels: Sequence[Panel]
    says: Sequence[str] = ()  # what these runs show in it


def chart(key: str, title: str, words: str, panels: Sequence[Panel], says: Sequence[str] = ()) -> Chart | None:
    """A chart of the panels in which there is something to draw, if there are any."""
    filled = [panel for panel in panels if panel.items]
    return Chart(key, title, words, filled, says) if filled else None


def legend(run: Run) -> str:
    """The name of a run's series in a legend; offline ones say so."""
    return run.series if run.regime == ONLINE else f"{run.series} ({run.regime.partition(':')[0]})"


def rounded(values: Numbers) -> list[float | None]:
    """Five digits, which no eye can tell from more, so that the page stays small; what is not finite is left out."""
    return [float(f"{value:.5g}") if value is not None and math.isfinite(value) else None for value in values]


# ---- curves over the stream: means over the seeds of a series, with a band of one standard deviation ----------------

MOST_POINTS, FEW_POINTS, MOST_BOUNDARIES = 150, 40, 60
ENDS = 0.05  # of a curve of steps that its first and its last value are means of
BANDS, BOUNDARIES = " Bands: one standard deviation over seeds.", " Dotted lines: ends of experiences."

AGE = Measure("age", "age", format=".0f")
Columns = Callable[[Run], Mapping[str, Numbers]]  # what a chart shows of a run, by signal; "" is the measure itself
Points = Sequence[tuple[float, float | None, float | None]]  # place in the stream, mean, standard deviation


def evaluation_chart(
    measure: Measure,
    runs: Sequence[Run],
    decays: Mapping[str, Decay] | None = None,
    levels: Sequence[Level] = (),
    says: Sequence[str] = (),
) -> Chart | None:
    """A measure of the evaluations; ends of experiences are faint lines, decay is shaded."""
    look, lines = styles(runs), []
    for peers in _line_groups(runs):
        points = means_at(
            [[(e.share, _times(measure.factor, e[measure.key])) for e in run.evaluations] for run in peers]
        )
        seen = {x: n for x, n, _ in means_at([[(e.share, e.seen) for e in run.evaluations] for run in peers])}
        if points:
            line = _line(peers, look[peers[0].series], points, [seen.get(x) for x, _, _ in points], measure)
            lines.append(replace(line, deviation=[sd for _, _, sd in points], marks="all", detail="# images"))
    at_ends = [run for run in runs if not run.settings.get("evaluate.every")]
    last = (e for run in at_ends for e in {e.experience: e for e in run.evaluations}.values())  # of each experience
    ends = {round(e.share, 1) for e in last if e.experience > 0 and e.share is not None}
    shades = []
    for series, phase in (decays or {}).items() if measure.shaded else ():
        end = 101.0 if phase.lasts else max(phase.end, phase.start + 1)
        shades.append(Shade(round(phase.start, 2), round(end, 2), look[series].colour, f"{series} decays"))
    boundaries = sorted(ends) if len(ends) <= MOST_BOUNDARIES else []
    caption = measure.caption + BANDS * any(map(_has_band, lines)) + BOUNDARIES * (len(boundaries) > 1)
    panel = Panel(STREAM, measure.axis, lines, boundaries=boundaries, shades=shades, levels=levels)
    return chart(measure.chart, measure.title, caption, [panel], says)


def step_chart(measure: Measure, runs: Sequence[Run], columns: Columns | None = None) -> Chart | None:
    """A measure of every training step, as means over windows of steps and over seeds."""
    columns = columns or (lambda run: {"": (run.terms if measure.of_term else run.trace).get(measure.key, [])})
    most = MOST_POINTS if len({run.series for run in runs}) < MANY else FEW_POINTS
    look, lines, windows, said = styles(runs), list[Line](), set[int](), list[str]()
    for peers in _line_groups(runs):
        sizes = [max(1, math.ceil(_records(run) / most)) for run in peers]
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
                numbers = [step_at.get(x) for x in places]
                line = _line(peers, look[peers[0].series], points, numbers, measure, signal, index)
                lines.append(replace(line, detail="step #"))
                windows.update(sizes)
                said += _change(measure, line, [columns(run).get(signal, []) for run in peers])
    several = " to ".join(str(end) for end in sorted({min(windows, default=1), max(windows, default=1)}))
    how = "not smoothed" if several == "1" else f"smoothed: means of {several} recorded minibatches"
    alarm = [] if measure.alarm is None else [Level(measure.alarm, f"alarm below {measure.alarm:g}", alarm=True)]
    panel = Panel(STREAM, measure.axis, lines, levels=alarm if lines else (), note=how)
    return chart(measure.chart, measure.title, measure.caption, [panel], said)


def _records(run: Run) -> float:
    """How many minibatches the events of a run record, or will once it is finished: not all of a long or kept run."""
    done, total = run.minibatches
    return len(run.trace["share"]) * (total / done if done and total else 1)


def _change(measure: Measure, line: Line, curves: Sequence[Numbers]) -> list[str]:
    """From where to where a curve with an alarm went, and whether that is one."""
    found = ends_of(curves)
    if measure.alarm is None or found is None:
        return []
    first, last = found
    low = min(first, last, *(y for y in line.y if y is not None))
    verdict = f"below the alarm of {measure.alarm:g}" if low < measure.alarm else "far from the alarm"
    verdict = "close to the alarm" if measure.alarm <= low < 2 * measure.alarm else verdict
    form = measure.format
    return [f"{line.name}: from {first:{form}} to {last:{form}}, lowest {low:{form}}, {verdict}."]


def ends_of(curves: Sequence[Numbers]) -> tuple[float, float] | None:
    """The first and the last value, means over seeds; of long curves, means of their ends.

    >>> ends_of([[1.0, None, 3.0], [2.0, 5.0]]), ends_of([[]])
    ((1.5, 4.0), None)
    """
    known = [values for curve in curves if (values := [value for value in curve if value is not None])]
    ends = [(max(1, int(ENDS * len(values))), values) for values in known]
    if not ends:
        return None
    return fmean(fmean(own[:n]) for n, own in ends), fmean(fmean(own[-n:]) for n, own in ends)


def _has_band(line: Line) -> bool:
    return any(high > low for _, low, high in line.edges())


def age_chart(runs: Sequence[Run]) -> Chart | None:
    """The median age of what memories hold, the middle half as a band."""
    look, lines = styles(runs), []
    for peers in _line_groups(runs):
        low, middle, high = (
            means_at([[(m.share, m.age[quantile]) for m in run.memories if m.age] for run in peers])
            for quantile in (1, 2, 3)
        )
        if middle:
            line = _line(peers, look[peers[0].series], middle, [b for _, b, _ in high], AGE)
            band = [(x, a, b) for (x, a, _), (_, b, _) in zip(low, high, strict=True)]
            lines.append(replace(line, band=band, marks="all", detail="a quarter above #"))
    caption = (
        "Stream images that have passed since arrival: the median as a line, the middle half as a band. A line "
        "that rises as fast as images arrive is a memory that no longer changes; half as fast, one that holds all of "
        "the stream alike."
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
    peers: Sequence[Run], style: Style, points: Points, details: Numbers, of: Measure, signal: str = "", index: int = 0
) -> Line:
    """A line of a series, or of a signal of it, which is thin, has a dash and a few marks."""
    if signal:
        style = replace(style, symbol=SYMBOLS[index % len(SYMBOLS)], dash=DASHES[index % len(DASHES)])
    suffix = f": {signal}" if signal else ""
    who = peers[0].label if len(peers) == 1 else f"{peers[0].series}, mean of {len(peers)} seeds"
    return Line(
        legend(peers[0]) + suffix,
        [x for x, _, _ in points],
        [y for _, y, _ in points],
        style=style,
        width=1 if signal or not peers[0].finished else 2,
        marks="few" if signal else "none",
        form=of.format.replace("%", "f"),
        unit=of.unit,
        details=details,
        who=who + suffix,
        series=peers[0].series,
    )
