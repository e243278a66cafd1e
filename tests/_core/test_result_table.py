"""Facts about tables: what is written in each form, and that words from outside stay words."""

from __future__ import annotations

import csv
import io
import re

from rich.console import Console

from ocssl._core.table import Row, Table, mean_and_deviation

STRANGE = r"a_b & 5 % \x {y} $z$ <b> |"
GROUPED = Table(
    ("method", "final, %"),
    (Row((STRANGE, "1.0 ± 2.0"), "online"), Row(("=1+1", "-"), "offline: 2\nepochs")),
    caption="A caption.",
    first="online",
)
HEADED = Table(("", "Final"), [Row(("a & b | c", "1.0 ± 0.5"))], title="50 % & more", caption="note", above=("", "g"))


def shown(table: Table, width: int = 100) -> str:
    text = io.StringIO()
    table.show(Console(file=text, width=width, markup=False))
    return text.getvalue()


def test_latex_has_booktabs_and_no_bare_signs() -> None:
    text = GROUPED.latex()
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lr}", r"1.0 $\pm$ 2.0"):
        assert word in text
    assert r"a\_b \& 5 \% \textbackslash{}x \{y\} \$z\$" in text
    assert r"\multicolumn{2}{l}{\emph{offline: 2 epochs}}" in text
    body = text.replace(r"\\", "").splitlines()[4:-2]
    assert not [line for line in body if re.search(r"(?<!\\)[%#_]", line)]


def test_markdown_rows_have_as_many_cells_as_the_head() -> None:
    lines = [line for line in GROUPED.markdown().splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert "&lt;b>" in lines[3]


def test_csv_gives_every_cell_back_and_no_formula() -> None:
    head, first, second = csv.reader(io.StringIO(GROUPED.for_programs().csv()))
    assert head == ["group", "method", "final, %"]
    assert first == ["online", STRANGE, "1.0 ± 2.0"]
    assert second == ["offline: 2\nepochs", "'=1+1", ""]


def test_two_rows_of_headings_in_each_form() -> None:
    assert HEADED.latex().splitlines()[0] == "% 50 % & more. note"
    assert r"\multicolumn{1}{c}{} & \multicolumn{1}{c}{g} \\" in HEADED.latex()
    assert r"a \& b | c & 1.0 $\pm$ 0.5 \\" in HEADED.latex()
    assert HEADED.markdown().startswith("**50 % & more**\n\n|  | g: Final |\n| --- | ---: |\n")
    assert r"| a & b \| c | 1.0 ± 0.5 |" in HEADED.markdown()
    assert list(csv.reader(io.StringIO(HEADED.csv()))) == [["", "g Final"], ["a & b | c", "1.0 ± 0.5"]]


def test_columns_are_aligned_alike_in_each_form() -> None:
    """Negative numbers and dashes among numbers, and words among words."""
    rows = [Row(("solar", "fifo", "-1.5", "-")), Row(("er-reservoir", "uniform", "-10.5", "-"))]
    table = Table(("method", "keep", "uniformity", "none at all"), rows, text=(0, 1), framed=True)
    assert r"\begin{tabular}{llrr}" in table.latex()
    assert r"\multicolumn" not in table.latex()
    assert "| --- | --- | ---: | ---: |" in table.markdown()
    assert "│ solar        │ fifo    │       -1.5 │           - │" in shown(table)


def test_a_table_that_is_too_wide_for_a_screen_is_lines_that_say_everything() -> None:
    heads = ["plan", "row", "FLOP", "memory", "time a run"]
    rows = [["figure10", "SOLAR [a/b] with [bold]", f"{n}.0e+16", "23,456 MiB", "12.5 h"] for n in range(3)]
    table = Table(heads, [Row(row) for row in rows], title="title", caption="note", framed=True)
    for width, wide in ((200, True), (40, False)):
        text = shown(table, width)
        assert ("┃" in text) == wide
        assert "…" not in text
        assert all(cell in text for row in rows for cell in row)
        assert "title" in text
        assert "note" in text


def test_a_deviation_needs_two_values() -> None:
    assert mean_and_deviation([None]) == (None, None)
    assert mean_and_deviation([2.0, None]) == (2.0, None)
    assert mean_and_deviation([1.0, 3.0, None]) == (2.0, 2.0**0.5)
