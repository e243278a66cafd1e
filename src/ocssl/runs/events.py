"""The events of a run, `events.jsonl`: one JSON object a line, in the order in which things happened."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocssl._files.untrusted import open_file, reason, regular
from ocssl.errors import RunFolderError

if TYPE_CHECKING:
    from ocssl.runs.tracking import Follower

LONGEST = 2**24  # bytes of a line; what is longer is not ours
RENAMED: dict[str, str] = {"rank": "participation_ratio"}  # keys of events that an earlier version wrote


class Events:
    """Appends to `events.jsonl`; `sync` returns the place of a checkpoint in it, and `cut` goes back there."""

    def __init__(self, path: Path, sinks: Sequence[Follower] = ()) -> None:
        self._sinks = sinks
        try:
            self._file = open(path, "ab", opener=regular)  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise RunFolderError(f"cannot write to {path}: {reason(error)}.") from None

    def sync(self) -> int:
        """Flush everything to disk; returns the size of the file, for a checkpoint to remember."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, size: int) -> bool:
        """Remove what was written after a checkpoint: it will happen again. False if the file is shorter than that."""
        complete = self._file.tell() >= size
        if not complete:
            with open_file(Path(self._file.name)) as file:
                lines = iter(partial(file.readline, LONGEST), b"")
                size = sum(len(line) for line in lines if line.endswith(b"\n"))
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)
        return complete

    def write(self, event: str, **facts: Any) -> None:
        line = {"event": event, **nan_to_none(facts)}
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        for sink in self._sinks:
            sink.write(line)

    def close(self) -> None:
        with suppress(OSError):  # a full disk: `write` has raised the error
            self._file.close()
        for sink in self._sinks:
            sink.close()


class NoEvents(Events):
    """Drops all events: of several ranks only the first one writes."""

    def __init__(self) -> None:
        pass

    def sync(self) -> int:
        return 0

    def cut(self, size: int) -> bool:
        return True

    def write(self, event: str, **facts: Any) -> None:
        pass

    def close(self) -> None:
        pass


def nan_to_none(value: Any) -> Any:
    """A value that JSON can hold: NaN and infinity become None."""
    if isinstance(value, dict):
        return {key: nan_to_none(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [nan_to_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_events(path: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The events of a file of at most `most` bytes; a last line that a crash cut off is skipped."""
    try:
        with open_file(path, most, links=False) as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST), b""), 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    raise RunFolderError(f"line {number} of {path} is not JSON.") from None
                if isinstance(event, dict) and "event" in event:
                    yield {RENAMED.get(str(key), str(key)): value for key, value in event.items()}
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {reason(error)}.") from None
