"""Sweeps: from a file that names methods, benchmarks, seeds and a grid of settings to the runs that it asks for.

A setting that belongs to a part (a term, a rule, an option of an objective or of a benchmark, the memory) is given to
the runs that have the part; the others are made once, without it. `[only.METHOD]` gives a method a part that it
does not have.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from ocssl.errors import SettingError, unknown
from ocssl.runs.config import RunSettings, resolve_run
from ocssl.settings import ObjectiveSettings, StreamSettings, flatten, whole

MOST_RUNS = 10_000
LARGEST_SPEC = 2**20  # bytes
LONGEST_NAME = 160
TABLES = ("set", "grid", "only", "data")
LISTS = ("methods", "benchmarks", "seeds")


@dataclass(frozen=True)
class Spec:
    """What a sweep's file says; settings by their dotted keys."""

    methods: tuple[str, ...]
    benchmarks: tuple[str, ...] = ("synthetic",)
    seeds: tuple[int, ...] = (0,)
    common: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    only: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)  # where the images of a benchmark lie
    out: Path | None = None


@dataclass(frozen=True)
class Planned:
    """A run of a sweep: its name, its point in the grid, and all its settings."""

    name: str
    point: Mapping[str, Any]
    settings: RunSettings


def read_spec(path: Path) -> Spec:
    """Read a sweep's file; what cannot be meant is refused."""
    try:
        if path.stat().st_size > LARGEST_SPEC:
            raise SettingError(f"{path} is too large for a sweep's file.")
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path} is not TOML: {error}.") from None
    for key in tree:
        if key not in (*LISTS, *TABLES, "out"):
            raise unknown(f"key in {path}:", key, [*LISTS, *TABLES, "out"])
    for key in TABLES:
        if not isinstance(tree.get(key, {}), dict):
            raise SettingError(f"{key} in {path} is {tree[key]!r}: it is a table, [{key}].")
    out = tree.get("out")
    if out is not None and not (isinstance(out, str) and out):
        raise SettingError(f"out in {path} is {out!r}: it is the name of a folder.")
    if "methods" not in tree:
        raise SettingError(f'{path} names no methods; write for example: methods = ["solar", "er-fifo"].')
    spec = Spec(
        methods=_words(tree["methods"], "methods"),
        benchmarks=_words(tree.get("benchmarks", ["synthetic"]), "benchmarks"),
        seeds=tuple(whole("a seed", seed, 0, 2**63 - 1) for seed in _list(tree.get("seeds", [0]), "seeds")),
        common=dict(flatten(tree.get("set", {}))),
        grid={key: tuple(_list(values, f"[grid] {key}")) for key, values in flatten(tree.get("grid", {}))},
        only={method: _own(table, method) for method, table in tree.get("only", {}).items()},
        data={name: _path(place, name) for name, place in tree.get("data", {}).items()},
        out=Path(out) if out else None,
    )
    _refuse_ambiguous(spec)
    return spec


def _list(values: Any, what: str) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise SettingError(f"{what} is {values!r}: it is a list of values, as in [1, 2].")
    if any(isinstance(value, dict) for value in values):
        raise SettingError(f"{what} lists tables; list the values of one setting, as in [1, 2].")
    texts = [_text(int(value) if isinstance(value, float) and value.is_integer() else value) for value in values]
    twice = next((text for text, times in Counter(texts).items() if times > 1), None)
    if twice is not None:
        raise SettingError(f"{what} lists {twice} twice.")
    return values


def _words(values: Any, what: str) -> tuple[str, ...]:
    for value in _list(values, what):
        if not isinstance(value, str):
            raise SettingError(f"{what} lists {value!r}: they are names.")
    return tuple(values)


def _own(table: Any, method: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise SettingError(f"[only] {method} is {table!r}: it is a table of settings, [only.{method}].")
    return dict(flatten(table))


def _path(place: Any, name: str) -> str:
    if not isinstance(place, str) or not place:
        raise SettingError(f"[data] {name} is {place!r}: it is the path of that benchmark's data.")
    return place


def _refuse_ambiguous(spec: Spec) -> None:
    for kind, table, known in (("method", spec.only, spec.methods), ("benchmark", spec.data, spec.benchmarks)):
        for name in table:
            if name not in known:
                raise unknown(f"{kind} in [{'only' if kind == 'method' else 'data'}]:", name, known)
    for place, table in {"[set]": spec.common, **{f"[only.{m}]": t for m, t in spec.only.items()}}.items():
        for key in spec.grid:
            if key in table:
                raise SettingError(f"{key} stands in [grid] and in {place}; leave one of them out.")
    for key in (*spec.common, *spec.grid, *(key for table in spec.only.values() for key in table)):
        if key in ("seed", "method", "benchmark"):
            raise SettingError(f"{key} is not to be set; write: {key}s = [...].")
    most = len(spec.methods) * len(spec.benchmarks) * len(spec.seeds) * math.prod(map(len, spec.grid.values()))
    if most > MOST_RUNS:
        raise SettingError(
            f"the sweep asks for {most:,} runs; at most {MOST_RUNS:,} are made, so make the grid smaller."
        )


def plan(spec: Spec) -> list[Planned]:
    """The runs of a sweep in the order methods, benchmarks, grid, seeds."""
    runs: list[Planned] = []
    met: set[str] = set()
    shorts = _shorts(tuple(spec.grid))
    for method, benchmark in product(spec.methods, spec.benchmarks):
        for point, settings in _points(spec, method, benchmark, met):
            words = [_slug(Path(method).stem), _benchmark_slug(benchmark)]
            words += [shorts[key] + _slug(value) for key, value in point.items()]
            _require_buildable(settings)
            for seed in spec.seeds:
                name = _fit("-".join([*words, f"seed{seed}"]))
                runs.append(Planned(name, point, settings.model_copy(update={"seed": seed})))
    for key in (*spec.common, *spec.grid):
        if key not in met:
            value = spec.grid[key][0] if key in spec.grid else spec.common[key]
            _require_buildable(_resolve(spec, spec.methods[0], spec.benchmarks[0], {key: value}))  # a wrong name
            raise SettingError(
                f"no run of the sweep has the part that {key} belongs to; give it to a method in [only.METHOD]."
            )
    taken: dict[str, Planned] = {}
    for run in runs:
        if run.name in taken:
            raise SettingError(f"two runs of the sweep would be named {run.name}; rename a recipe or a value.")
        taken[run.name] = run
    return runs


def _points(spec: Spec, method: str, benchmark: str, met: set[str]) -> Iterator[tuple[dict[str, Any], RunSettings]]:
    """The grid of one method on one benchmark: only what it has the part for."""

    def resolve(keys: Sequence[str], point: Mapping[str, Any]) -> RunSettings:
        return _resolve(spec, method, benchmark, {key: spec.common[key] for key in keys if key in spec.common}, point)

    def level(at: int) -> list[str]:
        return [key for key in (*spec.common, *spec.grid) if _level(key) == at]

    plain = level(0)
    if resolve(plain, {}).memory.capacity:
        plain += level(1)
    met.update(plain)
    for outer in _combinations(spec.grid, plain):
        settings, known = resolve(plain, outer), plain
        if level(2):
            known = [*plain, *(key for key in level(2) if _has(settings, key))]
            met.update(known)
        for inner in _combinations(spec.grid, [key for key in known if key not in plain]):
            chosen = {key: (outer | inner)[key] for key in spec.grid if key in outer or key in inner}
            yield chosen, settings if known == plain else resolve(known, chosen)


def _combinations(grid: Mapping[str, tuple[Any, ...]], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    mine = [key for key in grid if key in keys]
    for values in product(*(grid[key] for key in mine)):
        yield dict(zip(mine, values, strict=True))


def _resolve(
    spec: Spec, method: str, benchmark: str, common: Mapping[str, Any], point: Mapping[str, Any] = {}
) -> RunSettings:
    place = {"data.path": spec.data[benchmark]} if benchmark in spec.data else {}
    return resolve_run(method, benchmark, 0, {**place, **common, **spec.only.get(method, {}), **point})


def _level(key: str) -> int:
    """0: every run has it; 1: every run with a memory has it; 2: it belongs to a part that some runs have."""
    match key.split("."):
        case ["terms", *_] | ["memory", "rules", *_]:
            return 2
        case ["objective", option, *_] if option not in ObjectiveSettings.model_fields:
            return 2
        case ["stream", option, *_] if option not in StreamSettings.model_fields:
            return 2
        case ["memory", *_]:
            return 1
    return 0


def _has(settings: RunSettings, key: str) -> bool:
    """Whether a run has the part that a setting belongs to."""
    from ocssl.data import BENCHMARKS
    from ocssl.data.sources.source import parse_name
    from ocssl.objectives import OBJECTIVES

    match key.split("."):
        case ["terms", name, *_]:
            return name in settings.terms
        case ["memory", "rules", name, *_]:
            return settings.memory.capacity > 0 and name in (settings.memory.keep, settings.memory.draw)
        case ["objective", option, *_]:
            return option in OBJECTIVES.options(settings.objective.name)
        case ["stream", option, *_]:
            if not any(option in BENCHMARKS.options(name) for name in BENCHMARKS):
                options = [*StreamSettings.model_fields, *(o for name in BENCHMARKS for o in BENCHMARKS.options(name))]
                raise unknown("setting", key, {f"stream.{name}" for name in options})
            return option in BENCHMARKS.options(parse_name(settings.benchmark)[0])
    return True


def _require_buildable(settings: RunSettings) -> None:
    """Make a small learner of that kind: it checks the options of all parts, and whether they fit together."""
    from ocssl.learner import Learner

    encoder = settings.encoder.model_copy(update={"width": 1})
    objective = settings.objective.model_copy(update={"projection": min(settings.objective.projection, 16)})
    learner = settings.learner().model_copy(update={"encoder": encoder, "objective": objective})
    Learner(settings.method, image_size=min(settings.stream.image_size, 32), settings=learner)


def _shorts(keys: Sequence[str]) -> dict[str, str]:
    """The last words of dotted keys, as many as it takes to tell them apart."""
    short: dict[str, str] = {}
    for key in keys:
        words = key.split(".")
        tails = [".".join(words[-n:]) for n in range(1, len(words) + 1)]
        alone = (t for t in tails if not any(o != key and f".{o}".endswith(f".{t}") for o in keys))
        short[key] = _slug(next(alone, key))
    return short


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _slug(value: Any) -> str:
    """A value as part of a folder's name; a checksum where characters had to be replaced."""
    text = _text(value)
    safe = re.sub(r"[^A-Za-z0-9.+_-]+", "_", text if not isinstance(value, list) else "_".join(map(_text, value)))
    plain = safe.strip("._") or "x"
    return plain if plain == text or isinstance(value, list) else f"{plain}_{_sum(text)}"


def _benchmark_slug(benchmark: str) -> str:
    kind, _, place = benchmark.partition(":")
    return f"{kind}-{_slug(Path(place).name)}" if place else _slug(kind)


def _fit(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 7]}_{_sum(name)}"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
