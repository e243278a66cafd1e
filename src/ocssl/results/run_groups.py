"""Runs that belong together: their names, the seeds of one series, and series that may be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel

from ocssl._core.table import mean_and_deviation
from ocssl.results.read_runs import ONLINE, Run, read_runs
from ocssl.runs.config import RunSettings
from ocssl.settings import ObjectiveSettings

# settings that make no variant of a method: what is grouped by, how it is saved, and where files are
RECORD_ONLY = ("method", "benchmark", "seed", "checkpoint", "data", "init.path")
IMAGES_SEEN = ("data.bad_images",)  # of them, those that do: a run that skips images may see fewer
LATENT_VIEWS = ("views.", "evaluate.latent_")  # settings that latent measures depend on
MOST_VARIANT = 48  # characters of a variant in a name
LEAST_NAME = 3  # characters of a folder's name that says something

Accuracy = Literal["final", "average"]
ACCURACIES: tuple[Accuracy, ...] = ("final", "average")
Points = Iterable[tuple[float | None, float | None]]


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs of the folders given, with names that tell them apart."""
    runs = read_runs(folders)
    name_runs(runs)
    return runs


def name_runs(runs: list[Run]) -> None:
    """Give every run the series that it belongs to and a label."""
    methods, benchmarks = shortened(run.method for run in runs), shortened(run.benchmark for run in runs)
    for run, which in zip(runs, _variants(runs), strict=True):
        run.name = f"{methods[run.method]} ({which})" if which else methods[run.method]
        run.series = f"{run.name} on {benchmarks[run.benchmark]}" if len(benchmarks) > 1 else run.name
    seeds, taken = {run.seed for run in runs}, set[str]()
    for run in runs:
        run.label = f"{run.series}, seed {run.seed}" if len(seeds) > 1 else run.series
        if called(run) and f"({short(called(run))})" not in run.series:
            run.label = f"{short(run.folder.name)} ({run.label})"
        if run.label in taken:
            run.label = f"{run.label}, {short(run.folder.name)} ({len(taken) + 1})"
        taken.add(run.label)


def called(run: Run) -> str:
    """What a person called a run: the name of its folder without the seed; empty where a command named it.

    Commands name folders by method, settings and seed, and the tables say those. So do `solar`, `solar-0` and `0`, and
    names of one or two letters say nothing.
    """
    name = run.folder.name
    stem = re.sub(r"[-_ ]*(seed)?[-_ ]*\d*$", "", name, flags=re.IGNORECASE)
    method = Path(run.method).stem
    by_command = name.startswith(f"{method}-") and re.search(r"-seed\d", name)
    return "" if len(stem) < LEAST_NAME or stem.lower() == method.lower() or by_command else stem


def _stem(run: Run) -> str:
    """What a person called a run, or what a sweep added to the name of its folder; empty where there is neither.

    A sweep calls its folders METHOD-BENCHMARK-SETTINGS-seedN.
    """
    method = re.escape(Path(run.method).stem)
    added = re.fullmatch(rf"{method}-{re.escape(run.benchmark)}-(.+)-seed\d+", run.folder.name)
    return added[1] if added else called(run)


def _variants(runs: list[Run]) -> list[str]:
    """Note on each run how its settings differ from others of its method and benchmark; short forms for names.

    The short form is what a person called the runs, if that tells variants apart; else a variant that is too long for
    a name is cut after what tells it apart, or numbered.
    """
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.method, run.benchmark), []).append(run)
    names: dict[int, str] = {}
    for peers in alike.values():
        differences = [_differences(run, peers) for run in peers]
        distinct = list(dict.fromkeys(map(tuple, differences)))
        for run, own in zip(peers, differences, strict=True):
            run.variant = which = ", ".join(own)
            if len(which) > MOST_VARIANT:
                others = [other for other in distinct if other != tuple(own)]
                enough = next((n for n in range(1, len(own)) if all(tuple(own[:n]) != o[:n] for o in others)), len(own))
                which = ", ".join(own[:enough]) + ", …" * (enough < len(own))
            if len(which) > MOST_VARIANT:
                which = f"variant {distinct.index(tuple(own)) + 1}"
            names[id(run)] = which
        stems = {own: {_stem(run) for run in peers if run.variant == ", ".join(own)} for own in distinct}
        given = {next(iter(own)) for own in stems.values() if len(own) == 1}
        if len(distinct) > 1 and len(given) == len(distinct):
            names |= {id(run): short(_stem(run)) for run in peers}
    return [names[id(run)] for run in runs]


def _record_only(key: str) -> bool:
    return key not in IMAGES_SEEN and any(key == name or key.startswith(f"{name}.") for name in RECORD_ONLY)


def _differences(run: Run, peers: list[Run]) -> list[str]:
    """Settings in which a run differs from its peers, names of parts first, without those that follow from others."""
    mine, others = _with_parts(run), [_with_parts(peer) for peer in peers]
    keys = {key for other in others for key in other if not _record_only(key)}
    differ = [
        key
        for key in keys
        if any(_owner(key, other) == _owner(key, mine) and other.get(key) != mine.get(key) for other in others)
    ]
    parts = ("objective.name", "memory.keep", "memory.draw")
    return [f"{key}={mine.get(key, 'none')}" for key in sorted(differ, key=lambda key: (key not in parts, key))]


def _with_parts(run: Run) -> dict[str, Any]:
    """The settings, which images they were, and for each term that it is there."""
    terms = {key.rpartition(".")[0]: "on" for key in run.settings if key.startswith("terms.")}
    return _completed(run) | terms | {"images": (run.images or "unknown")[:8]}


def _completed(run: Run) -> dict[str, Any]:
    """The settings of a run; those that its version did not have yet with their defaults, which change nothing."""
    return _defaults() | run.settings if run.settings else {}


@cache
def _defaults() -> dict[str, Any]:
    """Every setting of a run that has a default, as a run.toml has it."""
    kept: dict[str, Any] = {}
    for name, field in RunSettings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            kept |= {f"{name}.{key}": inner.default for key, inner in field.annotation.model_fields.items()}
        else:
            kept[name] = field.default
    return {
        key: list(default) if isinstance(default, tuple) else default
        for key, default in kept.items()
        if isinstance(default, bool | int | float | str | tuple)
    }


def _owner(key: str, settings: dict[str, Any]) -> object:
    """The part that an option belongs to: options of different parts are not compared, as they follow from its name."""
    match key.split("."):
        case ["objective", option] if option not in ObjectiveSettings.model_fields:
            return settings.get("objective.name")
        case ["terms", _, _] | ["memory", "rules", _, _]:
            part = key.rpartition(".")[0] + "."
            return any(other.startswith(part) for other in settings)
    return None


def by_series(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but the seed, together; of several with one seed the last, finished ones first."""
    groups: dict[str, dict[int | None, Run]] = {}
    for run in runs:
        group = groups.setdefault(run.series, {})
        if run.finished or run.seed not in group or not group[run.seed].finished:
            group[run.seed] = run
    return {series: list(group.values()) for series, group in groups.items()}


def comparable(runs: Sequence[Run]) -> list[list[Run]]:
    """Finished runs with an accuracy, in groups that can be compared: one benchmark, regime, stream and evaluation."""
    return _grouped([run for run in runs if run.average is not None], ("evaluate.probe",))


def comparable_without_labels(runs: Sequence[Run]) -> list[list[Run]]:
    """Finished runs without labels, in such groups, with the same views."""
    return same_views([run for run in runs if not run.labelled])


def same_views(runs: Sequence[Run]) -> list[list[Run]]:
    """Finished runs whose latent measures can be compared: these depend on the views, too, and on their number."""
    keys = {key for run in runs for key in _completed(run) if key.startswith(LATENT_VIEWS)}
    return _grouped(runs, sorted(keys))


def _grouped(runs: Sequence[Run], keys: Sequence[str]) -> list[list[Run]]:
    """Finished runs that agree in these settings and in all that runs must have in common to be compared."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.regime != ONLINE):
        if run.finished:
            own = [_completed(run).get(key) for key in keys]
            groups.setdefault(f"{run.benchmark} {run.regime} {own} {sorted(_alike(run).items())}", []).append(run)
    return list(groups.values())


def circumstances(run: Run, others: Sequence[Run]) -> str:
    """The probe, and in what a group differs from the others on its benchmark; each is given by one of its runs."""
    others = [other for other in others if other.benchmark == run.benchmark]
    words = [f"{run.settings.get('evaluate.probe', 'unknown')} probe"]
    if {other.regime for other in others} != {ONLINE}:
        words.append(run.regime)
    mine, theirs = _alike(run), [_alike(other) for other in others]
    keys = sorted({key for other in theirs for key in other})
    differ = [key for key in keys if any(other.get(key) != mine.get(key) for other in theirs)]
    return "; ".join(words + [f"{key}={json.dumps(mine.get(key), default=str)}" for key in differ])


def _alike(run: Run) -> dict[str, Any]:
    """What runs must have in common to be compared, beside probe and regime, which implies the epochs."""
    settings = _completed(run)
    stream = {key: value for key, value in settings.items() if key.startswith("stream.") and key != "stream.epochs"}
    evaluated = {key: settings.get(key) for key in ("evaluate.compat", "evaluate.every")}
    return stream | evaluated | {"images": run.images and run.images[:8]}


def known(runs: Iterable[Run], measure: Accuracy) -> list[float]:
    """A measure of the runs that have it."""
    return [value for value in (getattr(run, measure) for run in runs) if value is not None]


def means_at(curves: Iterable[Points]) -> list[tuple[float, float, float | None]]:
    """Curves of seeds as one: place, mean, and standard deviation where several have a value there.

    >>> means_at([[(0.0, 1.0), (50.0, 2.0)], [(0.0, 3.0), (50.0, None)]])
    [(0.0, 2.0, 1.4142135623730951), (50.0, 2.0, None)]
    """
    found: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in curve:
            if x is not None and y is not None:
                found.setdefault(round(x, 2), []).append(y)
    return [(x, fmean(values), mean_and_deviation(values)[1]) for x, values in sorted(found.items())]


def short(text: str, most: int = 36) -> str:
    """A text that fits into a legend; of a path its end, which tells it from others."""
    if len(text) <= most:
        return text
    return "…" + text[1 - most :] if "/" in text else text[: most - 1] + "…"


def shortened(texts: Iterable[str]) -> dict[str, str]:
    """Texts as they fit into a legend, no two of them alike.

    >>> shortened(["solar", "x" * 50 + "a", "x" * 50 + "b"]).values()
    dict_values(['solar', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (2)'])
    """
    names: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        name, number = short(text), 1
        while name in names.values():
            number += 1
            name = f"{short(text)} ({number})"
        names[text] = name
    return names
