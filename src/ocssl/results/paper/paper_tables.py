"""Tables of the paper: our numbers beside its own, and what its runs would cost."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from ocssl import recipes
from ocssl._core.table import MISSING, Row, Table, number_cell
from ocssl.cost import Estimate, Machine, estimate
from ocssl.data.decode.files import Report, silent
from ocssl.results.paper.plan import Plan, Planned, Scale, by_seeds, of_rows, runs_of
from ocssl.results.paper.run_store import Group

NAMES = {name: recipes.title(name) for name in recipes.benchmarks()}
ACCURACIES = ("final", "average")


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("paper.toml").read_text())


def paper_number(plan: str, row: str, benchmark: str, measure: str) -> tuple[float | None, float | None]:
    """What the paper's table says, with its standard deviation; None where it says nothing."""
    tables = [plan] if plan in _paper() else ["table1", "table2"]  # rows of an own plan have the same names
    rows = [_paper()[table][row] for table in tables if row in _paper()[table]]
    found = rows[0].get(benchmark, {}) if rows else {}
    return found.get(measure), found.get(f"{measure}_std")


def accuracy_table(plan: Plan, scale: Scale, groups: Sequence[Group], start: str | None = None) -> Table:
    """Final and Average Accuracy of every row, ours and the paper's; `start` names a row that is only probed."""
    columns = [(benchmark, measure) for benchmark in scale.benchmarks(plan.benchmarks) for measure in ACCURACIES]
    rows = []
    for row in plan.rows:
        own = (_ours(plan, row.name, groups, benchmark, measure, start) for benchmark, measure in columns)
        papers = (paper_number(plan.name, row.name, b, measure) for b in plan.benchmarks for measure in ACCURACIES)
        rows.append(Row([row.name, *own, *(number_cell(*number) for number in papers)]))
    ours = [(ours_name(scale, benchmark), measure.capitalize()) for benchmark, measure in columns]
    theirs = [(f"paper, {NAMES[benchmark]}", m.capitalize()) for benchmark in plan.benchmarks for m in ACCURACIES]
    above, headings = zip(("", ""), *ours, *theirs, strict=True)
    seeds = "one seed" if len(plan.seeds) == 1 else f"mean ± standard deviation of {len(plan.seeds)} seeds"
    note = f"{scale.note} Accuracy in per cent, {seeds}."
    return Table(headings, rows, title=title_of(plan, scale), caption=note, above=above, paired=True, framed=True)


def _ours(plan: Plan, row: str, groups: Sequence[Group], benchmark: str, measure: str, start: str | None) -> str:
    rows, key = [row], f"{measure}_accuracy"
    if row == start:  # what the runs that begin with its weights start from
        rows = [other.name for other in plan.rows if other.init == start]
        key = "start_accuracy" if measure == "final" else "none"
    group = next((group for group in groups if group.benchmark == benchmark and group.row in rows), None)
    return number_cell(*group.number(key)) + group.short if group else MISSING


def time_table(plan: Plan, scale: Scale, groups: Sequence[Group], against: str) -> Table:
    """Seconds of training, and as a multiple of one row's: ours and the paper's."""
    seconds = {group.row: fmean(result.training_seconds() for result in group.results) for group in groups}
    benchmark = plan.benchmarks[0]
    reference, papers = seconds.get(against), paper_number(plan.name, against, benchmark, "seconds")[0]
    rows = []
    for row in plan.rows:
        own, paper = seconds.get(row.name), paper_number(plan.name, row.name, benchmark, "seconds")[0]
        cells = [number_cell(own), _ratio(own, reference), number_cell(paper, form=".0f"), _ratio(paper, papers)]
        rows.append(Row([row.name, *cells]))
    ours, paper_name = ours_name(scale, scale.benchmarks(plan.benchmarks)[0]), f"paper, {NAMES[benchmark]}"
    ratio = f"of {against}"
    return Table(
        ["", "s", ratio, "s", ratio],
        rows,
        title=f"{title_of(plan, scale)}: one experience",
        caption=f"{scale.note} Seconds without probing and saving, one run at a time.",
        above=["", ours, ours, paper_name, paper_name],
        paired=True,
        framed=True,
    )


def _ratio(value: float | None, reference: float | None) -> str:
    return number_cell(value / reference if value is not None and reference else None, form=".2f")


def rules_table(plan: Plan, scale: Scale) -> Table:
    """Which rules methods go by, as their recipes say, and whether a step stays one forward and backward pass."""
    from ocssl.memory.draw import DRAWS
    from ocssl.memory.keep import KEEPS

    rows = []
    for row in plan.rows:
        memory = scale.resolve(row.method, scale.benchmarks(plan.benchmarks)[0], 0, row.set).memory
        asks = KEEPS[memory.keep].asks or DRAWS[memory.draw].asks
        rows.append(Row([row.name, memory.keep, memory.draw, "no" if asks else "yes"]))
    note = "Scalable: neither rule asks for further passes through the network."
    heads = ["", "keeps", "draws", "scalable"]
    return Table(heads, rows, text=range(4), title=title_of(plan, scale), caption=note, framed=True)


def title_of(plan: Plan, scale: Scale) -> str:
    kind, number = plan.name.rstrip("0123456789"), plan.name.lstrip("abcdefghijklmnopqrstuvwxyz-")
    return f"{kind.capitalize()} {number}: {plan.title} ({scale.label})" if number else f"{plan.title} ({scale.label})"


def ours_name(scale: Scale, benchmark: str) -> str:
    return f"{scale.label}, {benchmark}" if scale.benchmark else NAMES[benchmark]


@dataclass(frozen=True)
class Costed:
    """Runs of a plan that differ in nothing but the seed, with the cost of each."""

    plan: Plan
    runs: list[Planned]
    new: int  # of them that no plan before asks for
    cost: Estimate


def cost_of(
    plans: Sequence[Plan], scale: Scale, machine: Machine, report: Report = silent, only: Sequence[str] = ()
) -> list[Costed]:
    """The cost of every group of runs, plan by plan; of all rows or of some."""
    known: set[str] = set()
    found: list[Costed] = []
    total = sum(len(plan.rows) * len([*plan.points()]) * len(scale.benchmarks(plan.benchmarks)) for plan in plans)
    for plan in plans:
        for runs in by_seeds(of_rows(runs_of(plan, scale), only)):
            report("counting the work of runs", len(found), total)
            addresses = {run.address for run in runs}
            cost = estimate(runs[0].settings, machine)
            found.append(Costed(plan, runs, len(addresses - known), cost))
            known |= addresses
    return found


def cost_table(costs: Sequence[Costed], scale: Scale, machine: Machine) -> Table:
    """A line for each group of runs."""
    rows = []
    for costed in costs:
        settings, cost = costed.runs[0].settings, costed.cost
        omega = settings.terms.get("overlap", {}).get("weight", 0.0)
        cells = [
            costed.plan.name,
            costed.runs[0].row,
            settings.benchmark,
            f"{len(costed.runs)}" + (f" ({costed.new} new)" if costed.new < len(costed.runs) else ""),
            f"{cost.steps:,}",
            f"{settings.optimizer.lr:g}",
            f"{settings.schedule.passes}",
            f"{settings.memory.capacity:,}",
            f"{omega:g}" if omega else "-",
            f"{cost.flops:.1e}",
            f"{cost.memory / 2**20:,.0f} MiB",
            _hours(cost.seconds),
        ]
        rows.append(Row(cells))
    heads = ["plan", "row", "benchmark", "runs", "steps", "lr", "passes", "M", "omega", "FLOP", "memory", "time a run"]
    total = sum(costed.new for costed in costs)
    flops, seconds = (sum(costed.new * getattr(costed.cost, key) for costed in costs) for key in ("flops", "seconds"))
    how = "measured rates" if machine.measured else "an assumed utilisation of its data sheet"
    note = (
        f"{scale.note} {total} runs in all, {flops:.2e} FLOP, {_hours(seconds)} one after another on {machine.name} "
        f"(estimate from {how}; reading and decoding of images and the later diagnoses of "
        "figures 3, 10 to 15 and 20 are not counted)."
    )
    if guessed := sorted({key for costed in costs for key in costed.plan.guessed}):
        note += f" Values that the paper shows on an axis only, and so are guesses: {', '.join(guessed)}."
    plans = list({costed.plan.name: costed.plan for costed in costs}.values())
    title = title_of(plans[0], scale) if len(plans) == 1 else f"{len(plans)} tables and figures ({scale.label})"
    return Table(heads, rows, text=range(3), title=title, caption=note, framed=True)


def _hours(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:,.1f} h"
