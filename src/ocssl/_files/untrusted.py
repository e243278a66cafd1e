"""Files from somebody else: opened only if they are plain files, and no larger than they may be."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO


def open_regular(path: Path, most: int | None = None, links: bool = False) -> IO[bytes]:
    """Open a file to read it, at most so many bytes of it; a pipe, a device or a link is an OSError that says so.

    A link may lead to what its maker cannot read and the reader can; a pipe or device never ends.
    """
    if not links and path.is_symlink():
        raise OSError(0, "it is a link", str(path))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    facts = os.fstat(handle)
    if stat.S_ISREG(facts.st_mode) and (most is None or facts.st_size <= most):
        return open(handle, "rb")
    os.close(handle)
    reason = "it is too large" if stat.S_ISREG(facts.st_mode) else "it is not a plain file"
    raise OSError(0, reason, str(path))


def read_regular(path: Path, most: int | None = None, links: bool = False) -> bytes:
    """The content of such a file."""
    with open_regular(path, most, links) as file:
        return file.read()
