"""Sweeps: from a file that names methods, benchmarks, seeds and a grid of settings to run folders, a table and a CSV.

A setting that belongs to a part (a term, a rule, an option of an objective or of a benchmark, the memory) is given to
the runs that have the part; the others are made once, without it. `[only.METHOD]` gives a method a part that it
does not have.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from ocssl._core.table import Row, Table, mean_cell
from ocssl._files.atomic import write_out
from ocssl._files.toml import read_toml
from ocssl._files.untrusted import reading
from ocssl.errors import OcsslError, SettingError, unknown
from ocssl.runs.config import RunSettings, resolve_run
from ocssl.runs.folder import SETTINGS, create_or_check, finished
from ocssl.settings import PART_SECTIONS, Section, StreamSettings, flatten, validate

MOST_RUNS = 10_000
# sections whose other keys are options of the part that they name
OPTIONED: dict[str, type[BaseModel]] = {**PART_SECTIONS, "stream": StreamSettings}
LONGEST_NAME = 160
CSV = "sweep.csv"
NUMBERS = ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seconds")

# ---- the file -------------------------------------------------------------------------------------------------------


def _distinct(values: list[Any]) -> list[Any]:
    if any(isinstance(value, dict) for value in values):
        raise ValueError("it lists tables; list the values of one setting, as in [1, 2]")
    texts = [_text(int(value) if isinstance(value, float) and value.is_integer() else value) for value in values]
    twice = next((text for text, times in Counter(texts).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"it lists {twice} twice")
    return values


def _dotted(tree: Any) -> Any:
    return dict(flatten(tree)) if isinstance(tree, dict) else tree


Some = Field(min_length=1)
Text = Annotated[str, Some]
Texts = Annotated[list[Text], Some, AfterValidator(_distinct)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Values = Annotated[list[Any], Some, AfterValidator(_distinct)]
Settings = Annotated[dict[str, Any], BeforeValidator(_dotted)]  # by dotted keys


class Spec(Section):
    """What a sweep's file says."""

    methods: Texts
    benchmarks: Texts = Field(["synthetic"])
    seeds: Annotated[list[Seed], Some, AfterValidator(_distinct)] = Field([0])
    common: Settings = Field({}, alias="set")
    grid: Annotated[dict[str, Values], BeforeValidator(_dotted)] = Field({})
    only: dict[str, Settings] = Field({})
    data: dict[str, Text] = Field({})  # where the images of a benchmark lie
    out: Text | None = None


@dataclass(frozen=True)
class Planned:
    """A run of a sweep: its name, its point in the grid, and all its settings."""

    name: str
    point: Mapping[str, Any]
    settings: RunSettings


def read_spec(path: Path) -> Spec:
    """Read and check a sweep's file."""
    with reading(path, SettingError):
        tree = read_toml(path)
    if "methods" not in tree:
        raise SettingError(f'{path} names no methods; write for example: methods = ["solar", "er-fifo"].')
    try:
        spec = validate(Spec, tree)
        _refuse_ambiguous(spec)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
    return spec


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
            raise SettingError(f"{key} cannot be set; write: {key}s = [...].")
    most = len(spec.methods) * len(spec.benchmarks) * len(spec.seeds) * math.prod(map(len, spec.grid.values()))
    if most > MOST_RUNS:
        raise SettingError(
            f"the sweep asks for {most:,} runs; at most {MOST_RUNS:,} are made, so make the grid smaller."
        )


# ---- the runs -------------------------------------------------------------------------------------------------------


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
    [(name, times)] = Counter(run.name for run in runs).most_common(1)
    if times > 1:
        raise SettingError(f"two runs of the sweep would be named {name}; rename a recipe or a value.")
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


def _combinations(grid: Mapping[str, Sequence[Any]], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
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
        case [section, option, *_] if section in OPTIONED and option not in OPTIONED[section].model_fields:
            return 2
        case ["memory", *_]:
            return 1
    return 0


def _has(settings: RunSettings, key: str) -> bool:
    """Whether a run has the part that a setting belongs to."""
    from ocssl._training.assembly import REGISTRIES
    from ocssl.data import BENCHMARKS
    from ocssl.data.sources.source import parse_name

    match key.split("."):
        case ["terms", name, *_]:
            return name in settings.terms
        case ["memory", "rules", name, *_]:
            return settings.memory.capacity > 0 and name in (settings.memory.keep, settings.memory.draw)
        case [section, option, *_] if section in REGISTRIES:
            return option in REGISTRIES[section].options(getattr(settings, section).name)
        case ["stream", option, *_]:
            if not any(option in BENCHMARKS.options(name) for name in BENCHMARKS):
                options = [*StreamSettings.model_fields, *(o for name in BENCHMARKS for o in BENCHMARKS.options(name))]
                raise unknown("setting", key, {f"stream.{name}" for name in options})
            return option in BENCHMARKS.options(parse_name(settings.benchmark)[0])
    return True


def _require_buildable(settings: RunSettings) -> None:
    """Make a small learner of that kind: it checks the options of all parts, and whether they fit together."""
    from ocssl.encoders import ENCODERS
    from ocssl.learner import Learner

    narrow = {"width": 1} if "width" in ENCODERS.options(settings.encoder.name) else {}
    encoder = settings.encoder.model_copy(update=narrow)
    objective = settings.objective.model_copy(update={"projection": min(settings.objective.projection, 16)})
    learner = settings.learner().model_copy(update={"encoder": encoder, "objective": objective})
    Learner(settings.method, image_size=min(settings.stream.image_size, 32), settings=learner)


def _shorts(keys: Sequence[str]) -> dict[str, str]:
    """The last words of dotted keys, as many as make them different."""
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


# ---- the folder -----------------------------------------------------------------------------------------------------


def prepare(out: Path, runs: Sequence[Planned]) -> dict[str, Path]:
    """The folders of a sweep's runs by name, made where they are missing; one that holds another run is an error."""
    folders = {run.name: out / run.name for run in runs}
    for run in sorted(runs, key=lambda run: not (folders[run.name] / SETTINGS).exists()):  # refused before any is made
        create_or_check(folders[run.name], run.settings)
    return folders


def steps_of(run: Planned) -> int | None:
    """The optimizer steps of a run, where the size of its benchmark is known before it is read."""
    from ocssl.cost import ImageCounts, optimizer_steps

    try:
        return optimizer_steps(run.settings, ImageCounts.expected(run.settings))
    except SettingError:
        return None


def results(folders: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """The metrics of the finished runs."""
    found = {}
    for name, folder in folders.items():
        with suppress(OcsslError):  # a failure of that run
            if (metrics := finished(folder)) is not None:
                found[name] = metrics
    return found


def _grid_keys(runs: Sequence[Planned]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.point))


def write_csv(
    out: Path, runs: Sequence[Planned], metrics: Mapping[str, Mapping[str, Any]], failures: Mapping[str, str]
) -> Path:
    """A row for each run: what it is, whether it is finished, and what it reached."""
    keys = _grid_keys(runs)
    headers = ["run", "method", "benchmark", "seed", *keys, "state", *NUMBERS, "reason"]
    rows = []
    for run in runs:
        state = "failed" if run.name in failures else "finished" if run.name in metrics else "unfinished"
        numbers = [metrics.get(run.name, {}).get(key) for key in NUMBERS]
        what = [run.name, run.settings.method, run.settings.benchmark, run.settings.seed]
        point = [run.point.get(key, "") for key in keys]
        cells = [*what, *point, state, *("" if n is None else n for n in numbers), failures.get(run.name, "")]
        rows.append(Row([str(cell) for cell in cells]))
    words = (0, 1, 2, len(headers) - 1)
    write_out(out / CSV, Table(headers, rows, words).csv().encode())
    return out / CSV


def table(runs: Sequence[Planned], metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each method, benchmark and point of the grid: mean and standard deviation over seeds."""
    keys = _grid_keys(runs)
    several = len({run.settings.benchmark for run in runs}) > 1
    words = ["method", "benchmark"] if several else ["method"]
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        what = [run.settings.method, run.settings.benchmark][: len(words)]
        point = (str(run.point.get(key, "-")) for key in keys)
        groups.setdefault((*what, *point), []).extend([metrics[run.name]] if run.name in metrics else [])
    rows = []
    for row, found in groups.items():
        accuracies = (mean_cell(m.get(key) for m in found) for key in ("final_accuracy", "average_accuracy"))
        rows.append(Row([*row, str(len(found)), *accuracies]))
    return Table([*words, *keys, "seeds", "final", "average"], rows, text=range(len(words)))
