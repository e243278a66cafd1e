"""What plans would cost: every run with its steps, work, memory and time, before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ocssl.cost import Estimate, Images, Machine, estimate
from ocssl.cost.images import PUBLISHED
from ocssl.data.decode.images import Report, silent
from ocssl.data.sources.source import parse_name
from ocssl.results.paper.plan import Plan, Planned, of_rows, runs_of
from ocssl.results.paper.scale import PRETRAIN, Scale
from ocssl.results.paper.tables import Table, title_of
from ocssl.runs.config import RunSettings

# Sizes that are only known for certain once the images are there; the plans' costs are counted with these.
# CLEAR100: 11 time buckets, 100 images of each of 100 classes to learn from and 50 to test on.
# iNaturalist 2021 mini: 50 images a species, 10 to test on; 152 orders of animals; about 50 taxonomic classes.
BUCKETS, PER_BUCKET, TEST_BUCKETS = 11, 10_000, 55_000
PACS = (1670, 2048, 2344, 3929)  # photographs, art paintings, cartoons, sketches; a share is held out to test on
ANIMALS, ANIMAL_TESTS, PLANTS, PLANT_TESTS, ORDERS, TAXA = 269_400, 53_880, 213_550, 42_710, 152, 50


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
        groups: dict[tuple[str, str, str], list[Planned]] = {}
        for run in of_rows(runs_of(plan, scale), only):
            groups.setdefault((run.row, repr(run.point), run.benchmark), []).append(run)
        for runs in groups.values():
            report("counting the work of runs", len(found), total)
            addresses = {run.address for run in runs}
            cost = estimate(runs[0].settings, machine, images_of(runs[0].settings))
            found.append(Costed(plan, runs, len(addresses - known), cost))
            known |= addresses
    return found


def images_of(settings: RunSettings) -> Images:
    """How many images a run meets, also where a benchmark's size is only known once it is read."""
    kind, _ = parse_name(settings.benchmark)
    if kind == "synthetic" or kind in PUBLISHED:
        return Images.expected(settings)
    kept = 1 - settings.stream.validation
    if kind == "clear100":
        experiences = tuple([round(kept * PER_BUCKET)] * BUCKETS)
        test, classes = TEST_BUCKETS, 100
    elif kind == "pacs":
        held = settings.stream.test_share
        experiences = tuple(round(kept * (1 - held) * images) for images in PACS)
        test, classes = round(held * sum(PACS)), 7
    elif settings.method == PRETRAIN:
        experiences, test, classes = (round(kept * PLANTS),), PLANT_TESTS, ORDERS
    else:
        experiences, test, classes = tuple([round(kept * ANIMALS / TAXA)] * TAXA), ANIMAL_TESTS, ORDERS
    train = sum(experiences)
    return Images(experiences[: settings.stream.stop or None], train, round(train / kept) - train, test, classes)


def dry_table(costs: Sequence[Costed], scale: Scale, machine: Machine) -> Table:
    """A line for each group of runs."""
    rows = []
    for costed in costs:
        settings, cost = costed.runs[0].settings, costed.cost
        omega = settings.terms.get("overlap", {}).get("weight", 0.0)
        rows.append(
            [
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
        )
    heads = ["plan", "row", "benchmark", "runs", "steps", "lr", "passes", "M", "omega", "FLOP", "memory", "time a run"]
    new = [(costed.new, costed.cost) for costed in costs]
    total = sum(count for count, _ in new)
    flops, seconds = (sum(count * getattr(cost, key) for count, cost in new) for key in ("flops", "seconds"))
    how = "measured rates" if machine.measured else "an assumed utilisation of its data sheet"
    note = (
        f"{scale.note} {total} runs in all, {flops:.2e} FLOP, {_hours(seconds)} one after another on {machine.name} "
        f"(estimate from {how}; reading and decoding images and what figures 3, "
        "10 to 15 and 20 look back at are not counted)."
    )
    if guessed := sorted({key for costed in costs for key in costed.plan.guessed}):
        note += f" Values that the paper shows on an axis only, and so are guesses: {', '.join(guessed)}."
    plans = list({costed.plan.name: costed.plan for costed in costs}.values())
    title = title_of(plans[0], scale) if len(plans) == 1 else f"{len(plans)} tables and figures ({scale.label})"
    return Table(title, note, [""] * len(heads), heads, rows)


def _hours(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:,.1f} h"
