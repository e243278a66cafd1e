"""Names of runs: the series that a run belongs to, and a label of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ocssl.results.read import Run, read_runs
from ocssl.results.untrusted_values import short, shortened
from ocssl.settings import ObjectiveSettings

# settings that make no variant of a method: what is grouped by, how it is saved, and where files lie
RECORD_ONLY = ("method", "benchmark", "seed", "checkpoint", "data", "init.path")
IMAGES_SEEN = ("data.bad_images",)  # of them, those that do: a run that skips images may see fewer
MOST_VARIANT = 48  # characters of a variant in a name


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs of the folders given, with names that tell them apart."""
    runs = read_runs(folders)
    name_runs(runs)
    return runs


def name_runs(runs: list[Run]) -> None:
    """Give every run the series that it belongs to and a label of its own."""
    methods, benchmarks = shortened(run.method for run in runs), shortened(run.benchmark for run in runs)
    for run, which in zip(runs, _variants(runs), strict=True):
        run.name = f"{methods[run.method]} ({which})" if which else methods[run.method]
        run.series = f"{run.name} on {benchmarks[run.benchmark]}" if len(benchmarks) > 1 else run.name
    seeds, taken = {run.seed for run in runs}, set[str]()
    for run in runs:
        run.label = f"{run.series}, seed {run.seed}" if len(seeds) > 1 else run.series
        if run.label in taken:
            run.label = f"{run.label}, {short(run.folder.name)} ({len(taken) + 1})"
        taken.add(run.label)


def _variants(runs: list[Run]) -> list[str]:
    """Note on each run how its settings differ from others of its method and benchmark; short forms for names.

    A variant that is too long for a name is cut after what tells it apart, or numbered.
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
    return run.settings | terms | {"images": (run.images or "unknown")[:8]}


def _owner(key: str, settings: dict[str, Any]) -> object:
    """The part that an option belongs to: options of different parts are not compared, as they follow from its name."""
    match key.split("."):
        case ["objective", option] if option not in ObjectiveSettings.model_fields:
            return settings.get("objective.name")
        case ["terms", _, _] | ["memory", "rules", _, _]:
            part = key.rpartition(".")[0] + "."
            return any(other.startswith(part) for other in settings)
    return None
