"""Files written all or nothing: beside their place, flushed to disk, then moved there."""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path
from typing import IO

from ocssl._files.lock import locked
from ocssl.errors import RunFolderError

_calls = count()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, over an older one if there is one."""
    require_file(path)
    with _beside(path, content, own=True) as part:
        os.replace(part, path)
    remove_parts(path.parent, path.name)


def require_file(path: Path) -> None:
    """An OSError where something is that is no file: a device would be replaced, for all programs."""
    with suppress(FileNotFoundError):
        kind = path.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind)):
            raise OSError(errno.EINVAL, "not a regular file", str(path))


def new_file(path: Path, content: bytes) -> bool:
    """Write a file unless one is there; False if so."""
    with _beside(path, content, own=False) as part:  # what is to be locked at its place must not be locked on the way
        try:
            os.link(part, path)
        except OSError:
            if path.exists():
                return False
            os.replace(part, path)  # a file system without links
    return True


def write_out(path: Path, content: bytes) -> None:
    """Write a file that a user asked for, and the folders above it; RunFolderError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}.") from None


@contextmanager
def written_once(path: Path, waiting: Callable[[], None]) -> Iterator[IO[bytes] | None]:
    """A file to write, which becomes `path` at the end of the block; None if `path` exists.

    One process writes; others call `waiting` and wait for it. If it is killed, the next one starts over.
    """
    part = path.with_name(f".{path.name}.part")
    while not path.exists():
        with locked(part, "ab", waiting) as file:
            try:
                if path.exists():  # the process that held the lock has written it
                    part.unlink()
                    break
                file.truncate(0)
                yield file
                move(file, path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            return
    yield None


def move(file: IO[bytes], path: Path) -> None:
    """Flush an open file to disk and move it to its place."""
    require_file(path)
    file.flush()
    os.fsync(file.fileno())
    os.replace(file.name, path)
    _sync(path.parent)


def is_part(path: Path, of: Path) -> bool:
    """Whether this is an unfinished version of a file, which a killed process leaves."""
    return path.name.startswith(f".{of.name}.") and path.name.endswith(".part")


def remove_parts(folder: Path, name: str = "*") -> None:
    """Remove unfinished versions of files of a folder, unless the process that writes one is still there."""
    for part in folder.glob(f".{escape(name) if name != '*' else name}.*.part"):
        with suppress(OSError):  # its writer holds the lock or has just moved it
            if stat.S_ISREG(part.lstat().st_mode):
                with locked(part):
                    part.unlink()


def remove_folder(path: Path) -> None:
    """Remove a folder so that, killed on the way, it is not there half: it gets another name first."""
    doomed = path.with_name(f".{path.name}.removed")
    if doomed.exists():
        shutil.rmtree(doomed)
    os.replace(path, doomed)
    shutil.rmtree(doomed)


def is_removed(path: Path) -> bool:
    """Whether this is what is left of a folder whose removal was interrupted."""
    return path.name.startswith(".") and path.name.endswith(".removed")


@contextmanager
def _beside(path: Path, content: bytes, own: bool) -> Iterator[Path]:
    """A file with this content beside a place, to be put there in the block. `own`: locked against removal."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{next(_calls)}.part")  # threads may write the same file
    try:
        with locked(part, "wb", _wait) if own else open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            yield part
    finally:
        part.unlink(missing_ok=True)
    _sync(path.parent)


def _wait() -> None:
    """Another writer that removes what is left looks at this file: a moment."""


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
