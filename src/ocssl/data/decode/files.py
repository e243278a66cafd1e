"""Encoded images by row number, and those that are files of a folder. Light to send to another process: no torch."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ocssl._files.untrusted import open_file, reason
from ocssl.errors import DataError, printable

Rows = npt.NDArray[np.int64]
Report = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is

SUFFIXES = frozenset(
    b".jpg .jpeg .jpe .jfif .png .apng .webp .bmp .dib .gif .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2 .j2k".split()
)
HEIF_SUFFIXES = frozenset((b".heic", b".heif", b".hif"))
HEIF_BRANDS = frozenset((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"))
HEIF_NEEDS = " (pip install pillow-heif)"  # after the suffix, in the reason why a file is left out
MAGIC = (
    b"\xff\xd8\xff",  # JPEG
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"BM",
    b"II*\0",  # TIFF
    b"MM\0*",
    b"P4\n",  # PBM, PGM, PPM
    b"P5\n",
    b"P6\n",
    b"\0\0\0\x0cjP  ",  # JPEG 2000
    b"\xff\x4f\xff\x51",  # JPEG 2000 without a container
)
MOST_BYTES = 256 * 2**20  # of one encoded image


def silent(what: str, done: int, total: int) -> None:
    """A report that nobody reads."""


class Encoded(Protocol):
    """Encoded images, none of which has been opened yet."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """What to call this image in a message; printable."""
        ...

    def read(self, row: int) -> bytes:
        """The encoded image; an OSError if it is gone or cannot be read."""
        ...


class Files(Encoded, Protocol):
    """Encoded images of a source, to choose from."""

    def subset(self, rows: Rows) -> Files:
        """These rows only, in this order."""
        ...

    def stored(self) -> Rows:
        """Where each row is stored: reading in rising order of these is cheap."""
        ...

    def fingerprint(self, times: bool = False) -> str:
        """The same for the same data in any place: from names and sizes.

        With `times` it also changes when a file is rewritten: the key of a cache of decoded images.
        """
        ...


class Packed(Sequence[bytes]):
    """Many byte strings in one block: a million names cost their letters and eight bytes each."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self._block = b"".join(items)
        self._ends = np.cumsum([0, *map(len, items)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self._block[self._ends[row] : self._ends[row + 1]]

    def take(self, rows: Rows) -> Packed:
        """These rows only, in this order."""
        return Packed([self[row] for row in rows])

    def digest(self) -> bytes:
        """The sha256 of all items and of where each ends."""
        return hashlib.sha256(self._ends.astype("<i8").tobytes() + self._block).digest()


class FolderFiles:
    """Files of a folder by their names in it. Names may come from anywhere: none is followed out of the folder."""

    def __init__(self, root: Path, names: Packed) -> None:
        self.root = Path(root)
        self.names = names  # relative to root, with / between the parts
        self._top = os.path.realpath(os.fsencode(self.root))
        self._stats: Rows | None = None

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        return printable(self.names[row])

    def read(self, row: int) -> bytes:
        return read_inside(self._top, self.names[row])

    def subset(self, rows: Rows) -> FolderFiles:
        chosen = FolderFiles(self.root, self.names.take(rows))
        chosen._stats = None if self._stats is None else self._stats[:, rows]
        return chosen

    def stored(self) -> Rows:
        return np.arange(len(self))

    def fingerprint(self, times: bool = False) -> str:
        content = np.ascontiguousarray(self.stats()[: 1 + times], "<i8").tobytes()
        return hashlib.sha256(self.names.digest() + content).hexdigest()

    def stats(self) -> Rows:
        """Size and modification time in ns of each file when first asked for, [2, n]; -1: no such file."""
        if self._stats is None:
            self._stats = np.full((2, len(self)), -1, dtype=np.int64)
            for row, name in enumerate(self.names):
                try:
                    found = os.stat(os.path.join(self._top, name))
                except (OSError, ValueError):
                    continue
                self._stats[:, row] = found.st_size, found.st_mtime_ns
        return self._stats


class Paths(Sequence[str]):
    """Where images are, found when one is asked for: the path of a file that can be opened, or the image's name."""

    def __init__(self, files: Files, rows: Rows) -> None:
        self._files, self._rows = files, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Paths(self._files, self._rows[place])
        files, row = self._files, int(self._rows[place])
        if isinstance(files, FolderFiles):
            return os.path.join(files.root, os.fsdecode(files.names[row]))
        return files.name(row)

    def __repr__(self) -> str:
        return repr(list(self))


def read_inside(top: bytes, name: bytes) -> bytes:
    """The content of a regular file in a folder, `top`, which must be resolved; an OSError otherwise."""
    path = os.path.join(top, name)
    with open_file(path, MOST_BYTES) as file:
        if not _inside(_resolved(file.fileno(), path), top):
            raise OSError(errno.EPERM, "leads out of its folder")
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1)
    if len(data) != size:
        raise OSError(errno.EIO, "changed while it was read")
    return data


def _resolved(handle: int, path: bytes) -> bytes:
    """The path of an open file, after all links."""
    try:
        return os.readlink(b"/proc/self/fd/%d" % handle)  # a sixth of the time that resolving the path takes
    except OSError:
        return os.path.realpath(path)


def list_images(root: Path, report: Report = silent, under: Sequence[str] = ("",)) -> Packed:
    """The images under a folder, or under some folders in it, by their suffix: relative names, sorted by their bytes.

    Left out: hidden files and folders, what is no regular file, and links to folders inside, whose images are found
    where they are. A link that leads out of the folder is an error: its images would be missed in silence otherwise.
    """
    names: list[bytes] = []
    folders = [os.fsencode(f"{folder}/" if folder else "") for folder in under]
    for folder in folders:
        refuse_way_out(root, folder)
    for name, entry in _walk(root, folders, report):
        if entry.name.startswith(b"."):
            continue
        is_image = os.path.splitext(entry.name)[1].lower() in SUFFIXES
        if entry.is_symlink():
            inner = os.path.isdir(entry.path)
            if is_image or inner:
                refuse_way_out(root, name)
            # a dangling link is listed, and counts as a bad image when it is read
            is_image = is_image and not inner and (os.path.isfile(entry.path) or not os.path.exists(entry.path))
        elif not entry.is_file(follow_symlinks=False):
            continue
        if is_image:
            names.append(name)
    return Packed(sorted(names))


def survey_folder(root: Path, report: Report = silent) -> tuple[Packed, list[tuple[bytes, str]]]:
    """Every file of a folder of any kind: the images, sorted by name, and what is left out, each with the reason.

    Files without an extension are images if their content begins like one. Links that lead out or dangle are left out.
    """
    top = os.path.realpath(os.fsencode(root))
    names: list[bytes] = []
    left: list[tuple[bytes, str]] = []
    for name, entry in _walk(root, [b""], report, left):
        why = _why_left_out(top, entry)
        if why is None:
            names.append(name)
        else:
            left.append((name, why))
    return Packed(sorted(names)), sorted(left)


def _walk(
    root: Path, folders: list[bytes], report: Report, closed: list[tuple[bytes, str]] | None = None
) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    """All in these folders of `root` but the folders, each of which is added to them and walked in its turn.

    A folder inside that cannot be listed is an error, or goes to `closed` if that is given.
    """
    top = os.path.realpath(os.fsencode(root))
    for done, folder in enumerate(folders, 1):
        try:
            entries = _entries(top, folder, root)
        except DataError:
            if closed is None or not folder:
                raise
            closed.append((folder, "folder that cannot be listed"))
            entries = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(b"."):
                folders.append(folder + entry.name + b"/")
            else:
                yield folder + entry.name, entry
        report("listing images", done, len(folders))


def _why_left_out(top: bytes, entry: os.DirEntry[bytes]) -> str | None:
    """Why an entry of a folder is no image to use; None if it is one."""
    if entry.name.startswith(b"."):
        return "hidden"
    if entry.is_symlink():
        if not os.path.exists(entry.path):
            return "dangling link"
        target = os.path.realpath(entry.path)
        if target != top and not _inside(target, top):
            return "link out of the folder"
        if os.path.isdir(entry.path):
            return "link to a folder inside"
    if not entry.is_file():
        return "not a regular file"
    suffix = os.path.splitext(entry.name)[1].lower()
    if suffix in SUFFIXES:
        return None
    if suffix in HEIF_SUFFIXES:
        return None if heif_known() else suffix.decode() + HEIF_NEEDS
    if suffix.strip(b"."):
        return printable(suffix)
    try:
        with open_file(entry.path) as file:
            start = file.read(32)
    except OSError:
        return "unreadable"
    if looks_like_heif(start) and not heif_known():
        return f".heic{HEIF_NEEDS}"
    return None if looks_like_image(start) else ("no extension" if start else "empty")


def looks_like_image(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a format that is decoded here."""
    webp = start[:4] == b"RIFF" and start[8:12] == b"WEBP"
    avif = start[4:8] == b"ftyp" and start[8:12] in (b"avif", b"avis")
    return webp or avif or looks_like_heif(start) or start.startswith(MAGIC)


def looks_like_heif(start: bytes) -> bool:
    """Whether the first bytes of a file are those of an HEIC image."""
    return start[4:8] == b"ftyp" and start[8:12] in HEIF_BRANDS


def heif_known() -> bool:
    """Whether HEIC files can be decoded."""
    return find_spec("pillow_heif") is not None


def _entries(top: bytes, folder: bytes, root: Path) -> list[os.DirEntry[bytes]]:
    where = root / os.fsdecode(folder)
    try:
        with os.scandir(os.path.join(top, folder)) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        raise DataError(f"there is no folder {where}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot list the folder {where}: {reason(error).lower()}.") from None


def refuse_way_out(root: Path, name: bytes) -> None:
    """A DataError where a name in a folder is, or goes through, a link that leads out of it."""
    top = os.path.realpath(os.fsencode(root))
    path = os.path.realpath(os.path.join(top, name))
    if path != top and not _inside(path, top):
        raise DataError(
            f"{root / os.fsdecode(name)} leads out of {root}: copy the images into the folder, or remove the link."
        )


def _inside(path: bytes, top: bytes) -> bool:
    return path.startswith(top.rstrip(b"/") + b"/")
