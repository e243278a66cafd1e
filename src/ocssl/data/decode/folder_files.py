"""Encoded images that are files of a folder."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ocssl.data.decode.encoded import Packed, Rows, printable
from ocssl.errors import DataError

if TYPE_CHECKING:
    from ocssl.data.decode.images import Report

SUFFIXES = frozenset(
    (b".jpg", b".jpeg", b".png", b".webp", b".bmp", b".gif", b".tif", b".tiff", b".ppm", b".avif", b".jp2")
)
MOST_BYTES = 256 * 2**20  # of one encoded image

# a pipe must not block, even one that took the place of a file a moment ago
_OPEN = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))


class FolderFiles:
    """Files of a folder by their names in it. Names may come from anywhere: none is followed out of the folder."""

    def __init__(self, root: Path, names: Packed) -> None:
        self.root = Path(root)
        self.names = names  # relative to root, with / between the parts
        self._top = os.path.realpath(os.fsencode(self.root))
        self._facts: np.ndarray[tuple[int, int], np.dtype[np.int64]] | None = None  # [2, n] size, time of writing

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        return printable(self.names[row])

    def read(self, row: int) -> bytes:
        return read_inside(self._top, self.names[row])

    def subset(self, rows: Rows) -> FolderFiles:
        part = FolderFiles(self.root, self.names.take(rows))
        part._facts = None if self._facts is None else self._facts[:, rows]
        return part

    def stored(self) -> Rows:
        return np.arange(len(self))

    def fingerprint(self) -> str:
        return self._digest(self._known()[:1])

    def stamp(self) -> str:
        return self._digest(self._known())

    def _digest(self, facts: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> str:
        return hashlib.sha256(self.names.digest() + np.ascontiguousarray(facts, "<i8").tobytes()).hexdigest()

    def _known(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Size and time of every file, asked for once; -1 for one that is not there."""
        if self._facts is None:
            facts = np.full((2, len(self)), -1, dtype=np.int64)
            for row, name in enumerate(self.names):
                try:
                    found = os.stat(os.path.join(self._top, name))
                except (OSError, ValueError):
                    continue
                facts[0, row], facts[1, row] = found.st_size, found.st_mtime_ns
            self._facts = facts
        return self._facts


def read_inside(top: bytes, name: bytes) -> bytes:
    """The content of a regular file that lies in a folder, `top`, which must be resolved; an OSError otherwise."""
    path = os.path.join(top, name)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device can do things
            raise OSError(errno.EINVAL, "not a regular file")
        handle = os.open(path, _OPEN)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not _inside(_place(handle, path), top):
            raise OSError(errno.EPERM, "leads out of its folder")
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if found.st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB")
        data = file.read(found.st_size + 1)
    if len(data) != found.st_size:
        raise OSError(errno.EIO, "changed while it was read")
    return data


def _place(handle: int, path: bytes) -> bytes:
    """Where an open file lies, after all links."""
    try:
        return os.readlink(b"/proc/self/fd/%d" % handle)  # a sixth of the time that resolving the path takes
    except OSError:
        return os.path.realpath(path)


def list_images(root: Path, report: Report | None = None, under: Sequence[str] = ("",)) -> Packed:
    """The images under a folder, or under some folders in it, by their suffix: relative names, sorted by their bytes.

    Left out: hidden files and folders, what is no regular file, and links to folders inside, whose images are found
    where they lie. A link that leads out of the folder is an error: its images would be missed in silence otherwise.
    """
    top = os.path.realpath(os.fsencode(root))
    names: list[bytes] = []
    folders, done = [os.fsencode(f"{folder}/" if folder else "") for folder in under], 0
    for folder in folders:
        refuse_way_out(root, folder)
    while done < len(folders):
        folder = folders[done]
        for entry in _entries(root, top, folder):
            name = folder + entry.name
            if entry.name.startswith(b"."):
                continue
            is_image = os.path.splitext(entry.name)[1].lower() in SUFFIXES
            if entry.is_symlink():
                inner = os.path.isdir(entry.path)
                if is_image or inner:
                    refuse_way_out(root, name)
                # one that leads nowhere is listed, and found to be bad when it is read
                is_image = is_image and not inner and (os.path.isfile(entry.path) or not os.path.exists(entry.path))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(name + b"/")
                continue
            elif not entry.is_file(follow_symlinks=False):
                continue
            if is_image:
                names.append(name)
        done += 1
        if report is not None:
            report("listing images", done, len(folders))
    names.sort()
    return Packed(names)


def _entries(root: Path, top: bytes, folder: bytes) -> list[os.DirEntry[bytes]]:
    where = printable(str(root / os.fsdecode(folder)))
    try:
        with os.scandir(os.path.join(top, folder)) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        raise DataError(f"there is no folder {where}.") from None
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise DataError(f"cannot list the folder {where}: {reason.lower()}.") from None


def refuse_way_out(root: Path, name: bytes) -> None:
    """A DataError where a name in a folder is, or goes through, a link that leads out of it."""
    top = os.path.realpath(os.fsencode(root))
    path = os.path.realpath(os.path.join(top, name))
    if path != top and not _inside(path, top):
        raise DataError(
            f"{printable(str(root / os.fsdecode(name)))} leads out of {printable(str(root))}: "
            "put the images there themselves, or remove the link."
        )


def _inside(path: bytes, top: bytes) -> bool:
    return path.startswith(top.rstrip(b"/") + b"/")
