"""Charts for the page: places in per cent, paths for SVG, and numbers for tooltips.

A plot is an SVG that stretches with the page; its words stand beside it as HTML, so that they keep their size on a
phone, follow light and dark, and are escaped by the template like all others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ocssl.results.chart import STREAM, Bars, HeatMap, Intervals, Line, Mark, Numbers, Panel, rounded
from ocssl.results.memory_pictures import data_url
from ocssl.results.palette import HEAT, Style

GRID = 1000  # steps of the plot's own coordinates in each direction
TICKS, MOST_TICKS = 5, 7
LABEL = 9.2  # per cent of the plot's height that a name beside it takes: 24 pixels, enough for a finger
MOST_BESIDE = 10  # names that fit beside a plot; more stand below it
HEAT_COLUMNS = 240  # of a heat map's picture
DASH_ARRAYS = {"dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "12 4"}
GREY = Style("#808080")

Tick = tuple[float, str]  # place in per cent, words
Part = tuple[float, str, str]  # of a bar: width in per cent, colour, words


@dataclass(frozen=True)
class Name:
    """A name beside the plot, at the height where its line ends."""

    words: str
    style: Style
    series: str
    top: float


@dataclass(frozen=True)
class Curve:
    """A line as SVG paths."""

    path: str
    band: str
    dots: str
    style: Style
    series: str
    width: float


@dataclass(frozen=True)
class RowMark:
    """A mark in a row: places in per cent."""

    place: float
    low: float | None
    high: float | None
    style: Style
    filled: bool
    words: str


@dataclass
class Plot:
    """What the template draws of a panel."""

    panel: Panel
    kind: str  # curves, heat, marks or bars
    x_ticks: list[Tick] = field(default_factory=list)
    y_ticks: list[Tick] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    boundaries: list[float] = field(default_factory=list)
    shades: list[tuple[float, float, str, str]] = field(default_factory=list)  # left, width, colour, words
    levels: list[tuple[float, str, bool]] = field(default_factory=list)  # top, words, alarm
    picture: str = ""  # of a heat map
    ends: tuple[str, str, str] = ("", "", "")  # of its scale: least, most, unit
    rows: list[tuple[str, list[RowMark], list[Part], str]] = field(default_factory=list)
    zero: float | None = None
    legend: list[tuple[str, str]] = field(default_factory=list)  # colour, words
    beside: bool = True  # whether names fit beside
    numbers: dict[str, Any] = field(default_factory=dict)  # for tooltips


def draw(panel: Panel) -> Plot:
    """The plot of a panel, whose items are all of one kind."""
    if marks := [item for item in panel.items if isinstance(item, Intervals)]:
        return _marks(panel, marks)
    if bars := [item for item in panel.items if isinstance(item, Bars)]:
        return _bars(panel, bars)
    for item in panel.items:
        if isinstance(item, HeatMap):
            return _heat(panel, item)
    return _curves(panel, [item for item in panel.items if isinstance(item, Line)])


# ---- curves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Numbers to places from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))


def _curves(panel: Panel, lines: Sequence[Line]) -> Plot:
    plot = Plot(panel, "curves")
    xs = [x for line in lines for x in rounded(line.x) if x is not None]
    ys = [y for line in lines for y in rounded(line.y) if y is not None]
    ys += [end for line in lines for _, low, high in line.edges() for end in rounded([low, high]) if end is not None]
    ys += [level.y for level in panel.levels]
    x = Scale(0.0, 100.0) if panel.x == STREAM else Scale(min(xs, default=0.0), max(xs, default=1.0))
    y = Scale(*(_decades(ys) if panel.log else span(ys)), panel.log)
    plot.x_ticks = [(100 * x(value), f"{value:g}") for value in ticks(x.low, x.high)]
    if panel.log:
        powers = range(round(math.log10(y.low)), round(math.log10(y.high)) + 1)
        plot.y_ticks = [(100 * (1 - y(10.0**power)), f"{10.0**power:g}") for power in powers]
    else:
        plot.y_ticks = [(100 * (1 - y(value)), _tick(value)) for value in ticks(y.low, y.high)]
    plot.curves = [_curve(line, x, y) for line in lines]
    plot.boundaries = [100 * x(value) for value in panel.boundaries]
    for shade in panel.shades:
        left, right = 100 * x(shade.begin), 100 * x(min(shade.end, x.high))
        plot.shades.append((left, right - left, Style(shade.colour).ink, shade.words))
    plot.levels = [(100 * (1 - y(level.y)), level.words, level.alarm) for level in panel.levels]
    named: dict[str, Line] = {}
    for line in lines:
        named.setdefault(line.name, line)
    heights = [100 * (1 - y(_last(line.y))) for line in named.values()]
    plot.beside = len(named) <= MOST_BESIDE
    tops = spread_out(heights, LABEL) if plot.beside else heights
    plot.names = [
        Name(line.name, line.style or GREY, line.series or line.name, top)
        for line, top in zip(named.values(), tops, strict=True)
    ]
    plot.numbers = {"x": [x.low, x.high], "stream": panel.x == STREAM, "lines": [_numbers(line) for line in lines]}
    return plot


def _numbers(line: Line) -> dict[str, Any]:
    """What the tooltip says of a line; `sd` and `d` where there are any."""
    found: dict[str, Any] = {"name": line.name, "who": line.who or line.name, "series": line.series or line.name}
    found |= {"x": rounded(line.x), "y": rounded(line.y), "ink": (line.style or GREY).ink}
    found |= {"form": line.form, "unit": line.unit}
    if any(sd is not None for sd in line.deviation):
        found["sd"] = rounded(line.deviation)
    if line.band:
        found["band"] = [rounded(edge) for edge in line.band]
    if line.detail:
        found |= {"details": rounded(line.details), "detail": line.detail}
    return found


def _last(values: Numbers) -> float:
    return next((y for y in reversed(rounded(values)) if y is not None), 0.0)


def _curve(line: Line, x: Scale, y: Scale) -> Curve:
    points = zip(rounded(line.x), rounded(line.y), strict=True)
    places = [None if a is None or b is None else _place(a, b, x, y) for a, b in points]
    shown = [place for place in places if place]
    dots = band = ""
    if line.marks != "none" or len(shown) == 1:
        step = max(1, len(shown) // 8) if line.marks == "few" else 1
        dots = "".join(f"M{place}h0" for place in shown[::step])
    edges = [edge for edge in line.edges() if all(map(math.isfinite, edge))]
    if any(high > low for _, low, high in edges):
        there = [_place(a, high, x, y) for a, _, high in edges]
        back = [_place(a, low, x, y) for a, low, _ in reversed(edges)]
        band = f"M{'L'.join(there + back)}Z"
    unbroken = (list(group) for known, group in itertools.groupby(places, key=bool) if known)
    path = "".join(f"M{'L'.join(map(str, part))}" for part in unbroken)
    return Curve(path, band, dots, line.style or GREY, line.series or line.name, line.width)


def _place(a: float, b: float, x: Scale, y: Scale) -> str:
    return f"{GRID * x(a):.0f} {GRID * (1 - y(b)):.0f}"


def span(values: Sequence[float]) -> tuple[float, float]:
    """From where to where an axis goes that shows these values, with a little room."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        return (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    room = 0.05 * (high - low)
    return (0.0 if 0 <= low < 4 * room else low - room), high + room


def _decades(values: Sequence[float]) -> tuple[float, float]:
    there = [value for value in values if value > 0]
    low, high = min(there, default=0.1), max(there, default=1.0)
    least = math.floor(math.log10(low))
    return 10.0**least, 10.0 ** max(math.ceil(math.log10(high)), least + 1)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others.

    >>> ticks(0, 100), ticks(0.12, 0.61)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.2, 0.3, 0.4, 0.5, 0.6])
    """
    if not high > low:
        return [low]
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if (high - low) / (size * power) <= MOST_TICKS - 1)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{i * step:.10g}") for i in range(first, first + MOST_TICKS + 1) if i * step <= high + 1e-9 * step]


def _tick(value: float) -> str:
    """A number at an axis: thousands with a comma.

    >>> _tick(1200.0), _tick(0.25), _tick(-3e-7)
    ('1,200', '0.25', '-3e-07')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def spread_out(wanted: Sequence[float], least: float) -> list[float]:
    """Places from 0 to 100 near the wanted ones and at least so far apart, as far as there is room.

    >>> spread_out([50.0, 51.0, 10.0], 10.0)
    [45.5, 55.5, 10.0]
    """
    groups: list[list[int]] = []

    def start(group: Sequence[int]) -> float:
        """Where the first of a group stands, so that its middle is near the wanted one and all are inside."""
        half = least * (len(group) - 1) / 2
        middle = sum(wanted[i] for i in group) / len(group)
        return min(max(middle, half), max(100.0 - half, half)) - half

    for i in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        groups.append([i])
        while len(groups) > 1 and start(groups[-2]) + least * len(groups[-2]) - start(groups[-1]) > 1e-9:
            groups[-2:] = [groups[-2] + groups[-1]]
    found = {i: round(start(group) + least * n, 2) for group in groups for n, i in enumerate(group)}
    return [found[i] for i in range(len(wanted))]


# ---- heat maps, marks and bars ---------------------------------------------------------------------------------------


def _heat(panel: Panel, item: HeatMap) -> Plot:
    """A picture of few pixels that the page stretches: as wide as the stream, a pixel row a row."""
    values = [rounded(row) for row in item.values]
    known = [v for row in values for v in row if v is not None]
    low = item.low if item.low is not None else min(known, default=0.0)
    high = item.high if item.high is not None else max(known, default=1.0)
    middles = 100 * (np.arange(HEAT_COLUMNS) + 0.5) / HEAT_COLUMNS
    columns = np.abs(np.array(item.x)[:, None] - middles).argmin(0)  # the evaluation next to each column of the picture
    cells = np.array([[math.nan if v is None else v for v in row] for row in reversed(values)])[:, columns]
    place = np.nan_to_num((cells - low) * 255 / ((high - low) or 1.0)).round().clip(0, 255).astype(int)
    pixels = _shades()[place]
    pixels[np.isnan(cells)] = 0
    plot = Plot(panel, "heat", picture=data_url(Image.fromarray(pixels)), ends=(f"{low:.3g}", f"{high:.3g}", item.unit))
    rows = Scale(2 * item.y[0] - item.y[1], 2 * item.y[-1] - item.y[-2]) if len(item.y) > 1 else Scale(0, 2 * item.y[0])
    plot.x_ticks = [(value, f"{value:g}") for value in ticks(0.0, 100.0)]
    plot.y_ticks = [(100 * (1 - rows(value)), _tick(value)) for value in ticks(rows.low, rows.high)]
    plot.y_ticks = [(top, words) for top, words in plot.y_ticks if 1 < top < 99]
    shown = [[None if value is None else float(f"{value:.3g}") for value in row] for row in values]
    heat = {"what": item.what, "unit": item.unit, "y": rounded(item.y), "z": shown}
    plot.numbers = {"x": [0.0, 100.0], "stream": True, "at": rounded(item.x), "heat": heat}
    return plot


def _shades() -> npt.NDArray[np.uint8]:
    """256 steps of the scale of heat maps, as red, green, blue and opacity."""
    ends = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] + [255] for colour in HEAT])
    at = np.linspace(0, len(ends) - 1, 256)
    return np.stack([np.interp(at, range(len(ends)), ends[:, i]) for i in range(4)], 1).round().astype(np.uint8)


def _marks(panel: Panel, items: Sequence[Intervals]) -> Plot:
    ends = [mark.x + side * (mark.half or 0.0) for item in items for mark in item.marks for side in (-1, 1)]
    scale = Scale(*span([0.0, *ends]))
    plot = Plot(panel, "marks", zero=100 * scale(0.0))
    plot.x_ticks = [(100 * scale(value), f"{value:+g}" if value else "0") for value in ticks(scale.low, scale.high)]
    for number, name in enumerate(panel.rows):
        marks = [_row_mark(mark, item, scale) for item in items for mark in item.marks if mark.row == number]
        plot.rows.append((name, marks, [], "; ".join(mark.words for mark in marks)))
    return plot


def _row_mark(mark: Mark, item: Intervals, scale: Scale) -> RowMark:
    low, high = (None if mark.half is None else 100 * scale(mark.x + side * mark.half) for side in (-1, 1))
    return RowMark(100 * scale(mark.x), low, high, mark.style, item.filled, f"{item.name} {mark.words}")


def _bars(panel: Panel, items: Sequence[Bars]) -> Plot:
    totals = [sum(item.lengths[i] for item in items) for i in range(len(panel.rows))]
    most = max(totals, default=1.0) or 1.0
    plot = Plot(panel, "bars", legend=[(item.colour, item.name) for item in items])
    plot.x_ticks = [(100 * value / most, _tick(value)) for value in ticks(0.0, most)]
    for i, name in enumerate(panel.rows):
        there = [(item, item.lengths[i]) for item in items if item.lengths[i] > 0]
        parts = [(100 * length / most, item.colour, f"{item.name} {seconds(length)}") for item, length in there]
        plot.rows.append((name, [], parts, seconds(totals[i])))
    return plot


def seconds(length: float) -> str:
    """A time that a reader takes in at once: no exponent, and no more digits than matter.

    >>> seconds(3960.4), seconds(45.67), seconds(4.0), seconds(0.0123)
    ('3,960 s', '45.7 s', '4.0 s', '0.012 s')
    """
    return f"{length:,.{0 if length >= 100 else 1 if length >= 1 else 3}f} s"
