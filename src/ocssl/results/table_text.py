"""Tables for papers and programs: LaTeX with booktabs, Markdown, CSV."""

from __future__ import annotations

import csv
import io

from ocssl._core.cells import latex, latex_row, markdown_row
from ocssl.results.tables import Table

FORMULA = ("=", "+", "-", "@", "\t")  # with which a spreadsheet would begin to reckon


def as_latex(table: Table) -> str:
    """A tabular for `\\usepackage{booktabs}`, with its caption as a comment."""
    columns = "".join("l" if i in table.text else "r" for i in range(len(table.headers)))
    lines = [
        f"% {table.caption}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        latex_row(table.headers),
        r"\midrule",
    ]
    for i, (name, rows) in enumerate(table.groups()):
        if name:
            lines += [r"\midrule"] * bool(i)
            lines.append(rf"\multicolumn{{{len(table.headers)}}}{{l}}{{\emph{{{latex(name)}}}}} \\")
        lines += [latex_row(row.cells) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def as_markdown(table: Table) -> str:
    """A pipe table, its caption below it."""
    rules = ("---" if i in table.text else "---:" for i in range(len(table.headers)))
    lines = [markdown_row(table.headers), f"| {' | '.join(rules)} |"]
    for name, rows in table.groups():
        if name:
            lines.append(markdown_row((f"*{name}*", *[""] * (len(table.headers) - 1))))
        lines += [markdown_row(row.cells) for row in rows]
    return "\n".join([*lines, "", table.caption, ""])


def as_csv(table: Table) -> str:
    """Cells as they stand, the group first; no number is an empty cell, and words never begin as a formula."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["group", *(header.strip() for header in table.headers)])
    for row in table.rows:
        cells = (_no_formula(cell) if i in table.text else cell.strip("-") and cell for i, cell in enumerate(row.cells))
        writer.writerow([_no_formula(row.group), *cells])
    return file.getvalue()


def _no_formula(words: str) -> str:
    return f"'{words}" if words.startswith(FORMULA) and words != "-" else words
