"""Run folders as a report sees them: whatever can be read of them, with a note on what cannot.

Nothing here trusts a folder. A run may be under way, killed, damaged, or made by someone else.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocssl.errors import RunFolderError
from ocssl.runs.events import read_events
from ocssl.runs.run import EVENTS, METRICS, SETTINGS

TRACED = ("steps", "ssl", "spread", "rank", "active")  # columns of `Run.trace`
RECORD_ONLY = ("method", "benchmark", "seed", "checkpoint")  # settings that make no variant of a method


@dataclass
class Evaluation:
    """What was measured after an experience; experience 0 is the untrained encoder."""

    experience: int
    seen: float
    accuracy: float | None
    deviation: float | None
    overlap: float | None  # share of pairs, 0 to 1


@dataclass
class Run:
    """One run folder. Numbers that are missing, infinite or no numbers are None."""

    folder: Path
    method: str
    benchmark: str
    seed: int | None
    text: str  # of run.toml
    settings: dict[str, Any]  # flat: "memory.capacity" -> 200
    finished: bool = False
    start: float | None = None
    final: float | None = None
    average: float | None = None
    steps: float | None = None
    seconds: float | None = None
    minibatches: tuple[float | None, float | None] = (None, None)  # done, of how many
    evaluations: list[Evaluation] = field(default_factory=list)
    trace: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in TRACED})
    collapsed: bool = False
    alarms: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    variant: str = ""  # settings in which it differs from other runs of its method
    name: str = ""  # the method, with its variant if there are several
    series: str = ""  # the name, with the benchmark if there are several; shared by runs that differ in the seed only
    label: str = ""  # its own


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """The runs of the folders given: each is a run folder, or contains some. Labels tell them apart."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inside = list(_run_folders(folder))
        if not inside:
            raise RunFolderError(f"{folder} holds no run: neither it nor a folder in it has a {SETTINGS}.")
        found.update({path.resolve(): path for path in inside})
    if not found:
        raise RunFolderError("no run folder was named.")
    runs = [read_run(path) for path in found]
    _name(runs)
    return runs


def _run_folders(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is {'not a folder' if folder.exists() else 'missing'}; name a run folder.")
    try:
        inside = sorted(path for path in folder.iterdir() if (path / SETTINGS).is_file())
    except OSError as error:
        raise RunFolderError(f"cannot read {folder}: {error.strerror}.") from None
    yield from [folder] if (folder / SETTINGS).is_file() else inside


def read_run(folder: Path) -> Run:
    """Everything a report shows of a run except its memory."""
    notes, text, settings = [], "", {}
    try:
        text = (folder / SETTINGS).read_text(encoding="utf-8")
        settings = dict(flatten(tomllib.loads(text)))
    except (OSError, ValueError, RecursionError):
        notes.append(f"{SETTINGS} cannot be read; names come from {METRICS} or the folder.")
    metrics: Any = None
    try:
        metrics = json.loads((folder / METRICS).read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError):
        notes.append(f"{METRICS} is damaged; numbers come from {EVENTS}.")
    facts = (metrics if isinstance(metrics, dict) else {}) | settings
    seed = facts.get("seed")
    run = Run(
        folder,
        method=str(facts.get("method", folder.name)),
        benchmark=str(facts.get("benchmark", "unknown")),
        seed=seed if isinstance(seed, int) else None,
        text=text,
        settings=settings,
        notes=notes,
    )
    _read_diary(run)
    if isinstance(metrics, dict):
        run.finished = True
        run.start, run.final, run.average, run.steps, run.seconds = (
            number(metrics.get(key))
            for key in ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seconds")
        )
        run.collapsed |= metrics.get("collapsed") is True
    if run.collapsed and not run.alarms:
        run.alarms.append("collapsed at an unknown step.")
    return run


def _read_diary(run: Run) -> None:
    """Evaluations, the course of the numbers and alarms; what is damaged ends the reading."""
    total: float | None = None
    try:
        for event in read_events(run.folder / EVENTS):
            match event["event"]:
                case "start":
                    total = number(event.get("minibatches"))
                case "step":
                    terms = event.get("terms")
                    active = terms.get("overlap.active") if isinstance(terms, dict) else None
                    facts = {**event, "ssl": event.get("ssl", event.get("loss")), "active": active}
                    for name, column in run.trace.items():
                        column.append(number(facts.get(name)))
                    run.steps, run.minibatches = number(event.get("steps")), (number(event.get("position")), total)
                case "evaluation":
                    seconds = number(event.get("seconds"))
                    run.seconds = seconds if seconds is not None else run.seconds
                    keys = ("experience", "seen", "accuracy", "deviation", "overlap")
                    experience, seen, *measured = (number(event.get(key)) for key in keys)
                    if experience is not None and seen is not None:
                        run.evaluations.append(Evaluation(int(experience), seen, *measured))
                case "collapse":
                    run.collapsed = True
                    run.alarms.append(f"collapsed at step {_count(run.steps)}: {event.get('message', '')}")
                case "non-finite-loss":
                    run.alarms.append(f"stopped after step {_count(run.steps)}: {event.get('message', '')}")
    except FileNotFoundError:
        run.notes.append(f"{EVENTS} is missing; there are no curves.")
    except (OSError, ValueError, RecursionError, RunFolderError):
        run.notes.append(f"{EVENTS} is damaged; the curves show what could be read.")
    after = [e.accuracy for e in run.evaluations if e.experience > 0 and e.accuracy is not None]
    run.start = next((e.accuracy for e in run.evaluations if e.experience == 0), None)
    if after:
        run.final, run.average = after[-1], sum(after) / len(after)


def _name(runs: list[Run]) -> None:
    """Give every run the series that it belongs to and a label of its own."""
    benchmarks, variants = {run.benchmark for run in runs}, _variants(runs)
    for run in runs:
        several = variants[run.method, run.benchmark]
        which = f"variant {several.index(run.variant) + 1}" if len(run.variant) > 40 else run.variant
        run.name = f"{short(run.method)} ({which})" if which else short(run.method)
        run.series = f"{run.name} on {short(run.benchmark)}" if len(benchmarks) > 1 else run.name
    seeds, taken = {run.seed for run in runs}, set[str]()
    for run in runs:
        run.label = f"{run.series}, seed {run.seed}" if len(seeds) > 1 else run.series
        if run.label in taken:
            run.label = f"{run.label}, {short(run.folder.name)} ({len(taken) + 1})"
        taken.add(run.label)


def _variants(runs: list[Run]) -> dict[tuple[str, str], list[str]]:
    """Note on each run how its settings differ from others of its method and benchmark; the texts in order."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        peers = [peer.settings for peer in runs if (peer.method, peer.benchmark) == (run.method, run.benchmark)]
        keys = [key for key in sorted(set().union(*peers)) if key.split(".")[0] not in RECORD_ONLY]
        differ = [key for key in keys if any(peer.get(key) != run.settings.get(key) for peer in peers)]
        run.variant = ", ".join(f"{key}={run.settings.get(key, 'none')}" for key in differ)
        texts = found.setdefault((run.method, run.benchmark), [])
        if run.variant not in texts:
            texts.append(run.variant)
    return found


def flatten(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted keys."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{path}{key}.")
        else:
            yield path + key, value


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def short(text: str, most: int = 36) -> str:
    """A text that fits into a legend."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
