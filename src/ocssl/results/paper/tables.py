"""Tables of the paper: our numbers beside its own, on the screen and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import itertools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ocssl._core.cells import latex, latex_row, markdown_row
from ocssl.results.paper.gather import Group
from ocssl.results.paper.plan import Plan, Row
from ocssl.results.paper.scale import Scale

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

NAMES = {"cifar100": "CIFAR-100", "imagenet100": "ImageNet-100", "clear100": "CLEAR100", "inat": "iNaturalist"}
MEASURES = {"final": "Final", "average": "Average", "seconds": "s"}
ACCURACIES = ("final", "average")
NOTHING = "-"
WIDEST = 1000  # columns; no table is as wide


@dataclass(frozen=True)
class Table:
    """Ready cells under two rows of headings; `note` says what the numbers are."""

    title: str
    note: str
    groups: list[str]  # heading above each column, equal neighbours belong together
    headings: list[str]
    rows: list[list[str]]
    paired: bool = False  # columns under one heading are one on the screen

    def show(self, console: Console) -> None:
        """Print the table, or where it is too wide for the screen every row as a line that says all of it."""
        table = self.screen()
        if console.measure(table, options=console.options.update(width=WIDEST)).maximum <= console.width:
            console.print(table)
            return
        heads = [f"{group} {heading}".strip() for group, heading in self._heads()]
        lines = ["; ".join(f"{h} {cell}".strip() for h, cell in zip(heads, row, strict=True)) for row in self.rows]
        for line in (self.title, *lines, self.note):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def screen(self) -> RichTable:
        from rich.table import Table as RichTable

        table = RichTable(title=self.title, title_justify="left", caption=self.note, caption_justify="left")
        groups, headings, *rows = [self._narrow(line) for line in (self.groups, self.headings, *self.rows)]
        for place, (group, heading) in enumerate(zip(groups, headings, strict=True)):
            above = group.split(", ") if self.paired else [group]
            head = "\n".join([*above, heading]) if group else heading
            numbers = any(row[place][:1].isdigit() for row in rows)
            table.add_column(head, justify="right" if numbers else "left", min_width=None if place else 12)
        for row in rows:
            table.add_row(*row)
        return table

    def _narrow(self, cells: Sequence[str]) -> list[str]:
        """Neighbours under one heading as one cell, as the paper prints them, so that a line fits a terminal."""
        if not self.paired:
            return [cell.replace(" ± ", "±") for cell in cells]
        spans = itertools.groupby(zip(self.groups, cells, strict=True), key=lambda pair: pair[0])
        merged = [[cell.replace(" ± ", "±") for _, cell in span] for _, span in spans]
        return [span[0] if len(set(span)) == 1 and span[0] in self.groups else " / ".join(span) for span in merged]

    def markdown(self) -> str:
        heads = [f"{group}: {heading}" if group else heading for group, heading in self._heads()]
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *self.rows]
        body = "\n".join(map(markdown_row, lines))
        return f"**{self.title}**\n\n{body}\n\n{self.note}\n"

    def latex(self) -> str:
        spans: list[list[Any]] = []
        for group in self.groups:
            if spans and spans[-1][0] == group:
                spans[-1][1] += 1
            else:
                spans.append([group, 1])
        above = " & ".join(f"\\multicolumn{{{width}}}{{c}}{{{latex(group)}}}" for group, width in spans)
        lines = [latex_row(cells) for cells in (self.headings, *self.rows)]
        body = "\n".join([r"\toprule", above + r" \\", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
        shape = "l" + "r" * (len(self.headings) - 1)
        return f"% {self.title}. {self.note}\n\\begin{{tabular}}{{{shape}}}\n{body}\n\\end{{tabular}}\n"

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([f"{group} {heading}".strip() for group, heading in self._heads()])
        writer.writerows(self.rows)
        return text.getvalue()

    def _heads(self) -> list[tuple[str, str]]:
        return list(zip(self.groups, self.headings, strict=True))


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("paper.toml").read_text())


def paper_number(plan: str, row: str, benchmark: str, measure: str) -> tuple[float | None, float | None]:
    """What the paper's table says, with its standard deviation; None where it says nothing."""
    tables = [plan] if plan in _paper() else ["table1", "table2"]  # rows of an own plan have the same names
    rows = [_paper()[table][row] for table in tables if row in _paper()[table]]
    told = rows[0].get(benchmark, {}) if rows else {}
    return told.get(measure), told.get(f"{measure}_std")


def show(mean: float | None, deviation: float | None = None, form: str = ".1f") -> str:
    if mean is None:
        return NOTHING
    return f"{mean:{form}}" if deviation is None else f"{mean:{form}} ± {deviation:{form}}"


def accuracy_table(plan: Plan, scale: Scale, groups: Sequence[Group], start: str | None = None) -> Table:
    """Final and Average Accuracy of every row, ours and the paper's; `start` names a row that is only probed."""
    columns = [(benchmark, measure) for benchmark in scale.benchmarks(plan.benchmarks) for measure in ACCURACIES]
    rows = [
        [
            row.name,
            *(_ours(plan, row, groups, benchmark, measure, start) for benchmark, measure in columns),
            *(show(*paper_number(plan.name, row.name, b, measure)) for b in plan.benchmarks for measure in ACCURACIES),
        ]
        for row in plan.rows
    ]
    ours = [(ours_name(scale, benchmark), MEASURES[measure]) for benchmark, measure in columns]
    theirs = [(f"paper, {NAMES[benchmark]}", MEASURES[m]) for benchmark in plan.benchmarks for m in ACCURACIES]
    above, headings = zip(("", ""), *ours, *theirs, strict=True)
    seeds = "one seed" if len(plan.seeds) == 1 else f"mean ± standard deviation of {len(plan.seeds)} seeds"
    note = f"{scale.note} Accuracy in per cent, {seeds}."
    return Table(title_of(plan, scale), note, list(above), list(headings), rows, paired=True)


def _ours(plan: Plan, row: Row, groups: Sequence[Group], benchmark: str, measure: str, start: str | None) -> str:
    here = [group for group in groups if group.benchmark == benchmark]
    if row.name == start:  # what the runs that begin with its weights start from
        group = next((group for group in here if _starts_at(plan, group.row, start)), None)
        key = "start_accuracy" if measure == "final" else "none"
    else:
        group = next((group for group in here if group.row == row.name), None)
        key = f"{measure}_accuracy"
    return show(*group.number(lambda result: result.metrics.get(key))) + group.short if group else NOTHING


def _starts_at(plan: Plan, row: str, start: str) -> bool:
    return any(other.name == row and other.init == start for other in plan.rows)


def time_table(plan: Plan, scale: Scale, groups: Sequence[Group], against: str) -> Table:
    """Seconds of training, and as a multiple of one row's: ours and the paper's."""
    seconds = {group.row: group.number(lambda result: result.training_seconds())[0] for group in groups}
    benchmark = plan.benchmarks[0]
    reference, told = seconds.get(against), paper_number(plan.name, against, benchmark, "seconds")[0]
    rows = []
    for row in plan.rows:
        own, paper = seconds.get(row.name), paper_number(plan.name, row.name, benchmark, "seconds")[0]
        times = own / reference if own is not None and reference else None
        rows.append(
            [row.name, show(own), show(times, form=".2f"), show(paper, form=".0f"), _ratio(paper, told)],
        )
    ours, paper_name = ours_name(scale, scale.benchmarks(plan.benchmarks)[0]), f"paper, {NAMES[benchmark]}"
    ratio = f"of {against}"
    return Table(
        f"{title_of(plan, scale)}: one experience",
        f"{scale.note} Seconds without probing and saving, one run at a time.",
        ["", ours, ours, paper_name, paper_name],
        ["", "s", ratio, "s", ratio],
        rows,
        paired=True,
    )


def _ratio(value: float | None, reference: float | None) -> str:
    return show(value / reference if value is not None and reference else None, form=".2f")


def rules_table(plan: Plan, scale: Scale) -> Table:
    """Which rules methods go by, as their recipes say, and whether a step stays one forward and backward pass."""
    from ocssl.memory.draw import DRAWS
    from ocssl.memory.keep import KEEPS

    rows = []
    for row in plan.rows:
        memory = scale.resolve(row.method, scale.benchmarks(plan.benchmarks)[0], 0, row.set).memory
        asks = KEEPS[memory.keep].asks or DRAWS[memory.draw].asks
        rows.append([row.name, memory.keep, memory.draw, "no" if asks else "yes"])
    note = "Scalable: neither rule asks for further passes through the network."
    return Table(title_of(plan, scale), note, [""] * 4, ["", "keeps", "draws", "scalable"], rows)


def title_of(plan: Plan, scale: Scale) -> str:
    kind, number = plan.name.rstrip("0123456789"), plan.name.lstrip("abcdefghijklmnopqrstuvwxyz-")
    return f"{kind.capitalize()} {number}: {plan.title} ({scale.label})" if number else f"{plan.title} ({scale.label})"


def ours_name(scale: Scale, benchmark: str) -> str:
    return f"{scale.label}, {benchmark}" if scale.benchmark else NAMES[benchmark]
