"""Images to embed, with the path and the file facts of each: a folder, or any benchmark of encoded images."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import numpy as np
import numpy.typing as npt

from ocssl.data.decode.decode_processes import Fault
from ocssl.data.decode.files import Encoded, FolderFiles, Report, survey_folder
from ocssl.data.sources import BENCHMARKS
from ocssl.data.sources.source import SourceImages, parse_name
from ocssl.errors import DataError, printable
from ocssl.settings import StreamSettings

Numbers = npt.NDArray[np.int64]

URI = "file://"
OTHERS = "parquet:PATH, wds:PATTERN or hf:NAME"
_NAME = re.compile(r"/| row (?=\d)")  # ends the file's name in the name of an image of a tar or parquet file


@dataclass(frozen=True)
class Source:
    """Encoded images, none of which has been opened yet."""

    name: str  # an absolute path, or KIND:PLACE, where a place on this machine is absolute too
    files: Encoded
    paths: Sequence[str]  # of each image; begins with the name
    sizes: Numbers  # bytes of the file that each image is, or lies in; -1 where that is not known
    modified: Numbers  # its time in ns; -1 likewise
    left_out: Sequence[Fault] = ()

    def __len__(self) -> int:
        return len(self.paths)


def open_source(word: str, report: Report) -> Source:
    """The images of a folder, `folder:PATH`, `parquet:PATH`, `wds:PATTERN` or `hf:NAME`."""
    kind, place = ("folder", word) if os.path.isdir(word) else parse_name(word)
    _require_text(os.path.abspath(place or word))
    if kind == "folder" and place is not None:
        return _folder(place, report)
    if place is None and kind not in BENCHMARKS:
        raise DataError(f"there is no folder {word}: name a folder of images, {OTHERS}.")
    found = BENCHMARKS.build(kind, {}).find(Path(place) if place else None, StreamSettings(), report)
    files = _Joined(list(_encoded(found, word)))
    local = place is not None and (kind != "hf" or os.path.exists(place))
    name = f"{kind}:{os.path.abspath(place)}" if place and local else word
    names = [[part.name(row) for row in range(len(part))] for part in files.parts]
    paths = [f"{name}/{image}" for part in names for image in part]
    if len(set(paths)) < len(paths):
        paths = [f"{path} #{row}" for row, path in enumerate(paths)]
    sizes, times = np.concatenate(list(map(_stats, files.parts, names)), axis=1)
    return Source(name, files, paths, sizes, times, found.left_out)


def moved_away(name: str) -> bool:
    """Whether a source was a file or folder where nothing is now."""
    kind, colon, place = name.partition(":")
    place = name if os.path.isabs(name) else place
    pattern = kind == "wds" and colon and any(letter in place for letter in "{*?")
    return os.path.isabs(place) and not pattern and not os.path.exists(place)


def _stats(files: Encoded, names: Sequence[str]) -> Numbers:
    """Size and time in ns of the file that each of the named images lies in, [2, n]; -1 where that is not known."""
    if isinstance(files, FolderFiles):
        return files.stats()
    found: list[tuple[str, tuple[int, int]]] = []  # how the names of the images of a file begin, and its facts
    for path in getattr(files, "paths", ()):
        with suppress(OSError):
            facts = os.stat(path)
            found.append((printable(Path(path).name), (facts.st_size, facts.st_mtime_ns)))
    if not found:
        return np.full((2, len(files)), -1, np.int64)
    # an image whose file is not known from its name changes when any file does
    whole = sum(size for _, (size, _) in found), max(time for _, (_, time) in found)
    known = dict(found) if len(dict(found)) == len(found) else {}
    starts = (_NAME.split(name, maxsplit=1)[0] for name in names)
    return np.array([known.get(start, whole) for start in starts], np.int64).reshape(-1, 2).T


def _require_text(place: str) -> None:
    try:
        place.encode()
    except UnicodeEncodeError:
        said = "is not UTF-8: vectors name their images by path; rename the folder, or link to it under another name"
        raise DataError(f"{printable(place)} {said}.") from None


def _folder(place: str, report: Report) -> Source:
    root = Path(os.path.abspath(place))
    names, left_out = survey_folder(root, report)
    files = FolderFiles(root, names)
    sizes, times = files.stats()
    paths = [_path_of(root, name) for name in names]
    faults = [Fault(printable(name), why) for name, why in left_out]
    return Source(str(root), files, paths, sizes, times, faults)


def _path_of(root: Path, name: bytes) -> str:
    """The path of a file as text: a URI where its name is not UTF-8, which no absolute path looks like."""
    try:
        return os.path.join(str(root), name.decode())
    except UnicodeDecodeError:
        return URI + quote(os.path.join(os.fsencode(root), name))


def file_of(path: str) -> bytes:
    """The file that a stored path, or one from the command line, names."""
    if path.startswith(f"{URI}/"):
        return unquote_to_bytes(path.removeprefix(URI))
    try:
        return path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)


def _encoded(found: SourceImages, word: str) -> Iterator[Encoded]:
    for collection in (found.train, found.test):
        if collection is None:
            continue
        images: Any = collection.images
        if not hasattr(images, "read"):
            raise DataError(f"{word} has no encoded images: embed reads folders, {OTHERS}.")
        yield images


class _Joined:
    """Several of them as one."""

    def __init__(self, parts: Sequence[Encoded]) -> None:
        self.parts = parts
        self._ends = np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _at(self, row: int) -> tuple[Encoded, int]:
        part = int(np.searchsorted(self._ends, row, side="right")) - 1
        return self.parts[part], row - int(self._ends[part])

    def name(self, row: int) -> str:
        part, within = self._at(row)
        return part.name(within)

    def read(self, row: int) -> bytes:
        part, within = self._at(row)
        return part.read(within)
