"""Charts for print: the figures of the page drawn by matplotlib, as PDF and PNG, the same bytes for the same runs.

Only what our own charts are made of is known here: lines, bands, marks with intervals, heat maps, stacked bars.
"""

from __future__ import annotations

import html
import io
import itertools
import math
from typing import Any

from ocssl.results.chart import Chart, Trace

INK, GRID = "#222222", "#D0D0D0"
WIDTH, HEIGHT = 6.0, 3.6  # inches
DASHES = {
    "solid": "-",
    "dash": (0, (5, 3)),
    "dot": (0, (1, 1.6)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 3)),
}
MARKS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "x": "X", "star": "*", "cross": "P"}
MARKS |= {"square-open": "s"}
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
    """The chart as `pdf` and `png`; the panels of a chart stand side by side."""
    import matplotlib as mpl

    with mpl.rc_context(RC):
        figure = _draw(chart)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what has its place keeps it: once is slow enough
        made = {}
        for kind, facts in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
            packed = io.BytesIO()
            figure.savefig(packed, format=kind, dpi=200, metadata=facts)
            made[kind] = packed.getvalue()
    return made


def _draw(chart: Chart) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    traces, layout = chart.figure["data"], chart.figure["layout"]
    names = chart.panels or ("",)
    columns = min(2, len(names))
    rows = math.ceil(len(names) / columns)
    height = max(HEIGHT, 1.2 + 0.55 * chart.rows)
    height += 0.08 * len(traces) if not chart.panels else 0.0
    figure = Figure(figsize=(WIDTH * (1.0 if columns == 1 else 1.3), height * (0.8 if rows > 1 else 1) * rows))
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    owners = layout.get("meta", [0] * len(traces))
    for i, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, i + 1)
        _panel(axes, [trace for trace, owner in zip(traces, owners, strict=True) if owner == i], layout)
        axes.set_title(name if chart.panels else chart.title, fontsize=9 if chart.panels else 10)
    if chart.panels:
        figure.suptitle(chart.title, fontsize=10)
    named = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if named:
        wide = max(map(len, named)) > 24
        figure.legend(named.values(), named, loc="outside lower center", ncols=1 if wide else 4, fontsize=8)
    return figure


def _panel(axes: Any, traces: list[Trace], layout: dict[str, Any]) -> None:
    _ground(axes, layout)
    left: dict[float, float] = {}
    for trace in traces:
        if trace["type"] == "heatmap":
            _heat(axes, trace)
        elif trace["type"] == "bar":
            _bar(axes, trace, left)
        elif "error_x" in trace:
            _interval(axes, trace)
        elif "fill" in trace:
            axes.fill(trace["x"], trace["y"], color=trace["line"]["color"], alpha=0.18, linewidth=0)
        else:
            _line(axes, trace)
    for note in layout.get("annotations", []):
        across = axes.get_yaxis_transform() if note.get("xref") == "paper" else axes.get_xaxis_transform()
        sides = {"ha": note["xanchor"], "va": note["yanchor"]}
        axes.text(note["x"], note["y"], html.unescape(note["text"]), transform=across, fontsize=8, color=INK, **sides)


def _ground(axes: Any, layout: dict[str, Any]) -> None:
    """Axes, and what lies below the curves: ends of experiences, phases of decay."""
    for side in ("x", "y"):
        axis = layout[f"{side}axis"]
        getattr(axes, f"set_{side}label")(axis["title"]["text"])
        if axis.get("type") == "log":
            getattr(axes, f"set_{side}scale")("log")
            getattr(axes, f"{side}axis").set_major_formatter(lambda value, _: f"{value:g}")
        if axis.get("range"):
            getattr(axes, f"set_{side}lim")(*axis["range"])
        if axis.get("showgrid") is False:
            axes.grid(False, axis=side)
    if layout["yaxis"].get("showticklabels") is False:
        axes.set_yticks([])
    for shape in layout.get("shapes", []):
        if shape["type"] == "rect":
            axes.axvspan(shape["x0"], shape["x1"], color=_opaque(shape["fillcolor"]), alpha=0.12, linewidth=0)
        else:
            own = shape["line"]
            axes.axvline(shape["x0"], color=_opaque(own["color"]), linewidth=own["width"] * 0.6, linestyle=_dash(own))


def _line(axes: Any, trace: Trace) -> None:
    marks = trace.get("marker", {}) if "markers" in trace["mode"] else {}
    points = [(x, math.nan if y is None else y) for x, y in zip(trace["x"], trace["y"], strict=True) if x is not None]
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=trace["line"]["color"],
        linestyle=_dash(trace["line"]),
        linewidth=trace["line"]["width"] * 0.7,
        marker=MARKS.get(marks.get("symbol", ""), ""),
        markersize=3.5,
        markevery=max(1, len(points) // 8) if "maxdisplayed" in marks else None,
        label=_label(trace),
    )


def _interval(axes: Any, trace: Trace) -> None:
    colour = trace["marker"]["color"]
    filled = {} if trace["marker"]["symbol"] == "circle" else {"markerfacecolor": "white"}
    style = {"fmt": MARKS[trace["marker"]["symbol"]], "color": colour, "capsize": 3, "markersize": 5}
    axes.errorbar(trace["x"], trace["y"], xerr=trace["error_x"]["array"], label=_label(trace), **style, **filled)


def _heat(axes: Any, trace: Trace) -> None:
    limits = {"vmin": trace.get("zmin"), "vmax": trace.get("zmax")}
    edges = [_edges(trace[side]) for side in ("x", "y")]
    mesh = axes.pcolormesh(*edges, trace["z"], cmap=trace["colorscale"].lower(), rasterized=True, **limits)
    axes.set_xlim(edges[0][0], edges[0][-1])
    axes.set_ylim(edges[1][0], edges[1][-1])
    axes.grid(False)
    axes.figure.colorbar(mesh, ax=axes, label=trace["colorbar"]["title"]["text"])


def _edges(middles: list[float]) -> list[float]:
    """Borders of cells half-way between their middles, as plotly draws them.

    >>> _edges([1.0, 2.0, 4.0]), _edges([5.0])
    ([0.5, 1.5, 3.0, 5.0], [4.5, 5.5])
    """
    if len(middles) == 1:
        return [middles[0] - 0.5, middles[0] + 0.5]
    between = [(a + b) / 2 for a, b in itertools.pairwise(middles)]
    return [2 * middles[0] - between[0], *between, 2 * middles[-1] - between[-1]]


def _bar(axes: Any, trace: Trace, left: dict[float, float]) -> None:
    marker = trace["marker"]
    begin = [left.get(y, 0.0) for y in trace["y"]]
    style = {"color": marker["color"], "hatch": marker["pattern"]["shape"] * 3, "edgecolor": "white", "linewidth": 0.4}
    axes.barh(trace["y"], trace["x"], height=trace["width"], left=begin, label=_label(trace), **style)
    left.update({y: b + x for y, b, x in zip(trace["y"], begin, trace["x"], strict=True)})


def _label(trace: Trace) -> str | None:
    """The name in the legend; matplotlib leaves out what begins with a line below."""
    name = html.unescape(trace["name"])
    return f" {name}" if trace.get("showlegend") else None


def _dash(line: dict[str, Any]) -> Any:
    return DASHES[line.get("dash", "solid")]


def _opaque(colour: str) -> Any:
    """A colour of the page as matplotlib reads it, without its opacity."""
    if not colour.startswith("rgba"):
        return colour
    return tuple(int(part) / 255 for part in colour[5:-1].split(",")[:3])
