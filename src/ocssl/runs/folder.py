"""A run folder: what it holds, how one is made, and that only one process works in it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Any

from ocssl._core import checkpoint
from ocssl._files.untrusted import read_regular
from ocssl.errors import RunFolderError
from ocssl.runs.config import RunSettings, read_settings, to_toml
from ocssl.settings import flatten

SETTINGS, EVENTS, METRICS, CHECKPOINTS = "run.toml", "events.jsonl", "metrics.json", "checkpoints"
SNAPSHOTS = "snapshots"
METRIC_NAMES = {"method", "benchmark", "seed", "steps", "seconds", "final_accuracy", "average_accuracy"}  # at least
NUMBERS = ("start_accuracy", "final_accuracy", "average_accuracy")
COURSES = ("positions", "accuracies", "deviations", "overlaps")  # as long as there were evaluations
LARGEST_METRICS = 2**26  # bytes
IN_USE = "another process is running in"


def create(folder: Path, settings: RunSettings) -> None:
    """Make a run folder; an existing one is never overwritten."""
    try:
        _refuse_used(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not checkpoint.new_file(folder / SETTINGS, to_toml(settings).encode()):
            _refuse_used(folder)  # another process has just made it
        for path in folder.iterdir():
            if checkpoint.is_half(path, folder / SETTINGS):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror}.") from None


def place(folder: Path, settings: RunSettings) -> None:
    """Make a run folder, or see that the one which is there holds this run; its images may lie elsewhere by now."""
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
            with only_one(folder):
                write_out(folder / SETTINGS, to_toml(settings).encode())
        except RunFolderError as error:
            if not str(error).startswith(IN_USE):  # the process that is there goes on with what it was told
                raise


def _refuse_used(folder: Path) -> None:
    if (folder / SETTINGS).exists():
        how = "see its metrics.json" if (folder / METRICS).exists() else f"continue it with: ocssl resume {folder}"
        raise RunFolderError(f"{folder} already holds a run ({how}); name another folder with --out.")
    if folder.exists() and (not folder.is_dir() or any(_foreign(path, folder / SETTINGS) for path in folder.iterdir())):
        raise RunFolderError(f"{folder} is not empty and not a run; name another folder with --out.")


def _foreign(path: Path, settings: Path) -> bool:
    """Whether a file is none that processes leave which make the same folder, or were killed while they did."""
    return path != settings and not checkpoint.is_half(path, settings)


def write_out(path: Path, content: bytes) -> None:
    """Write a file that somebody asked for, with the folders above it; what hinders is told in one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.replace_file(path, content)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}.") from None


def finished(folder: Path) -> dict[str, Any] | None:
    """The metrics of a run that has come to its end."""
    try:
        found: dict[str, Any] = json.loads(read_regular(folder / METRICS, LARGEST_METRICS))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise RunFolderError(f"{folder / METRICS} is damaged: it is not JSON.") from None
    if not isinstance(found, dict) or not found.keys() >= METRIC_NAMES or not _numbers(found):
        raise RunFolderError(f"{folder / METRICS} is damaged: it holds no metrics of a run.")
    return found


def _numbers(metrics: dict[str, Any]) -> bool:
    """Whether metrics have the numbers that are drawn from them; some may not have been measured."""
    courses = [metrics[name] for name in COURSES if isinstance(metrics.get(name), list)]
    if len(courses) < len(COURSES) or len({len(course) for course in courses}) > 1:
        return False
    positions = [place for place in metrics["positions"] if isinstance(place, int) and place > 0]
    numbers = [metrics.get(name) for name in NUMBERS] + [number for course in courses for number in course]
    known = all(number is None or isinstance(number, int | float) for number in numbers)
    known = known and all(isinstance(metrics[name], int | float) for name in ("steps", "seconds"))
    return known and 0 < len(positions) == len(metrics["positions"])


def whole_checkpoints(folder: Path, kind: str = CHECKPOINTS) -> list[Path]:
    """Checkpoint folders whose writing came to its end; whether they are still good shows when they are read."""
    return sorted(path.parent for path in (folder / kind).glob(f"*/{checkpoint.MANIFEST}"))


class only_one:
    """A lock on a run folder: two processes in one would destroy each other's record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        path = self.folder / SETTINGS
        while True:
            self.file: IO[bytes] = open(path, "rb")
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(self.file.fileno()), os.stat(path)):
                    return
            except BlockingIOError:
                self.file.close()
                raise RunFolderError(f"{IN_USE} {self.folder}.") from None
            except OSError as error:
                self.file.close()
                raise RunFolderError(f"cannot lock {path}: {error.strerror}.") from None
            self.file.close()  # another file has been put in its place meanwhile: look again

    def __exit__(self, *exception: object) -> None:
        self.file.close()
