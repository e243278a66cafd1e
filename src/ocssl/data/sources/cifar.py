"""CIFAR-100 (Krizhevsky 2009), in the forms in which people have it: as published, unpacked, or as parquet."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from ocssl._files.untrusted import read_bytes, reading
from ocssl.data.decode.arrow_files import ParquetFiles, read_column, read_paths, read_schema
from ocssl.data.decode.files import Files, Report
from ocssl.data.sources.archives import read_members
from ocssl.data.sources.download import checksum, data_folder, fetch
from ocssl.data.sources.safe_pickle import MOST_BYTES, read_pickled
from ocssl.data.sources.source import BENCHMARKS, Collection, Counts, Numbers, SourceImages, packaged_lines
from ocssl.errors import DataError, printable
from ocssl.settings import StreamSettings

_PAIRS = [line.split() for line in packaged_lines("cifar100_classes.txt")]
CLASSES = tuple(name for name, _ in _PAIRS)  # by class number, which is alphabetical
SUPERCLASSES = tuple(sorted({group for _, group in _PAIRS}))
SUPERCLASS_OF = tuple(SUPERCLASSES.index(group) for _, group in _PAIRS)  # by class number
_ORDER = """
42 96 62 98 46  95 60 24 78 16  68 70 11 13 97  52 99 19 71 10  89 86 18 40 5  38 9 82 83 43  32 94 67 93 75
59 79 1 50 73  66 45 63 58 22  3 87 4 61 51  12 74 21 20 6  35 44 48 37 33  15 88 31 69 27  81 85 56 7 65
47 41 29 80 57  84 36 17 34 72  2 91 8 53 30  90 26 23 54 76  14 55 0 64 77  39 25 92 49 28
"""
CLASS_ORDER = tuple(map(int, _ORDER.split()))  # that of SOLAR's authors: torch.randperm(100) under seed 42

PIXELS = 3 * 32 * 32
ARCHIVE = "cifar-100-python.tar.gz"
_SUMS = {
    ARCHIVE: "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
PARTS = ("train", "test")
_BINARY = ("train.bin", "test.bin")
_PYTHON = ("train", "test", "meta")
_FOLDERS = ("cifar-100-binary", "cifar-100-python", "cifar100", "cifar-100", "data")
_PACKED = re.compile(r"cifar[-_]?100.*\.(tar\.gz|tgz|tar|zip)", re.IGNORECASE)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Release:
    """The official files: how many images, which checksums, from where. Tests have a smaller one."""

    per_class: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"train": 500, "test": 100}))
    sums: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(_SUMS))  # md5 by file name
    url: str = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
    size: int = 169_001_437  # bytes of what is at the url


@BENCHMARKS.add("cifar100")
@dataclass(kw_only=True)
class Cifar100:
    """CIFAR-100, 100 classes of 32 px photographs; read from --data DIR, or downloaded once (169 MB)."""

    in_memory: ClassVar[bool] = True  # all images are in memory; those of other benchmarks are read when needed

    def counts(self) -> Counts:
        return Counts(100, 50_000, 10_000)

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        return find_release(where, report, Release())


def find_release(where: Path | None, report: Report, release: Release) -> SourceImages:
    """The images at this place, in whichever form they are there; None: in the download, fetched if need be."""
    if where is None:
        path = data_folder() / ARCHIVE
        fetch(release.url, path, size=release.size, md5=release.sums[ARCHIVE], report=report)
        return _from_archive(path, report, release)
    try:
        if not where.is_dir() and not where.is_file():
            raise DataError(f"there is no folder or file {where}: name the folder of CIFAR-100 with --data DIR.")
        if where.is_dir() or where.name in (*_BINARY, *_PYTHON) or where.suffix == ".parquet":
            return _from_folder(where if where.is_dir() else where.parent, report, release)
        return _from_archive(where, report, release)
    except OSError as error:
        raise DataError(f"cannot read {error.filename or where} ({error.strerror}).") from None


def _from_folder(where: Path, report: Report, release: Release) -> SourceImages:
    """Unpacked files before packed ones, which take longer to read."""
    above = [where.parent] if where.name in _FOLDERS else []
    folders = [folder for folder in (where, *(where / name for name in _FOLDERS), *above) if folder.is_dir()]
    half = ""
    for folder in folders:
        here = [name for name in (*_BINARY, *_PYTHON) if (folder / name).is_file()]
        tables = {part: sorted(folder.glob(f"{part}-*.parquet")) for part in PARTS}
        if form := _whole(here):
            contents = {name: _content(folder / name) for name in form if name in here}
            return _from_files(contents, folder, release, release.sums)
        if all(tables.values()):
            return _from_parquet(tables, release)
        lonely = [*here, *(path.name for paths in tables.values() for path in paths)]
        half = half or (f", only {lonely[0]} is in {folder}" if lonely else "")
    for folder in folders:
        packed = [path for path in folder.iterdir() if _PACKED.fullmatch(path.name) and path.is_file()]
        if packed:
            best = min(packed, key=lambda path: (path.name not in release.sums, path.name))
            return _from_archive(best, report, release)
    raise DataError(
        f"no CIFAR-100 in {where}{half}: wanted there, or in {', '.join(_FOLDERS)} below it, are train.bin and "
        "test.bin, or train and test, or train-*.parquet and test-*.parquet, or cifar-100-*.tar.gz; name their folder "
        "with --data DIR, or leave it out to download them."
    )


def _whole(names: Iterable[str]) -> tuple[str, ...]:
    """The files of the first form of which both parts are there."""
    return next((form for form in (_BINARY, _PYTHON) if {*form[:2]} <= {*names}), ())


def _content(path: Path) -> bytes:
    with reading(path, DataError):
        return read_bytes(path, MOST_BYTES)


def _from_archive(path: Path, report: Report, release: Release) -> SourceImages:
    wanted = release.sums.get(path.name)
    if wanted is not None:
        _compare(path, path.name, checksum(path), wanted)
    contents = read_members(path, (*_BINARY, *_PYTHON), report)
    form = _whole(contents)
    if not form:
        raise DataError(
            f"{path} is not CIFAR-100: it has neither train.bin and test.bin nor train and test; "
            "name another with --data."
        )
    chosen = {name: contents[name] for name in form if name in contents}
    return _from_files(chosen, path, release, {} if wanted else release.sums)  # its own checksum covers all of it


def _compare(place: Path, name: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise DataError(f"{place} is not the official {name} (md5 {found}, wanted {wanted}): fetch it again.")


def _from_files(contents: dict[str, bytes], place: Path, release: Release, sums: Mapping[str, str]) -> SourceImages:
    """From the published files by name; taken out of the dictionary one by one, for they are large."""
    for name, content in contents.items():
        if name in sums:
            found = hashlib.md5(content, usedforsecurity=False).hexdigest()
            _compare(place / name, name, found, sums[name])
    classes, groups = CLASSES, SUPERCLASSES
    if "meta" in contents:
        meta = read_pickled(contents.pop("meta"), str(place / "meta"))
        classes = _names(meta.get(b"fine_label_names"), classes, place / "meta")
        groups = _names(meta.get(b"coarse_label_names"), groups, place / "meta")
    collections = {}
    for part, name in zip(PARTS, list(contents), strict=True):
        read = _read_records if name in _BINARY else _read_pickled
        pixels, fine, coarse = read(contents.pop(name), place / name)
        _check(len(pixels), fine, coarse, release.per_class[part], place / name)
        images = torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy())
        collections[part] = Collection(images, fine, {"taxonomy": coarse})
    return SourceImages(collections["train"], collections["test"], classes, {"taxonomy": groups}, CLASS_ORDER)


def _names(found: Any, usual: Sequence[str], place: Path) -> tuple[str, ...]:
    if type(found) is not list or len(found) != len(usual) or not all(type(name) is bytes for name in found):
        raise DataError(f"{place} is not CIFAR-100's: it has no list of {len(usual)} names; fetch it again.")
    return tuple(map(printable, found))


def _read_records(raw: bytes, place: Path) -> tuple[Bytes, Numbers, Numbers]:
    """Records of a coarse label, a fine label and the pixels, a byte each."""
    if len(raw) % (2 + PIXELS):
        raise DataError(f"{place} is cut off or something else ({len(raw)} bytes): fetch it again.")
    records = np.frombuffer(raw, np.uint8).reshape(-1, 2 + PIXELS)
    return records[:, 2:], records[:, 1].astype(np.int64), records[:, 0].astype(np.int64)


def _read_pickled(raw: bytes, place: Path) -> tuple[Bytes, Numbers, Numbers]:
    found = read_pickled(raw, str(place))
    pixels = found.get(b"data")
    labels = [found.get(key) for key in (b"fine_labels", b"coarse_labels")]
    numbers = all(type(column) is list and all(type(label) is int for label in column) for column in labels)
    if not isinstance(pixels, np.ndarray) or pixels.shape[1] != PIXELS or not numbers:
        raise DataError(f"{place} is not CIFAR-100's: it lacks images, fine or coarse labels; fetch it again.")
    fine, coarse = (np.array(column, np.int64) for column in labels)
    return pixels, fine, coarse


def _from_parquet(tables: Mapping[str, Sequence[Path]], release: Release) -> SourceImages:
    collections = {}
    for part, paths in tables.items():
        place = paths[0].parent / f"{part}-*.parquet"
        names = read_schema(paths[0]).names
        column = "img" if "img" in names else "image"
        label = "fine_label" if "fine_label" in names else "label"
        images: Files = ParquetFiles(paths, column)
        fine = np.asarray(read_column(paths, label))
        coarse = read_column(paths, "coarse_label") if "coarse_label" in names else None
        _check(len(images), fine, coarse, release.per_class[part], place)
        order = official_order(read_paths(paths, column))
        if order is not None:
            images, fine = images.subset(order), fine[order]
        collections[part] = Collection(images, fine, {"taxonomy": np.array(SUPERCLASS_OF)[fine]})
    return SourceImages(collections["train"], collections["test"], CLASSES, {"taxonomy": SUPERCLASSES}, CLASS_ORDER)


def official_order(paths: Sequence[str | None]) -> Numbers | None:
    """The rows by the official number that their paths end in; None unless there is each number once.

    >>> official_order(["train_2.png", "train_0.png", "train_1.png"])
    array([1, 2, 0])
    """
    numbers = np.full(len(paths), -1, np.int64)
    for row, path in enumerate(paths):
        number = re.search(r"(?<![0-9])([0-9]{1,9})(\.[a-z]\w*)?$", (path or "")[-100:], re.IGNORECASE)
        numbers[row] = int(number[1]) if number else -1
    order = numbers.argsort(kind="stable")
    return order if np.array_equal(numbers[order], np.arange(len(paths))) else None


def _check(images: int, fine: Numbers, coarse: Numbers | list[str] | None, per_class: int, place: Path) -> None:
    """Refuses what has another number of images, or labels that CIFAR-100 cannot have."""
    wanted = len(CLASSES) * per_class
    if not images == len(fine) == wanted:
        raise DataError(f"{place} has {images} images and {len(fine)} labels, not {wanted}: fetch it again.")
    numbers = fine.dtype.kind == "i" and fine.min() >= 0 and fine.max() < len(CLASSES)
    if not numbers or (coarse is not None and not np.array_equal(np.array(SUPERCLASS_OF)[fine], coarse)):
        raise DataError(f"{place} is not CIFAR-100: it has other classes or superclasses; name another with --data.")
    if (np.bincount(fine, minlength=len(CLASSES)) != per_class).any():
        raise DataError(f"{place} is not CIFAR-100: it has not {per_class} images of each class; fetch it again.")
