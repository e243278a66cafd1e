"""Cells of tables: means over seeds, and words as LaTeX and Markdown print them."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, stdev

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


def mean_and_spread(values: Iterable[float | None]) -> str:
    """A mean over seeds with the standard deviation, if there are several; of those that have a value.

    >>> mean_and_spread([10.0, 12.0]), mean_and_spread([10.0, None]), mean_and_spread([None])
    ('11.0 ± 1.4', '10.0', '-')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{fmean(known):.1f}" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def latex(words: str) -> str:
    """Words that LaTeX prints as they are.

    >>> print(latex("50 % of a_b"))
    50 \\% of a\\_b
    """
    return "".join(LATEX.get(sign, sign) for sign in _one_line(words))


def latex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(latex, cells)) + r" \\"


def markdown_row(cells: Iterable[str]) -> str:
    """A line of a pipe table.

    >>> markdown_row(["a|b", "1"])
    '| a\\\\|b | 1 |'
    """
    safe = (_one_line(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(safe)} |"


def _one_line(words: str) -> str:
    return " ".join(words.split())
