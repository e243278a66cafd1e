"""Plans: a table or figure of the paper as a small TOML file, and the runs that it needs at a scale."""

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
from ocssl.results.paper.scale import Scale
from ocssl.runs.config import RunSettings, complete_run
from ocssl.settings import flatten, nest, validate

ALL = "all"
FORMAT = 2  # of addresses: raised when the same settings come to mean another result


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

    def points(self) -> Iterator[dict[str, Any]]:
        """The points of the grid; one that changes nothing where there is none."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


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
        wanted = {**plan.set, **row.set, **row.on.get(benchmark, {}), **point}
        settings = scale.resolve(row.method, benchmark, seed, wanted)
        parent = next((run for run in runs if run.row == row.init and run.settings.seed == seed), None)
        address = address_of(settings, parent.address if parent else None)
        runs.append(Planned(row.name, point, benchmark, settings, address, parent))
    return runs


def address_of(settings: RunSettings, parent: str | None = None) -> str:
    """A name for all that decides a run's result: the same for the same settings, wherever its data lie.

    It is made of the run's parts and of what is set otherwise than by default, so that a setting that is added to the
    package leaves the addresses of earlier runs alone.
    """
    told, usual = (dict(flatten(run.result())) for run in (settings, _as_usual(settings)))
    changed = {key: value for key, value in told.items() if key not in usual or usual[key] != value}
    names = [settings.objective.name, settings.memory.keep, settings.memory.draw, sorted(settings.terms)]
    start = [settings.init.parts, parent]
    return hashlib.sha256(json.dumps([FORMAT, names, changed, start], sort_keys=True).encode()).hexdigest()


def _as_usual(settings: RunSettings) -> RunSettings:
    """A run of the same parts, all of them with their defaults."""
    wanted = {
        "objective.name": settings.objective.name,
        "memory.keep": settings.memory.keep,
        "memory.draw": settings.memory.draw,
        "terms": {name: {} for name in settings.terms},
    }
    return complete_run(validate(RunSettings, {"method": "", "benchmark": settings.benchmark, **nest(wanted)}))
