"""Charts for print, drawn by matplotlib: PDF and PNG, the same bytes for the same chart."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ocssl.results.chart import STREAM, Bars, Chart, HeatMap, Intervals, Line, Numbers, Panel, rounded
from ocssl.results.palette import COLOURS, DASHES, SYMBOLS, Style
from ocssl.results.run_groups import short

INK, GRID, FAINT = "#222222", "#D0D0D0", "#808080"
WIDTH, HEIGHT = 6.0, 3.6  # inches of a panel that stands alone
LEGEND_ROW = 0.08  # inches that a name in the legend adds
SCALE = 12  # lines from which on colours are a scale, in the order of their names
MARKED = 25  # points up to which a line without a style has marks
LINES = dict(zip(DASHES, ("-", (0, (5, 3)), (0, (1, 1.6)), (0, (5, 2, 1, 2)), (0, (9, 3))), strict=True))
MARKS = dict(zip(SYMBOLS, ("o", "s", "D", "^", "X", "*", "P"), strict=True)) | {"": ""}
RC: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # fonts that printers and editors can use
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # names of runs are no formulas
}


def print_chart(chart: Chart) -> dict[str, bytes]:
    """The chart as `pdf` and `png`; panels stand side by side."""
    import matplotlib as mpl

    facts = {"pdf": {"CreationDate": None, "Creator": None, "Producer": None}, "png": {"Software": None}}
    with mpl.rc_context(RC):
        figure = _draw(chart)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what has its place keeps it: once is slow enough
        made = {}
        for kind, metadata in facts.items():
            packed = io.BytesIO()
            figure.savefig(packed, format=kind, dpi=200, metadata=metadata)
            made[kind] = packed.getvalue()
    return made


def _draw(chart: Chart) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels, titled = chart.panels, any(panel.title for panel in chart.panels)
    columns = 3 if len(panels) % 3 == 0 else min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    height = max(HEIGHT, 1.2 + 0.55 * len(panels[0].rows)) * (0.8 if rows > 1 else 1)
    names = {item.name for panel in panels for item in panel.items if not isinstance(item, HeatMap)}
    size = (WIDTH * (0.65 * columns if columns > 1 else 1), height * rows + LEGEND_ROW * len(names))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    look = _styles(panels)
    for i, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, i + 1)
        _panel(axes, panel, look)
        axes.set_title(panel.title if titled else chart.title, fontsize=9 if titled else 10)
    if titled:
        figure.suptitle(chart.title, fontsize=10, wrap=True)
    named: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    if named:
        across = 1 if max(map(len, named)) > 24 * columns else 4
        figure.legend(named.values(), named, loc="outside lower center", ncols=across, fontsize=8)
    return figure


def _styles(panels: Sequence[Panel]) -> dict[str, Style]:
    """Looks of lines that have no style: the same name looks the same in all panels."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    lines = (item for panel in panels for item in panel.items if isinstance(item, Line) and not item.style)
    names = list(dict.fromkeys(line.name for line in lines))
    if len(names) > SCALE:
        return {name: Style(to_hex(colormaps["viridis"](i / (len(names) - 1)))) for i, name in enumerate(names)}
    places = [(i % len(COLOURS), i // len(COLOURS) % len(DASHES), i % len(SYMBOLS)) for i in range(len(names))]
    return {name: Style(COLOURS[c], DASHES[d], SYMBOLS[s]) for name, (c, d, s) in zip(names, places, strict=True)}


def _panel(axes: Any, panel: Panel, look: Mapping[str, Style]) -> None:
    _ground(axes, panel)
    ends = [0.0] * len(panel.rows)  # of the bars so far
    for item in panel.items:
        match item:
            case Line():
                _line(axes, item, look)
            case Intervals():
                _intervals(axes, item, len(panel.rows))
            case Bars():
                ends = _bars(axes, item, ends)
            case HeatMap():
                _heat_map(axes, item)
    text = {"fontsize": 8, "color": INK}
    for i, name in enumerate(panel.rows):
        across, y = axes.get_yaxis_transform(), len(panel.rows) - 1 - i + 0.25
        axes.text(0, y, short(name, 60), ha="left", va="bottom", transform=across, **text)
    for i, shade in enumerate(panel.shades):
        along, x = axes.get_xaxis_transform(), min(shade.end, 100)
        axes.text(x, 1 - 0.07 * i, shade.words, ha="right", va="top", transform=along, **text)


def _ground(axes: Any, panel: Panel) -> None:
    """Axes, and what lies below the curves: ends of experiences, phases of decay."""
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if panel.x == STREAM:
        axes.set_xlim(-1, 101)
    if panel.boundaries:
        axes.grid(False, axis="x")
    if panel.rows:
        axes.set_ylim(-0.5, len(panel.rows) - 0.3)
        axes.set_yticks([])
    if any(isinstance(item, Intervals) for item in panel.items):
        axes.axvline(0, color=FAINT, linewidth=1.2)
    for x in panel.boundaries:
        axes.axvline(x, color=FAINT, linewidth=0.6, linestyle=LINES["dot"])
    for level in panel.levels:
        axes.axhline(level.y, color=FAINT, linewidth=0.9, linestyle=LINES["dash"])
        place = {"xytext": (-2, 2), "textcoords": "offset points", "xycoords": axes.get_yaxis_transform()}
        axes.annotate(level.words, (1, level.y), fontsize=7, color=INK, ha="right", **place)
    for shade in panel.shades:
        axes.axvspan(shade.begin, shade.end, color=shade.colour, alpha=0.12, linewidth=0)
        axes.axvline(shade.begin, color=shade.colour, linewidth=1.2, linestyle=LINES["dash"])


def _line(axes: Any, line: Line, look: Mapping[str, Style]) -> None:
    style = line.style or look[line.name]
    points = [(x, y) for x, y in zip(_drawable(line.x), _drawable(line.y), strict=True) if not math.isnan(x)]
    if all(math.isnan(y) for _, y in points):
        return
    marked = line.marks != "none" or (not line.style and len(points) <= MARKED)
    if edges := line.edges():
        x, low, high = (_drawable(side) for side in zip(*edges, strict=True))
        axes.fill_between(x, low, high, color=style.colour, alpha=0.18, linewidth=0)
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=style.colour,
        alpha=style.opacity,
        linestyle=LINES[style.dash],
        linewidth=line.width * 0.7,
        marker=MARKS[style.symbol] if marked else "",
        markersize=3.5,
        markevery=max(1, len(points) // 8) if line.marks == "few" else None,
        label=_label(line.name),
    )


def _drawable(values: Numbers) -> list[float]:
    return [math.nan if value is None else value for value in rounded(values)]


def _intervals(axes: Any, item: Intervals, rows: int) -> None:
    """Marks in their rows, the hollow ones a little lower; a bar where there is an interval."""
    look = {"fmt": "o", "capsize": 3, "markersize": 5} | ({} if item.filled else {"markerfacecolor": "white"})
    for i, mark in enumerate(item.marks):
        own = {"color": mark.style.colour} | ({"label": _label(item.name)} if i == 0 else {})
        y = rows - 1 - mark.row - (0.0 if item.filled else 0.22)
        bar = [mark.half] if mark.half is not None else None
        axes.errorbar([mark.x], [y], xerr=bar, **look, **own)


def _bars(axes: Any, item: Bars, ends: list[float]) -> list[float]:
    style = {"color": item.colour, "hatch": item.hatch * 3, "edgecolor": "white", "linewidth": 0.4}
    rows = range(len(ends) - 1, -1, -1)
    axes.barh(rows, item.lengths, height=0.42, left=ends, label=_label(item.name), **style)
    return [end + length for end, length in zip(ends, item.lengths, strict=True)]


def _heat_map(axes: Any, item: HeatMap) -> None:
    x, y = _edges(item.x), _edges(item.y)
    limits = {"vmin": item.low, "vmax": item.high}
    mesh = axes.pcolormesh(x, y, [rounded(row) for row in item.values], cmap="viridis", rasterized=True, **limits)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    axes.grid(False)
    axes.figure.colorbar(mesh, ax=axes, label=item.unit)


def _edges(middles: Sequence[float]) -> list[float]:
    """Borders of cells half-way between their middles.

    >>> _edges([1.0, 2.0, 4.0]), _edges([5.0])
    ([0.5, 1.5, 3.0, 5.0], [4.5, 5.5])
    """
    if len(middles) == 1:
        return [middles[0] - 0.5, middles[0] + 0.5]
    between = [(a + b) / 2 for a, b in itertools.pairwise(middles)]
    return [2 * middles[0] - between[0], *between, 2 * middles[-1] - between[-1]]


def _label(name: str) -> str:
    """A name in the legend; matplotlib leaves out what begins with an underscore."""
    return f" {name}"
