"""Files that others wrote: opened only if they are regular files, read only up to a size.

Functions here raise OSError for a file and ValueError for its content; `reading` turns both into an OcsslError.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ocssl.errors import OcsslError, printable

MOST_BYTES = 2**26  # of a text file
_NO_WAIT = sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOCTTY"))
_FLAGS = os.O_RDONLY | _NO_WAIT | getattr(os, "O_BINARY", 0)


def open_file(path: Path | bytes, most: int | None = None, links: bool = True) -> IO[bytes]:
    """Open a regular file of at most `most` bytes, never waiting for one; `links`: whether to follow symbolic links.

    A pipe or device may never end. A link in a folder may lead to what its maker cannot read and the reader can.
    """
    try:
        _require_regular(os.stat(path, follow_symlinks=links), most)  # first: opening a device can do things
        handle = os.open(path, _FLAGS | (0 if links else os.O_NOFOLLOW))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
    return open(_checked(handle, most), "rb")


def regular(path: str, flags: int) -> int:
    """An `opener` for the built-in `open`: a file to write or lock that is made if need be, and never waited for."""
    return _checked(os.open(path, flags | _NO_WAIT, 0o666))


def _checked(handle: int, most: int | None = None) -> int:
    """The handle of a regular file; that of anything else is closed."""
    try:
        _require_regular(os.fstat(handle), most)
    except OSError:
        os.close(handle)
        raise
    return handle


def _require_regular(facts: os.stat_result, most: int | None) -> None:
    if stat.S_ISLNK(facts.st_mode):
        raise OSError(errno.ELOOP, "a symbolic link")
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if most is not None and facts.st_size > most:
        raise _too_large(most)


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {most:,} bytes")


def read_bytes(path: Path, most: int | None, links: bool = True) -> bytes:
    """The content of a file."""
    with open_file(path, most, links) as file:
        content = file.read(-1 if most is None else most + 1) or b""
    if most is not None and len(content) > most:  # it has grown, or says that it has no size, as files of /proc do
        raise _too_large(most)
    return content


def read_text(path: Path, most: int = MOST_BYTES, links: bool = True) -> str:
    """The content of a text file."""
    try:
        return read_bytes(path, most, links).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("not a text file in UTF-8") from None


def read_json(
    path: Path, most: int = MOST_BYTES, links: bool = True, keep: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """The content of a JSON file; `keep` may make each of its objects smaller on the way."""
    text = read_text(path, most, links)
    try:
        return json.loads(text, object_hook=keep)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} in line {error.lineno}") from None
    except (RecursionError, ValueError):  # 100,000 opening brackets, or a number of 5,000 digits
        raise ValueError("not JSON that can be read") from None


@contextmanager
def reading(path: Path | str, kind: type[OcsslError]) -> Iterator[None]:
    """Turn an OSError or ValueError in the block into this kind of error, which names the file."""
    try:
        yield
    except OcsslError:
        raise
    except (OSError, ValueError) as error:
        raise kind(f"cannot read {path}: {reason(error)}.") from None


def read_lines(path: Path, kind: type[OcsslError]) -> list[str]:
    """The lines of a text file without the spaces around them; empty ones are left out."""
    with reading(path, kind):
        return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def reason(error: BaseException) -> str:
    """Why something failed: the first line of what the error says."""
    text = str(getattr(error, "strerror", None) or error).strip().partition("\n")[0]
    return printable(text[:300]).rstrip(".: ") or type(error).__name__
