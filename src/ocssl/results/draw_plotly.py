"""Charts for the page: plotly figures as plain dictionaries.

A chart with panels shows one of them at a time: `layout.meta` holds the panel of each trace.
"""

from __future__ import annotations

from html import escape
from typing import Any

from ocssl.results.chart import STREAM, Bars, Chart, HeatMap, Intervals, Line, Numbers, Panel, Style, rounded
from ocssl.results.run_groups import short

GREY, FAINT = "#808080", "rgba(128,128,128,0.6)"
Trace = dict[str, Any]


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """Traces and layout; words from a run are escaped, because plotly reads some tags in texts."""
    panels = [_traces(panel) for panel in chart.panels]
    owners = [number for number, traces in enumerate(panels) for _ in traces]
    traces = [trace for own in panels for trace in own]
    for trace, owner in zip(traces, owners, strict=True):
        trace["visible"] = owner == 0
    return {"data": traces, "layout": _layout(chart.panels[0]) | {"meta": owners}}


def _traces(panel: Panel) -> list[Trace]:
    traces, named = list[Trace](), set[str]()
    for item in panel.items:
        match item:
            case Line():
                traces += [*_band(item), _line(item) | {"showlegend": item.name not in named}]
                named.add(item.name)
            case Intervals():
                traces.append(_intervals(item))
            case Bars():
                traces.append(_bars(item))
            case HeatMap():
                traces.append(_heat_map(item))
    return traces


def _scatter(mode: str, name: str, x: Numbers, y: Numbers, **more: Any) -> Trace:
    return {"type": "scatter", "mode": mode, "x": rounded(x), "y": rounded(y), "name": escape(name), **more}


def _line(line: Line) -> Trace:
    style = line.style or Style(GREY)
    marker: Trace = {"size": 6, "maxdisplayed": 8} if line.marks == "few" else {"size": 7}
    return _scatter(
        "lines" if line.marks == "none" else "lines+markers",
        line.name,
        line.x,
        line.y,
        customdata=rounded(line.details),
        legendgroup=line.name,
        meta=escape(line.who or line.name),
        line={"color": style.colour, "dash": style.dash, "width": line.width},
        marker=marker | {"symbol": style.symbol or "circle"},
        hovertemplate=line.hover + "<extra>%{meta}</extra>",
    )


def _band(line: Line) -> list[Trace]:
    edges = line.edges()
    if not edges:
        return []
    around = [(x, high) for x, _, high in edges] + [(x, low) for x, low, _ in reversed(edges)]
    colour = line.style.colour if line.style else GREY
    own = {"fillcolor": _clear(colour, 0.18), "line": {"width": 0, "color": colour}, "legendgroup": line.name}
    x, y = zip(*around, strict=True)
    return [_scatter("lines", line.name, x, y, fill="toself", hoverinfo="skip", showlegend=False, **own)]


def _intervals(item: Intervals) -> Trace:
    colour = item.style.colour
    return _scatter(
        "markers",
        item.name,
        item.x,
        item.rows,
        error_x={"type": "data", "array": rounded(item.half), "thickness": 2, "width": 5},
        marker={"symbol": item.style.symbol, "size": 10, "color": colour, "line": {"width": 2, "color": colour}},
        customdata=list(item.details),
        hovertemplate="%{x:+.2f} points, %{customdata}<extra>%{fullData.name}</extra>",
        showlegend=True,
    )


def _bars(item: Bars) -> Trace:
    pattern = {"shape": item.hatch, "fillmode": "overlay", "fgopacity": 0.5, "size": 6}
    places = {"x": rounded(item.lengths), "y": list(range(len(item.lengths) - 1, -1, -1)), "width": 0.42}
    look = {"orientation": "h", "marker": {"color": item.colour, "pattern": pattern}, "showlegend": True}
    hover = "%{x:.3g} s<extra>%{fullData.name}</extra>"
    return {"type": "bar", "name": item.name, **places, **look, "hovertemplate": hover}


def _heat_map(item: HeatMap) -> Trace:
    limits = {} if item.high is None else {"zmin": item.low, "zmax": item.high}
    bar = {"title": {"text": item.unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    cells = {"x": rounded(item.x), "y": rounded(item.y), "z": [rounded(row) for row in item.values]}
    hover = item.what + " %{y:.4g} at %{x:.0f} % of the stream: %{z:.3g}<extra>%{fullData.name}</extra>"
    look = {"colorscale": "Viridis", "colorbar": bar, "hovertemplate": hover}
    return {"type": "heatmap", "name": escape(item.name), **cells, **look, **limits}


def _layout(panel: Panel) -> dict[str, Any]:
    """Clear ground and grey ink; the page's script paints text and grid to fit light or dark."""
    axis = {"gridcolor": FAINT, "linecolor": FAINT, "zeroline": False}
    cells = any(isinstance(item, HeatMap) for item in panel.items)
    x = axis | {"title": {"text": panel.x}, "showgrid": not (cells or panel.boundaries)}
    y = axis | {"title": {"text": panel.y}, "showgrid": not (cells or panel.rows)}
    if panel.x == STREAM and not cells:  # cells end where they end
        x["range"] = [-1, 101]
    if panel.log:
        y |= {"type": "log", "exponentformat": "power", "dtick": 1}
    if panel.rows:
        y |= {"range": [-0.5, len(panel.rows) - 0.3], "showticklabels": False}
    if any(isinstance(item, Bars) for item in panel.items):
        x["rangemode"] = "tozero"
    legend: dict[str, Any] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}
    if panel.note:
        legend["title"] = {"text": panel.note, "side": "top", "font": {"size": 12}}
    zero = [_vertical(0, FAINT, 2)] if any(isinstance(item, Intervals) for item in panel.items) else []
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": GREY},
        "margin": {"l": 12 if panel.rows else 60, "r": 12, "t": 8, "b": 48},
        "xaxis": x,
        "yaxis": y,
        "showlegend": True,
        "legend": legend,
        "hoverlabel": {"namelength": -1},
        "barmode": "stack",
        "shapes": [*zero, *(_vertical(x, FAINT, 1, "dot") for x in panel.boundaries), *_shades(panel)],
        "annotations": _annotations(panel),
    }


def _vertical(x: float, colour: str, width: int, dash: str = "solid") -> dict[str, Any]:
    line = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    return line | {"line": {"color": colour, "width": width, "dash": dash}}


def _shades(panel: Panel) -> list[dict[str, Any]]:
    shapes = []
    for shade in panel.shades:
        place = {"x0": shade.begin, "x1": shade.end, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
        shapes.append({"type": "rect", "fillcolor": _clear(shade.colour, 0.12), "line": {"width": 0}} | place)
        shapes.append(_vertical(shade.begin, shade.colour, 2, "dash"))
    return shapes


def _annotations(panel: Panel) -> list[dict[str, Any]]:
    """Words on shades, and the name of each row above it, where it takes no width."""
    common = {"showarrow": False, "font": {"size": 12}}
    rows = [
        {"text": escape(short(name, 60)), "x": 0, "xref": "paper", "xanchor": "left", "align": "left"}
        | {"y": len(panel.rows) - 1 - i + 0.25, "yanchor": "bottom"}
        for i, name in enumerate(panel.rows)
    ]
    shades = [
        {"text": escape(shade.words), "x": min(shade.end, 100), "xanchor": "right"}
        | {"yref": "paper", "y": 1 - 0.07 * i, "yanchor": "top"}
        for i, shade in enumerate(panel.shades)
    ]
    return [note | common for note in rows + shades]


def _clear(colour: str, opacity: float) -> str:
    """A colour that lets what is behind it through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"
