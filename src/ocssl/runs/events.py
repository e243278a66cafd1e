"""The diary of a run: one JSON object a line, in the order in which things happened."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocssl._files.untrusted import open_regular
from ocssl.errors import RunFolderError

if TYPE_CHECKING:
    from ocssl.runs.tracking import Follower

LONGEST = 2**24  # bytes of a line; what is longer is not ours


class Events:
    """Appends to `events.jsonl`; `sync` is where a checkpoint stands in it, and `cut` goes back there."""

    def __init__(self, path: Path, sinks: Sequence[Follower] = ()) -> None:
        self._sinks = sinks
        try:
            self._file = open(path, "ab")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise RunFolderError(f"cannot write to {path}: {error.strerror}.") from None

    def sync(self) -> int:
        """Put everything on disk and tell how much it is, for a checkpoint to remember."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, size: int) -> bool:
        """Forget all that was written after a checkpoint: it will happen again. False if there is less than that."""
        whole = self._file.tell() >= size
        self._file.truncate(size if whole else self._lines_end())
        self._file.seek(0, os.SEEK_END)
        return whole

    def _lines_end(self) -> int:
        """Where the last whole line ends."""
        with open(self._file.name, "rb") as file:
            return sum(len(line) for line in file if line.endswith(b"\n"))

    def write(self, event: str, **facts: Any) -> None:
        whole = {"event": event, **plain(facts)}
        self._file.write(json.dumps(whole).encode() + b"\n")
        self._file.flush()
        for sink in self._sinks:
            sink.write(whole)

    def close(self) -> None:
        with suppress(OSError):  # of what could not be written, on a full disk, it was told when it was to be
            self._file.close()
        for sink in self._sinks:
            sink.close()


def plain(value: Any) -> Any:
    """A value as JSON has it: NaN and infinity are null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_events(path: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The events of a run, of a file of at most so many bytes; a last line cut off by a crash is passed over."""
    try:
        with open_regular(path, most) as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST), b""), 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    raise RunFolderError(f"line {number} of {path} is not JSON.") from None
                if isinstance(event, dict) and "event" in event:
                    yield event
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}.") from None
