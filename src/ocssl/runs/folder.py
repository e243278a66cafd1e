"""A run folder: what it holds, how one is made, and the lock by which only one process works in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ocssl._core import checkpoint
from ocssl._core.measures import MEASURES
from ocssl._files.atomic import is_part, is_removed, new_file, remove_folder, remove_parts, write_out
from ocssl._files.lock import locked
from ocssl._files.untrusted import read_json, reading
from ocssl.errors import RunFolderError
from ocssl.evaluate.per_task import summarise
from ocssl.learner import Learner
from ocssl.runs.config import RunSettings, read_settings, to_toml
from ocssl.settings import flatten

SETTINGS, EVENTS, METRICS, CHECKPOINTS = "run.toml", "events.jsonl", "metrics.json", "checkpoints"
SNAPSHOTS = "snapshots"
SKIPPED = "skipped.tsv"  # kind, name and reason of every file that is not used
METRIC_NAMES = {"method", "benchmark", "seed", "steps", "seconds", "final_accuracy", "average_accuracy"}  # at least
NUMBERS = ("start_accuracy", "final_accuracy", "average_accuracy")
COURSES = ("positions", "accuracies", "deviations", "overlaps")  # as long as there were evaluations
LARGEST_METRICS = 2**26  # bytes
IN_USE = "another process is running in"


def create(folder: Path, settings: RunSettings) -> None:
    """Make a run folder; an existing one is never overwritten."""
    content = to_toml(settings).encode()
    made = [path for path in (folder, *folder.parents) if not os.path.exists(path)]
    try:
        _refuse_used(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not new_file(folder / SETTINGS, content):
            _refuse_used(folder)  # another process has just made it
        for path in folder.iterdir():
            if is_part(path, folder / SETTINGS):
                path.unlink(missing_ok=True)
    except OSError as error:
        for path in made:
            with suppress(OSError):  # another process has put something there
                path.rmdir()
        raise RunFolderError(f"cannot write to {folder}: {error.strerror}.") from None


def create_or_check(folder: Path, settings: RunSettings) -> None:
    """Make a run folder, or check that an existing one holds this run; its images may have moved."""
    if not (folder / SETTINGS).exists():
        try:
            create(folder, settings)
        except RunFolderError:
            if not (folder / SETTINGS).exists():  # else another process has just made it
                raise
    found = read_settings(folder / SETTINGS)
    here, wanted = dict(flatten(found.result())), dict(flatten(settings.result()))
    for key in sorted(here.keys() | wanted.keys()):
        if here.get(key) != wanted.get(key):
            raise RunFolderError(
                f"{folder} holds another run: its {key} is {here.get(key)!r}, and {wanted.get(key)!r} is asked for; "
                "move it away, or name another folder with --out."
            )
    if found != settings and finished(folder) is None:
        try:
            with run_lock(folder):
                write_out(folder / SETTINGS, to_toml(settings).encode())
        except RunFolderError as error:
            if not str(error).startswith(IN_USE):  # the process that runs there keeps its settings
                raise


def _refuse_used(folder: Path) -> None:
    if (folder / SETTINGS).exists():
        how = "see its metrics.json" if (folder / METRICS).exists() else f"continue it with: ocssl resume {folder}"
        raise RunFolderError(f"{folder} already holds a run ({how}); name another folder with --out.")
    if not folder.exists():
        return
    # Processes that make the same folder, or were killed while they did, leave unfinished versions of the settings.
    ours = folder / SETTINGS
    if not folder.is_dir() or any(path != ours and not is_part(path, ours) for path in folder.iterdir()):
        raise RunFolderError(f"{folder} is not empty and not a run; name another folder with --out.")


def finished(folder: Path) -> dict[str, Any] | None:
    """The metrics of a finished run; None before its end."""
    with reading(folder / METRICS, RunFolderError):
        try:
            found: dict[str, Any] = read_json(folder / METRICS, LARGEST_METRICS, links=False)
        except FileNotFoundError:
            return None
    if not isinstance(found, dict) or not found.keys() >= METRIC_NAMES or not _numbers(found):
        raise RunFolderError(f"{folder / METRICS} is damaged: it holds no metrics of a run.")
    return found


def _numbers(metrics: dict[str, Any]) -> bool:
    """Whether metrics hold the numbers that tables and figures need; some may not have been measured."""
    courses = [metrics[name] for name in COURSES if isinstance(metrics.get(name), list)]
    if len(courses) < len(COURSES) or len({len(course) for course in courses}) > 1:
        return False
    positions = [place for place in metrics["positions"] if isinstance(place, int) and place > 0]
    numbers = [metrics.get(name) for name in NUMBERS] + [number for course in courses for number in course]
    known = all(number is None or isinstance(number, int | float) for number in numbers)
    known = known and all(isinstance(metrics[name], int | float) for name in ("steps", "seconds"))
    return known and 0 < len(positions) == len(metrics["positions"])


def complete_checkpoints(folder: Path, kind: str = CHECKPOINTS) -> list[Path]:
    """Checkpoint folders that were written completely; damage shows when they are read."""
    return sorted(path.parent for path in (folder / kind).glob(f"*/{checkpoint.MANIFEST}"))


def clean(folder: Path) -> None:
    """Remove what killed processes left in a run folder: unfinished files and checkpoints. Call it under the lock."""
    for part in folder.glob(f".{SETTINGS}.*.part"):  # may be the file itself under a second name, which is locked
        part.unlink(missing_ok=True)
    remove_parts(folder)
    for kind in (folder / CHECKPOINTS, folder / SNAPSHOTS):
        for path in kind.iterdir() if kind.is_dir() else []:
            if path.is_symlink() or not path.is_dir():
                continue
            if is_removed(path):
                shutil.rmtree(path)
            elif path.name.isdecimal() and not (path / checkpoint.MANIFEST).exists():
                remove_folder(path)
            else:
                remove_parts(path)


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """A lock on a run folder: two processes in one would destroy each other's record."""
    path = folder / SETTINGS
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
        except BlockingIOError:
            raise RunFolderError(f"{IN_USE} {folder}.") from None
        except OSError as error:
            raise RunFolderError(f"cannot lock {path}: {error.strerror}.") from None
        yield


if TYPE_CHECKING:
    from ocssl.runs.run import Position


def summary(
    settings: RunSettings, position: Position, learner: Learner, faults: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    """Final and average accuracy with all that they were made of."""
    after = [e for e in position.evaluations if e["experience"] > 0]
    start = [e for e in position.evaluations if e["experience"] == 0]
    accuracies = [e["accuracy"] for e in after]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return {
        "method": settings.method,
        "benchmark": settings.benchmark,
        "seed": settings.seed,
        "probe": settings.evaluate.probe,
        "probe_compat": settings.evaluate.compat,
        "start_accuracy": start[0]["accuracy"] if start else None,
        "final_accuracy": known[-1] if known else None,
        "average_accuracy": sum(known) / len(known) if known else None,
        "accuracies": accuracies,
        "positions": [e["position"] for e in after],
        **{measure.series: [e.get(measure.key) for e in after] for measure in MEASURES.of("evaluation")},
        "tasks": _tasks(after, start, at_ends=not settings.evaluate.every),
        "collapsed": position.warned,
        "bad_images": {"count": len(faults), "images": [{"name": n, "reason": r} for n, r in faults.items()]},
        "steps": learner.steps,
        "seen": learner.seen,
        "seconds": round(seconds, 3),
    }


def _tasks(after: list[dict[str, Any]], start: list[dict[str, Any]], at_ends: bool) -> dict[str, Any] | None:
    """What the tasks' own probes say, where there are some: the whole matrix and what is read from it."""
    if not after or any(e.get("tasks") is None for e in after):
        return None
    matrix = np.array([e["tasks"] for e in after], dtype=np.float64)
    seen = [e["task"] for e in after]
    baseline = start[0]["tasks"] if start else None
    found = asdict(summarise(matrix, seen, baseline)) if at_ends and None not in seen else {}
    return {"matrix": matrix.tolist(), "tasks_seen": seen, "baseline": baseline, **found}
