"""Panels as pictures for print (PNG and PDF), as CSV, and as a short table for the screen."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ocssl.results.chart import COLOURS
from ocssl.results.paper.panels import Line, Panel
from ocssl.results.paper.tables import NOTHING, Table, show
from ocssl.runs.folder import write_out

STYLES = ("-", "--", ":", "-.")
ACROSS = 3  # panels side by side
MARKS = ("o", "s", "D", "^", "v", "P", "X")
MARKED = 25  # points up to which a line has marks
FEW = 6  # values of a line that the screen shows
MANY = 12  # lines from which on a panel's colours are a scale, in the order of its lines


def draw(panels: Sequence[Panel], title: str, path: Path) -> list[Path]:
    """Write `path` as .png and .pdf; the same bytes for the same panels."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    columns = 2 if len(panels) == 4 else min(ACROSS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10, wrap=True)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        many = len(panel.lines) > MANY
        for place, line in enumerate(panel.lines):
            colour: Any = (
                colormaps["viridis"](place / (len(panel.lines) - 1)) if many else COLOURS[place % len(COLOURS)]
            )
            style = "-" if many else STYLES[place // len(COLOURS) % len(STYLES)]
            _plot(axes, line, colour, style, "" if many else MARKS[place % len(MARKS)])
        axes.set_title(panel.title, fontsize=9)
        axes.set_xlabel(panel.x)
        axes.set_ylabel(panel.y)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=5 if many else 7, ncols=3 if many else 1)
    written = []
    for suffix, canvas, about in (
        (".png", FigureCanvasAgg(figure), {"Software": None}),
        (".pdf", FigureCanvasPdf(figure), {"CreationDate": None, "Creator": None, "Producer": None}),
    ):
        packed = io.BytesIO()
        canvas.print_figure(packed, format=suffix[1:], dpi=150, metadata=about)
        written.append(path.with_suffix(suffix))
        write_out(written[-1], packed.getvalue())
    return written


def _plot(axes: Any, line: Line, colour: str, style: str, mark: str) -> None:
    known = [
        (x, y, d) for x, y, d in zip(line.x, line.y, line.deviation, strict=True) if x is not None and y is not None
    ]
    if not known:
        return
    x, y, deviation = zip(*known, strict=True)
    axes.plot(x, y, style, color=colour, label=line.name, linewidth=1.3, marker=mark if len(x) <= MARKED else "")
    if any(deviation):
        low = [value - (d or 0) for value, d in zip(y, deviation, strict=True)]
        high = [value + (d or 0) for value, d in zip(y, deviation, strict=True)]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def numbers(panels: Sequence[Panel], scale: str) -> str:
    """Every point of every line as CSV; each says of which scale it is."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["scale", "panel", "line", "x axis", "y axis", "x", "mean", "standard deviation"])
    for panel in panels:
        for line in panel.lines:
            for x, y, deviation in zip(line.x, line.y, line.deviation, strict=True):
                writer.writerow([scale, panel.title, line.name, panel.x, panel.y, x, y, deviation])
    return text.getvalue()


def table_of(panel: Panel, title: str, note: str) -> Table:
    """A few points of each line of a panel."""
    longest = max(panel.lines, key=lambda line: len(line.x))
    last = len(longest.x) - 1
    places = range(last + 1) if last < FEW else sorted({round(step * last / (FEW - 1)) for step in range(FEW)})
    headings = [f"{longest.x[place]:g}" for place in places]
    form = ".1f" if "%" in panel.y else ".3f"
    rows = []
    for line in panel.lines:
        cells = [
            show(line.y[place], line.deviation[place], form) if place < len(line.y) else NOTHING for place in places
        ]
        rows.append([line.name, *cells])
    heads = [panel.x, *headings]
    return Table(f"{title}\n{panel.title}: {panel.y}", note, [""] * len(heads), heads, rows)
