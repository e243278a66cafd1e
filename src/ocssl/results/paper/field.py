"""Many methods on many streams: ranks, differences with corrected intervals, cost, and what has not been run.

A block is a benchmark, a stream and an objective. Methods are compared inside a block, on the seeds that both have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from ocssl._core.table import MISSING, Row, Table, mean_and_deviation, mean_cell, number_cell
from ocssl.results.compare import CONFIDENCE, LEAST_PAIRS, LEAST_SPREAD, TOO_FEW, t_quantile, t_within
from ocssl.results.paper.equal_compute import work
from ocssl.results.paper.plan import Plan, Planned
from ocssl.results.paper.run_store import Group

Scores = dict[int, float]  # by seed


@dataclass(frozen=True)
class Block:
    """What was measured of all methods on one benchmark, stream and objective."""

    name: str
    scores: dict[str, Scores]  # by method


@dataclass(frozen=True)
class Gap:
    """A method against the reference: mean of paired differences, p-value and corrected interval."""

    name: str
    mean: float
    pairs: int
    p: float | None  # None: too few pairs
    error: float = 0.0  # standard error of the mean
    half: float | None = None  # of Holm's interval
    clear: bool = False  # whether Holm's procedure calls it different from 0

    @property
    def words(self) -> str:
        if self.half is None:
            return f"{self.mean:+.2f} ({TOO_FEW})"
        return f"{self.mean:+.2f} [{self.mean - self.half:+.2f}, {self.mean + self.half:+.2f}]"


def block_name(run: Planned) -> str:
    """Benchmark, stream and objective, as in `cifar100, blurry 0.3, simclr`."""
    stream = [
        str(value) if key == "stream.order" else f"{key.removeprefix('stream.')} {value}"
        for key, value in run.point.items()
        if key.startswith("stream.")
    ]
    return ", ".join([run.settings.benchmark, *(stream or ["regular"]), str(run.point["objective.name"])])


def blocks_of(groups: Sequence[Group], measure: str = "average_accuracy") -> list[Block]:
    """The finished runs by blocks."""
    found: dict[str, dict[str, Scores]] = {}
    for group in groups:
        for result in group.results:
            value = result.metrics.get(measure)
            if isinstance(value, int | float):
                block = found.setdefault(block_name(result.planned), {})
                block.setdefault(group.row, {})[result.planned.settings.seed] = float(value)
    return [Block(name, scores) for name, scores in found.items()]


def ranks(scores: Mapping[str, float]) -> dict[str, float]:
    """1 for the highest; equal ones share the mean of their ranks."""
    ordered = sorted(scores.values(), reverse=True)
    return {name: ordered.index(value) + (ordered.count(value) + 1) / 2 for name, value in scores.items()}


def shared_means(block: Block) -> dict[str, float]:
    """Means over the seeds that all methods of the block have; without such seeds nothing."""
    seeds = set.intersection(*(set(own) for own in block.scores.values()))
    return {name: fmean(own[seed] for seed in seeds) for name, own in block.scores.items()} if seeds else {}


def complete(blocks: Sequence[Block], methods: Collection[str]) -> list[Block]:
    """The blocks in which all methods have a run with the same seed; ranks of some of them would say little."""
    return [block for block in blocks if block.scores.keys() >= set(methods) and shared_means(block)]


def gap(name: str, differences: Sequence[float]) -> Gap:
    """Paired differences by Student's t."""
    mean, pairs = fmean(differences), len(differences)
    if pairs < LEAST_PAIRS or (spread := stdev(differences)) < LEAST_SPREAD:
        return Gap(name, mean, pairs, None)
    error = spread / math.sqrt(pairs)
    return Gap(name, mean, pairs, 1 - t_within(abs(mean) / error, pairs - 1), error=error)


def holm(gaps: Sequence[Gap], confidence: float = CONFIDENCE) -> list[Gap]:
    """The gaps with Holm's intervals: of m tests the k-th smallest p-value has level (1 - confidence) / (m - k + 1).

    A test that comes after one that is not clear is not clear either, as in Holm's procedure.
    """
    tested = sorted((gap for gap in gaps if gap.p is not None), key=lambda gap: gap.p or 0.0)
    found: dict[str, Gap] = {}
    open_ = False
    for k, gap in enumerate(tested):
        level = (1 - confidence) / (len(tested) - k)
        half = gap.error * t_quantile(gap.pairs - 1, 1 - level)
        open_ = open_ or abs(gap.mean) <= half
        found[gap.name] = replace(gap, half=half, clear=not open_)
    return [found.get(gap.name, gap) for gap in gaps]


def against(blocks: Sequence[Block], reference: str) -> list[Gap]:
    """Every method against the reference in every block, named `block: method`, corrected for all of these tests."""
    gaps = []
    for block in blocks:
        theirs = block.scores.get(reference, {})
        for name, own in block.scores.items():
            shared = [own[seed] - theirs[seed] for seed in sorted(set(own) & set(theirs))]
            if name != reference and shared:
                gaps.append(gap(f"{block.name}: {name}", shared))
    return holm(gaps)


def overall(blocks: Sequence[Block], reference: str) -> list[Gap]:
    """Every method against the reference over blocks: one difference of means a block, corrected for the methods."""
    differences: dict[str, list[float]] = {}
    for block in blocks:
        means = shared_means(block)
        for name, mean in means.items():
            if name != reference and reference in means:
                differences.setdefault(name, []).append(mean - means[reference])
    return holm([gap(name, values) for name, values in differences.items()])


# ---- tables ---------------------------------------------------------------------------------------------------------


def ranks_table(plan: Plan, blocks: Sequence[Block], against_: str) -> Table:
    """Mean rank, the range of ranks, and the corrected difference over blocks: the best mean rank first."""
    found: dict[str, list[float]] = {}
    for block in blocks:
        for name, rank in ranks(shared_means(block)).items():
            found.setdefault(name, []).append(rank)
    gaps = {gap.name: gap for gap in overall(blocks, against_)}
    rows = []
    for name in sorted(found, key=lambda name: fmean(found[name])):
        own = found[name]
        difference = gaps[name].words if name in gaps else MISSING
        spread = f"{min(own):g} to {max(own):g}"
        rows.append(Row([name, f"{len(own)}", f"{fmean(own):.1f}", spread, difference]))
    heads = ["method", "blocks", "mean rank", "ranks", f"points above {against_}"]
    note = (
        "Average Accuracy; rank 1 is best. Only blocks in which all methods have been run, on the seeds that all have. "
        f"Differences are means over blocks with intervals corrected for {len(gaps)} methods (Holm, 95 %); blocks of "
        "one benchmark share their images, so intervals say little of other images."
    )
    return Table(heads, rows, text=(0, 3, 4), title=plan.title, caption=note, framed=True)


def blocks_table(blocks: Sequence[Block], against_: str) -> Table:
    """Average Accuracy of every method in every block, and its corrected difference from the reference."""
    gaps = {gap.name: gap for gap in against(blocks, against_)}
    rows = []
    for block in blocks:
        for name, own in sorted(block.scores.items(), key=lambda item: -fmean(item[1].values())):
            found = gaps.get(f"{block.name}: {name}")
            clear = ("yes" if found.clear else "no") if found and found.half is not None else MISSING
            words = found.words if found else MISSING
            rows.append(Row([name, f"{len(own)}", mean_cell(own.values()), words, clear], block.name))
    tests = sum(gap.p is not None for gap in gaps.values())
    note = f"Mean ± standard deviation over seeds. Intervals are corrected for {tests} comparisons (Holm, 95 %)."
    heads = ["method", "seeds", "average, %", f"points above {against_}", "clear"]
    return Table(heads, rows, text=(0, 3, 4), title="Block by block", caption=note, framed=True)


def cost_table(planned: Sequence[Planned], groups: Sequence[Group], against_: str) -> Table:
    """Passes that equal compute gives a method, its work beside the reference's, and the seconds of its runs."""
    rows = []
    first = {run.row: run.settings for run in reversed(planned)}
    budget = work(first[against_])
    for name in dict.fromkeys(run.row for run in planned):
        settings = first[name]
        spent = (result.training_seconds() for group in groups if group.row == name for result in group.results)
        seconds = number_cell(mean_and_deviation(spent)[0], form=".0f")
        rows.append(Row([name, f"{settings.schedule.passes}", f"{work(settings) / budget:.1%}", seconds]))
    note = "Work: rows through encoders, forwards and backwards (twice), in a stream minibatch with a full memory."
    heads = ["method", "passes", f"work, of {against_}", "training, s a run"]
    return Table(heads, rows, text=(0,), title="Cost", caption=note, framed=True)


def progress_table(planned: Sequence[Planned], groups: Sequence[Group]) -> Table:
    """How many of the planned runs of each block are finished."""
    done = {result.planned.address for group in groups for result in group.results}
    blocks: dict[str, dict[str, int]] = {}  # by address, the seed
    for run in planned:
        blocks.setdefault(block_name(run), {})[run.address] = run.settings.seed
    rows = []
    for name, seeds in blocks.items():
        there = sorted({seeds[address] for address in seeds.keys() & done})
        finished = f"{len(seeds.keys() & done)} of {len(seeds)}"
        rows.append(Row([name, finished, ", ".join(map(str, there)) or MISSING]))
    heads = ["block", "finished runs", "seeds"]
    return Table(heads, rows, text=(0, 1, 2), title="What has been run", framed=True)


def tables(plan: Plan, planned: Sequence[Planned], groups: Sequence[Group], against_: str) -> list[Table]:
    """All tables of the page; those of results only where there are any."""
    blocks = blocks_of(groups)
    whole = complete(blocks, {run.row for run in planned})
    results = [ranks_table(plan, whole, against_)] if whole else []
    results += [blocks_table(blocks, against_)] if blocks else []
    return [*results, cost_table(planned, groups, against_), progress_table(planned, groups)]
