"""Cells of tables as LaTeX and Markdown print them."""

from __future__ import annotations

from collections.abc import Iterable

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
