"""Pieces of the page: tables, charts, notes. Every text from a run folder passes `escape` here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ocssl.results.chart import Chart, Style
from ocssl.results.tables import Row, Table

STROKES = {"dash": "9 6", "dot": "3 3", "dashdot": "9 4 3 4", "longdash": "12 5"}  # plotly's dashes in SVG


def table_html(table: Table) -> str:
    """A table in a region that scrolls by itself, so that the page never does sideways."""
    classes = ["" if i in table.text else ' class="number"' for i in range(len(table.headers))]
    head = "".join(f'<th scope="col"{c}>{escape(h)}</th>' for h, c in zip(table.headers, classes, strict=True))
    body = []
    for name, rows in table.groups():
        if name:
            span = f'scope="rowgroup" class="regime" colspan="{len(table.headers)}"'
            body.append(f"<tr><th {span}>{escape(name)}</th></tr>")
        body += [_row(row, classes) for row in rows]
    caption = escape(table.caption)
    return (
        f'<p class="quiet">{caption}</p><div class="scroll" role="region" tabindex="0" aria-label="{caption}">'
        f'<table id="{table.key}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    )


def _row(row: Row, classes: Sequence[str]) -> str:
    first, *rest = map(escape, row.cells)
    if row.alarm:
        rest[-1] = f'<span class="bad">{rest[-1]}</span>'
    cells = "".join(map("<td{}>{}</td>".format, classes[1:], rest))
    return f'<tr><th scope="row">{_mark(row.style) if row.style else ""}{first}</th>{cells}</tr>'


def _mark(style: Style) -> str:
    """A piece of the line that stands for a series in the charts."""
    dashes = f' stroke-dasharray="{STROKES[style.dash]}"' if style.dash in STROKES else ""
    line = f'<line x1="0" y1="5" x2="30" y2="5" stroke="{style.colour}" stroke-width="3"{dashes}></line>'
    return f'<svg class="mark" width="30" height="10" aria-hidden="true">{line}</svg>'


def folded(title: str, content: str) -> str:
    """Content that a reader opens when it is wanted."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def table_or_note(title: str, table: Table) -> str:
    """A folded table, the alternative to charts; nothing where it has no rows."""
    return folded(title, table_html(table)) if table.rows else ""


def grid(charts: Sequence[Chart], nothing: str = "Nothing was recorded.") -> str:
    """Charts side by side, or a quiet word that there are none."""
    if not charts:
        return notes([nothing])
    return f'<div class="charts">{"".join(map(_figure, charts))}</div>'


def _figure(chart: Chart) -> str:
    title, words = escape(chart.title), escape(chart.words)
    return (
        f"<figure><figcaption><h3>{title}</h3><p>{words}</p>{_selector(chart)}</figcaption>"
        f'<div class="plot" style="--entries:{_entries(chart)};--rows:{chart.rows}" id="{chart.key}" role="img" '
        f'aria-label="Chart: {title}. {words}"></div></figure>'
    )


def _selector(chart: Chart) -> str:
    """What picks a panel."""
    if len(chart.panels) < 2:
        return notes(chart.panels)
    options = "".join(f'<option value="{i}">{escape(name)}</option>' for i, name in enumerate(chart.panels))
    return f'<label class="pick">Method <select data-chart="{chart.key}">{options}</select></label>'


def _entries(chart: Chart) -> int:
    """How many names the legend has, so that the page can leave room for them."""
    shown = (trace for trace in chart.figure["data"] if trace.get("visible", True))
    return sum(bool(trace.get("showlegend")) for trace in shown)


def notes(words: Iterable[str]) -> str:
    return "".join(f'<p class="quiet">{escape(note)}</p>' for note in words)
