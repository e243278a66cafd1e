"""Plans: a table or figure of the paper as a small TOML file, and the runs that it needs at a scale.

A scale is the paper's setting to the letter, or one fixed, smaller protocol that a CPU can run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from ocssl.errors import unknown
from ocssl.results.paper import equal_compute
from ocssl.runs.config import RunSettings, complete_run, resolve_run
from ocssl.settings import EncoderSettings, OptimizerSettings, flatten, nest, validate

ALL = "all"
FORMAT = 2  # of addresses: raised when the same settings come to mean another result
SCALES = ("mini", "paper")
SLOTS, TARGETS = "memory.capacity", "terms.overlap.k"  # what a smaller memory scales: its slots, and the Overlap's K
PRETRAIN = "pretrain"  # the recipe whose runs others start from


@dataclass(frozen=True)
class Scale:
    """What a scale changes about every run of a plan."""

    label: str
    note: str
    diagnosed: int  # stream images on which figures measure Deviation and Overlap; 0: all
    own: Mapping[str, Any]  # settings of all runs
    benchmark: str | None = None  # on which all run; None: those of the paper
    factor: float = 1.0  # of the paper's memory
    special: Mapping[str, Any] | None = None  # settings on that benchmark
    pretrain: Mapping[str, Any] | None = None  # benchmark and settings of pre-training

    def benchmarks(self, wanted: list[str]) -> list[str]:
        """Where a plan that names these benchmarks runs at this scale."""
        return [self.benchmark] if self.benchmark else wanted

    def resolve(self, method: str, benchmark: str, seed: int, wanted: Mapping[str, Any]) -> RunSettings:
        """The settings of a run for which a plan wants these."""
        settings = self._resolve(method, benchmark, seed, wanted)
        if method != PRETRAIN or not self.pretrain:
            return settings
        same = {  # the weights must fit the network of the stream's runs
            "stream.image_size": settings.stream.image_size,
            **{f"encoder.{key}": value for key, value in settings.encoder.model_dump().items()},
            "objective.projection": settings.objective.projection,
        }
        return self._resolve(method, self.pretrain["benchmark"], seed, {**wanted, **same, **self.pretrain["set"]})

    def _resolve(self, method: str, benchmark: str, seed: int, wanted: Mapping[str, Any]) -> RunSettings:
        given = {**self.own, **(self.special or {}), **wanted}
        settings = resolve_run(method, benchmark, seed, given)
        if self.factor == 1:
            return settings
        paper = resolve_run(method, "cifar100", seed, wanted)  # a benchmark may set the memory's size
        smaller: dict[str, Any] = {}
        if paper.memory.capacity:
            smaller[SLOTS] = round(self.factor * paper.memory.capacity)
        if "overlap" in settings.terms:
            smaller[TARGETS] = round(self.factor * paper.terms["overlap"]["k"])
        return resolve_run(method, benchmark, seed, {**given, **smaller})


def read_scale(name: str, benchmark: str | None = None) -> Scale:
    """The scale of a name; one that runs everything on one benchmark takes the first that it knows by default."""
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    table = tomllib.loads(files(__package__).joinpath("scales", f"{name}.toml").read_text())
    known = table.pop("benchmarks", {})
    given = {"own": table.pop("set"), "pretrain": table.pop(PRETRAIN, None)}
    if benchmark is None and known:
        benchmark = next(iter(known))
    if benchmark is not None:
        if benchmark not in known:
            choice = list(known) or ["none: the paper's benchmarks belong to it"]
            raise unknown(f"benchmark of the scale {name}", benchmark, choice)
        given |= {"benchmark": benchmark, "factor": known[benchmark]["memory"], "special": known[benchmark]["set"]}
    return Scale(**table, **given)


@dataclass(frozen=True)
class Row:
    """A method of a plan, with what is changed about it."""

    name: str
    method: str
    set: Mapping[str, Any] = field(default_factory=dict)
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further settings on one benchmark
    init: str | None = None  # the row whose runs it starts from


@dataclass(frozen=True)
class Plan:
    """A table or figure: rows and grid say which runs, `show` what is drawn from them."""

    name: str
    title: str
    benchmarks: list[str]
    rows: list[Row]
    show: list[dict[str, Any]]
    seeds: Sequence[int] = (0, 1, 2)
    set: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, list[Any]] = field(default_factory=dict)
    guessed: list[str] = field(default_factory=list)  # settings whose values the paper shows on an axis only
    alone: bool = False  # one run at a time, since it is time that is measured
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings of all rows on one benchmark
    equal: str | None = None  # the recipe whose work on a minibatch all rows do, by their number of passes

    def points(self) -> Iterator[dict[str, Any]]:
        """The points of the grid; one that changes nothing where there is none. A table is several settings at once."""
        for values in itertools.product(*self.grid.values()):
            yield dict(flatten(dict(zip(self.grid, values, strict=True))))


@dataclass(frozen=True)
class Planned:
    """A run that a plan needs, with its place in the plan. Two with one address are one run."""

    row: str
    point: dict[str, Any]  # of the plan's grid, in the paper's numbers
    benchmark: str  # where the plan wants it: at a smaller scale that may not be where it runs
    settings: RunSettings
    address: str
    parent: Planned | None = None  # whose weights it starts from

    @property
    def folder(self) -> str:
        """A name for its run folder that says what it is and depends on nothing but its settings."""
        run = self.settings
        return f"{run.method}-{run.benchmark}-seed{run.seed}-{self.address[:12]}"


def plan_names() -> list[str]:
    """The paper's plans: tables, then figures, in its order."""
    found = [name for name in _files() if re.fullmatch(r"(table|figure)\d+", name)]
    return sorted(found, key=lambda name: (not name.startswith("table"), int(re.sub(r"\D", "", name))))


def own_plans() -> list[str]:
    """Plans of this project's own experiments."""
    return sorted(set(_files()) - set(plan_names()))


def _files() -> list[str]:
    return [f.name.removesuffix(".toml") for f in files(__package__).joinpath("plans").iterdir()]


def chosen(words: Sequence[str], only: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Plan]:
    """The plans that a user named, `all` is every one of the paper; with `only` those that have one of these rows."""
    names = plan_names() if ALL in words else list(dict.fromkeys(words))
    plans = [read_plan(name) for name in names]
    if seeds:
        plans = [replace(plan, seeds=list(seeds)) for plan in plans]
    known = list(dict.fromkeys(row.name for plan in plans for row in plan.rows))
    for name in only:
        if name not in known:
            raise unknown("row", name, known)
    return [plan for plan in plans if not only or any(row.name in only for row in plan.rows)]


def by_seeds(runs: Sequence[Planned]) -> list[list[Planned]]:
    """Runs that differ in nothing but the seed, together, in their order."""
    groups: dict[tuple[str, str, str], list[Planned]] = {}
    for run in runs:
        groups.setdefault((run.row, repr(run.point), run.benchmark), []).append(run)
    return list(groups.values())


def of_rows(runs: Sequence[Planned], only: Sequence[str]) -> list[Planned]:
    """The runs of these rows, and those that they start from; without rows all."""
    roots = {run.parent.address for run in runs if run.parent and run.row in only}
    return [run for run in runs if not only or run.row in only or run.address in roots]


def read_plan(name: str) -> Plan:
    """The plan of a table or figure."""
    known = [*plan_names(), *own_plans()]
    if name not in known:
        raise unknown("table or figure", name, [*known, ALL])
    table = tomllib.loads(files(__package__).joinpath("plans", f"{name}.toml").read_text())
    rows = [Row(**row) for row in table.pop("rows")]
    return Plan(name, rows=rows, seeds=list(range(table.pop("seeds", 3))), **table)


def runs_of(plan: Plan, scale: Scale) -> list[Planned]:
    """The runs of a plan at a scale, row by row."""
    runs: list[Planned] = []
    for row, point, benchmark, seed in itertools.product(
        plan.rows, plan.points(), scale.benchmarks(plan.benchmarks), plan.seeds
    ):
        common = {**plan.set, **plan.on.get(benchmark, {}), **point}
        wanted = {**common, **row.set, **row.on.get(benchmark, {})}
        settings = scale.resolve(row.method, benchmark, seed, wanted)
        if plan.equal:
            budget = equal_compute.work(scale.resolve(plan.equal, benchmark, seed, common))
            settings = equal_compute.with_passes(settings, equal_compute.equal_passes(settings, budget))
        parent = next((run for run in runs if run.row == row.init and run.settings.seed == seed), None)
        address = address_of(settings, parent.address if parent else None)
        runs.append(Planned(row.name, point, benchmark, settings, address, parent))
    return runs


def address_of(settings: RunSettings, parent: str | None = None) -> str:
    """A name for all that decides a run's result: the same for the same settings, wherever its data are.

    It is made of the run's parts and of what is set otherwise than by default, so that a setting that is added to the
    package leaves the addresses of earlier runs alone.
    """
    own, usual = (dict(flatten(run.result())) for run in (settings, _as_usual(settings)))
    usual |= {"encoder.name": EncoderSettings().name, "optimizer.name": OptimizerSettings().name}
    changed = {key: value for key, value in own.items() if key not in usual or usual[key] != value}
    names = [settings.objective.name, settings.memory.keep, settings.memory.draw, sorted(settings.terms)]
    start = [settings.init.parts, parent]
    return hashlib.sha256(json.dumps([FORMAT, names, changed, start], sort_keys=True).encode()).hexdigest()


def _as_usual(settings: RunSettings) -> RunSettings:
    """A run of the same parts, all of them with their defaults."""
    wanted = {
        "encoder.name": settings.encoder.name,
        "objective.name": settings.objective.name,
        "optimizer.name": settings.optimizer.name,
        "memory.keep": settings.memory.keep,
        "memory.draw": settings.memory.draw,
        "terms": {name: {} for name in settings.terms},
    }
    return complete_run(validate(RunSettings, {"method": "", "benchmark": settings.benchmark, **nest(wanted)}))
