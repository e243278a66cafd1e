"""A lock on a file. It ends with the process that holds it, `kill -9` included, and needs no lock file."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ocssl._files.untrusted import regular


@contextmanager
def locked(path: Path, mode: str = "rb", waiting: Callable[[], None] | None = None) -> Iterator[IO[bytes]]:
    """The open file at `path`, locked; reading suffices, so read-only places can be locked.

    If another process holds the lock: BlockingIOError, or with `waiting`, call it once and wait.
    """
    from filelock import lock_descriptor  # takes 50 ms to import

    while True:
        with open(path, mode, opener=regular) as file:
            if not lock_descriptor(file.fileno(), blocking=False):
                if waiting is None:
                    raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock", str(path))
                waiting()
                lock_descriptor(file.fileno())
            if _is_at(file, path):  # else replaced or removed meanwhile: lock what is there now
                yield file
                return


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
