"""Tables: cells of text under headings, shown on the screen and written as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

MISSING = "-"
FORMULA = ("=", "+", "-", "@", "\t")  # a spreadsheet takes words that begin with these for a formula
WIDEST = 1000  # columns; no table is as wide
FIRST = 12  # least width of a framed table's first column
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "…": r"\ldots{}",
    **{sign: f"\\{sign}" for sign in "&%$#_"},
}


def mean_and_deviation(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation of the values that are known; a deviation needs two."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None, stdev(known) if len(known) > 1 else None


def number_cell(mean: float | None, deviation: float | None = None, form: str = ".1f") -> str:
    """A number, with its standard deviation if there is one; a dash stands for no number.

    >>> number_cell(11.0, 1.41), number_cell(0.5, form=".3f"), number_cell(None)
    ('11.0 ± 1.4', '0.500', '-')
    """
    if mean is None or math.isnan(mean):
        return MISSING
    return f"{mean:{form}}" if deviation is None else f"{mean:{form}} ± {deviation:{form}}"


def mean_cell(values: Iterable[float | None]) -> str:
    """Mean ± standard deviation of the values that are known.

    >>> mean_cell([10.0, 12.0]), mean_cell([10.0, None]), mean_cell([None])
    ('11.0 ± 1.4', '10.0', '-')
    """
    return number_cell(*mean_and_deviation(values))


@dataclass(frozen=True)
class Row:
    """The cells of a row; rows with the same group stand together under its name."""

    cells: Sequence[str]
    group: str = ""
    series: str = ""  # whose line in the charts marks the row
    alarm: bool = False  # the last cell is bad news


@dataclass(frozen=True)
class Table:
    """A table; columns in `text` hold words and are aligned left, all others hold numbers and are aligned right."""

    headers: Sequence[str]
    rows: Sequence[Row]
    text: Sequence[int] = (0,)
    title: str = ""
    caption: str = ""
    key: str = ""  # names its file and its place in a page
    above: Sequence[str] = ()  # a second heading above each column; equal neighbours share one
    paired: bool = False  # columns that share a heading are one column on the screen
    framed: bool = False  # on the screen: lines around the cells, which are kept narrow
    first: str = ""  # the group that stands first, and is not named where it is the only one

    def groups(self) -> list[tuple[str, list[Row]]]:
        """Rows by group; the name of a group is empty if it needs none."""
        names = sorted(dict.fromkeys(row.group for row in self.rows), key=lambda name: name != self.first)
        hidden = names in ([self.first], [""])
        return [("" if hidden else name, [row for row in self.rows if row.group == name]) for name in names]

    def numeric(self, column: int) -> bool:
        return column not in self.text

    def for_programs(self) -> Table:
        """The same with the group as first column, and no number as an empty cell."""
        rows = []
        for row in self.rows:
            cells = ("" if self.numeric(i) and cell == MISSING else cell for i, cell in enumerate(row.cells))
            rows.append(Row((row.group, *cells)))
        return replace(self, headers=("group", *self.headers), rows=rows, text=(0, *(i + 1 for i in self.text)))

    def records(self) -> list[dict[str, str]]:
        """Rows for programs: cells by the name of their column."""
        return [dict(zip(self._heads(" "), row.cells, strict=True)) for row in self.rows]

    def show(self, console: Console) -> None:
        """Print the table, or if it is wider than the screen, each row as a line with all its cells."""
        table = replace(self, title="", caption="").__rich__()  # they would wrap at the width of the cells
        lines: list[RichTable | str] = [table]
        if console.measure(table, options=console.options.update(width=WIDEST)).maximum > console.width:
            heads = self._heads(" ")
            lines = ["; ".join(f"{h} {c}".strip() for h, c in zip(heads, row.cells, strict=True)) for row in self.rows]
        for line in (self.title, *lines, self.caption):
            if line:
                console.print(line, markup=False, highlight=False, soft_wrap=isinstance(line, str))

    def __rich__(self) -> RichTable:
        from rich.box import HEAVY_HEAD
        from rich.table import Table as RichTable

        table = RichTable(
            title=self.title or None,
            title_justify="left",
            caption=self.caption or None,
            caption_justify="left",
            box=HEAVY_HEAD if self.framed else None,
        )
        spans = self._spans() if self.paired else [[i] for i in range(len(self.headers))]
        above = self.above or [""] * len(self.headers)
        for span in spans:
            parts = above[span[0]].split(", ") if self.paired else [above[span[0]]]
            table.add_column(
                "\n".join([*filter(None, parts), " / ".join(self.headers[i] for i in span)]),
                justify="right" if self.numeric(span[0]) else "left",
                min_width=FIRST if self.framed and span[0] == 0 else None,
            )
        for row in self.rows:
            cells = [cell.replace(" ± ", "±") if self.framed else cell for cell in row.cells]
            table.add_row(*(" / ".join(cells[i] for i in span) for span in spans))
        return table

    def markdown(self) -> str:
        """A pipe table, its title above it, its caption below."""
        lines = [self._heads(": "), ["---:" if self.numeric(i) else "---" for i in range(len(self.headers))]]
        for name, rows in self.groups():
            lines += [[f"*{name}*", *[""] * (len(self.headers) - 1)]] if name else []
            lines += [list(row.cells) for row in rows]
        title = f"**{self.title}**\n\n" if self.title else ""
        return title + "\n".join(map(_markdown_row, lines)) + f"\n\n{self.caption}\n"

    def latex(self) -> str:
        """A tabular for `\\usepackage{booktabs}`, with title and caption as a comment."""
        columns = "".join("r" if self.numeric(i) else "l" for i in range(len(self.headers)))
        about = ". ".join(filter(None, (self.title, self.caption)))
        lines = [f"% {_one_line(about)}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        if self.above:
            spans = (rf"\multicolumn{{{len(s)}}}{{c}}{{{_latex(self.above[s[0]])}}}" for s in self._spans())
            lines.append(" & ".join(spans) + r" \\")
        lines += [_latex_row(self.headers), r"\midrule"]
        for i, (name, rows) in enumerate(self.groups()):
            if name:
                lines += [r"\midrule"] * bool(i)
                lines.append(rf"\multicolumn{{{len(self.headers)}}}{{l}}{{\emph{{{_latex(name)}}}}} \\")
            lines += [_latex_row(row.cells) for row in rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def csv(self) -> str:
        """Cells as they are; words never begin like a formula."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self._heads(" "))
        for row in self.rows:
            writer.writerow(cell if self.numeric(i) else _no_formula(cell) for i, cell in enumerate(row.cells))
        return file.getvalue()

    def _heads(self, between: str) -> list[str]:
        """Both headings of each column as one."""
        above = self.above or [""] * len(self.headers)
        return [f"{a}{between}{head}" if a else head for a, head in zip(above, self.headers, strict=True)]

    def _spans(self) -> list[list[int]]:
        """Columns that share the heading above them."""
        return [list(span) for _, span in itertools.groupby(range(len(self.above)), key=lambda i: self.above[i])]


def _latex(words: str) -> str:
    """Words that LaTeX prints as they are.

    >>> print(_latex("50 % of a_b"))
    50 \\% of a\\_b
    """
    return "".join(LATEX.get(sign, sign) for sign in _one_line(words))


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _markdown_row(cells: Iterable[str]) -> str:
    """A line of a pipe table.

    >>> _markdown_row(["a|b", "1"])
    '| a\\\\|b | 1 |'
    """
    safe = (_one_line(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(safe)} |"


def _no_formula(words: str) -> str:
    return f"'{words}" if words.startswith(FORMULA) and words != MISSING else words


def _one_line(words: str) -> str:
    return " ".join(words.split())
