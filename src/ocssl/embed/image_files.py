"""Images to embed, with the path and the file facts of each: a folder, or any benchmark of encoded images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl.data.decode.decode_processes import Fault
from ocssl.data.decode.files import Encoded, FolderFiles, Report, survey_folder
from ocssl.data.sources import BENCHMARKS
from ocssl.data.sources.source import SourceImages, parse_name
from ocssl.errors import DataError, printable
from ocssl.settings import StreamSettings

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """Encoded images, none of which has been opened yet."""

    name: str  # an absolute path, or KIND:PLACE
    files: Encoded
    paths: Sequence[str]  # of each image; of a folder, absolute
    sizes: Numbers  # bytes of each file; -1 where it is no file of a folder
    modified: Numbers  # its time in ns; -1 likewise
    left_out: Sequence[Fault] = ()

    def __len__(self) -> int:
        return len(self.paths)


def open_source(word: str, report: Report) -> Source:
    """The images of a folder, `folder:PATH`, `parquet:PATH` or `hf:NAME`."""
    kind, place = ("folder", word) if os.path.isdir(word) else parse_name(word)
    _require_text(os.path.abspath(place or word))
    if kind == "folder" and place is not None:
        return _folder(place, report)
    if place is None and kind not in BENCHMARKS:
        raise DataError(f"there is no folder {word}: name a folder of images, or parquet:PATH, or hf:NAME.")
    found = BENCHMARKS.build(kind, {}).find(Path(place) if place else None, StreamSettings(), report)
    files = _Joined(list(_encoded(found, word)))
    paths = [f"{word}/{files.name(row)}" for row in range(len(files))]
    if len(set(paths)) < len(paths):
        paths = [f"{path} #{row}" for row, path in enumerate(paths)]
    unknown = np.full(len(files), -1, np.int64)
    name = f"{kind}:{os.path.abspath(place)}" if place and os.path.exists(place) else word
    return Source(name, files, paths, unknown, unknown, found.left_out)


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
    paths = [os.path.join(str(root), printable(name)) for name in names]
    faults = [Fault(printable(name), why) for name, why in left_out]
    return Source(str(root), files, paths, sizes, times, faults)


def _encoded(found: SourceImages, word: str) -> Iterator[Encoded]:
    for collection in (found.train, found.test):
        if collection is None:
            continue
        images: Any = collection.images
        if not hasattr(images, "read"):
            raise DataError(f"{word} has no encoded images: embed reads folders, parquet:PATH and hf:NAME.")
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
