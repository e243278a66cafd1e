"""A run folder: what it holds, how one is made, and that only one process works in it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import IO, Any

from ocssl import checkpoint
from ocssl.errors import RunFolderError
from ocssl.runs.config import RunSettings, to_toml

SETTINGS, EVENTS, METRICS, CHECKPOINTS = "run.toml", "events.jsonl", "metrics.json", "checkpoints"
SNAPSHOTS = "snapshots"
METRIC_NAMES = {"method", "benchmark", "seed", "final_accuracy", "average_accuracy", "positions"}  # at least


def create(folder: Path, settings: RunSettings) -> None:
    """Make a run folder; an existing one is never overwritten."""
    try:
        _refuse_used(folder)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.replace_file(folder / SETTINGS, to_toml(settings).encode())
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror}.") from None


def _refuse_used(folder: Path) -> None:
    if (folder / SETTINGS).exists():
        how = "see its metrics.json" if (folder / METRICS).exists() else f"continue it with: ocssl resume {folder}"
        raise RunFolderError(f"{folder} already holds a run ({how}); name another folder with --out.")
    half = checkpoint.half_of(folder / SETTINGS)  # of a process that was killed while it made this folder
    if folder.exists() and (not folder.is_dir() or any(path != half for path in folder.iterdir())):
        raise RunFolderError(f"{folder} is not empty and not a run; name another folder with --out.")


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
        found: dict[str, Any] = json.loads((folder / METRICS).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise RunFolderError(f"{folder / METRICS} is damaged: it is not JSON.") from None
    if not isinstance(found, dict) or not found.keys() >= METRIC_NAMES:
        raise RunFolderError(f"{folder / METRICS} is damaged: it holds no metrics of a run.")
    return found


def whole_checkpoints(folder: Path, kind: str = CHECKPOINTS) -> list[Path]:
    """Checkpoint folders whose writing came to its end; whether they are still good shows when they are read."""
    return sorted(path.parent for path in (folder / kind).glob(f"*/{checkpoint.MANIFEST}"))


class only_one:
    """A lock on a run folder: two processes in one would destroy each other's record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        self.file: IO[bytes] = open(self.folder / SETTINGS, "rb")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.file.close()
            raise RunFolderError(f"another process is running in {self.folder}.") from None

    def __exit__(self, *exception: object) -> None:
        self.file.close()
