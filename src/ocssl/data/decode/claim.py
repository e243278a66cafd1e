"""A file that one process writes, whole or not at all, while others that want the same file wait for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def claim(path: Path, waiting: Callable[[], None]) -> Iterator[IO[bytes] | None]:
    """A file to write, which becomes `path` at the end of the block; None if `path` is there, perhaps after waiting.

    It lies beside its place and is locked by its writer. The lock ends with the process however that ends, and the next
    writer writes over what a killed one has left.
    """
    beside = path.with_name(f".{path.name}.part")
    file = _locked(path, beside, waiting)
    if file is None:
        yield None
        return
    with file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _locked(path: Path, beside: Path, waiting: Callable[[], None]) -> IO[bytes] | None:
    while not path.exists():
        with open(os.open(beside, os.O_RDWR | os.O_CREAT, 0o666), "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is(file, beside):  # moved to its place, or removed, while this process waited: look again
                continue
            if path.exists():
                beside.unlink()
                continue
            file.truncate(0)
            return os.fdopen(os.dup(file.fileno()), "wb")  # the lock lives as long as one of the two
    return None


def _is(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
