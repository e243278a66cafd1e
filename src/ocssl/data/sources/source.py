"""What a source provides: images with all that is known of each, before they are split, ordered or decoded."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ocssl._core.registry import Registry
from ocssl._files.untrusted import read_json, reading
from ocssl.data.decode.decode_processes import Fault
from ocssl.data.decode.files import Files, Report
from ocssl.data.decode.image_set import ImageSet
from ocssl.errors import DataError, SettingError, nearest
from ocssl.settings import StreamSettings

Numbers = npt.NDArray[np.int64]


class Drawing(ABC):
    """Images that are computed when they are needed."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def draw(self, rows: Tensor, size: int) -> ImageSet:
        """These rows as images of a size."""

    @abstractmethod
    def fingerprint(self) -> str:
        """The same for the same images."""


@dataclass(frozen=True)
class Collection:
    """Images to learn from or to test on. Rows are in the official order where there is one."""

    images: Files | Tensor | Drawing  # encoded, or decoded uint8 [n, 3, H, W], or yet to be drawn
    labels: Numbers | None = None  # [n] class numbers; None: there are no labels
    groups: Mapping[str, Numbers] = field(default_factory=dict)  # by kind ("domain", "taxonomy"): [n] group numbers

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class SourceImages:
    """All images of a data set."""

    train: Collection
    test: Collection | None = None  # None: a share of the training images is held out instead
    classes: Sequence[str] = ()  # the names of the class numbers
    group_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    class_order: Sequence[int] | None = None  # in a class-incremental stream; None: as they are numbered
    left_out: Sequence[Fault] = ()  # files of the place that are not among the images, and why


class BenchmarkMaker(Protocol):
    """Finds a benchmark's images; its keyword-only arguments are further `stream.` settings.

    Class attributes say what a name of the benchmark looks like, where they are not the defaults: `after_colon` is
    "path" or "name" for images of the user's own, as in folder:PATH, and `suffixes` are those of such paths;
    `drawn` is True if there is nothing to read.
    """

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        """All images with what is known of each. `where` is what the user named with --data or after the colon."""
        ...


@dataclass(frozen=True)
class Counts:
    """How many images a data set has, as published; in classes of one size unless there are groups."""

    classes: int
    train: int
    test: int | None = None  # None: a share of the training images is held out
    groups: Sequence[int] = ()  # training images of each group that the benchmark's stream goes by


@runtime_checkable
class Counted(Protocol):
    """A benchmark whose size is known before it is read: `--dry-run` works without its images."""

    def counts(self) -> Counts: ...


BENCHMARKS: Registry[BenchmarkMaker] = Registry("benchmark")


def parse_name(benchmark: str) -> tuple[str, str | None]:
    """The maker's name, and what stands after the colon in `folder:PATH`.

    >>> parse_name("folder:my/photos")
    ('folder', 'my/photos')
    """
    kind, colon, place = benchmark.partition(":")
    if colon and not place:
        raise SettingError(f"benchmark {benchmark!r} names nothing after the colon.")
    return kind, place if colon else None


def after_colon(kind: str) -> str:
    """What follows the colon in names of this kind of benchmark: a path, a name, or nothing."""
    return getattr(BENCHMARKS[kind], "after_colon", "") if kind in BENCHMARKS else ""


def is_drawn(benchmark: str) -> bool:
    """Whether a benchmark has no files to read."""
    kind, place = parse_name(benchmark)
    return place is None and getattr(BENCHMARKS[kind], "drawn", False)


def own_source(path: str) -> str:
    """A path to images of the user's own as the name of a benchmark; what is one already stays.

    >>> [own_source(path) for path in ("photos", "a/b.parquet", "a-{0..9}.tar", "wds:shards")]
    ['folder:photos', 'parquet:a/b.parquet', 'wds:a-{0..9}.tar', 'wds:shards']
    """
    if after_colon(path.partition(":")[0]):
        return path
    suffix = os.path.splitext(path)[1].lower()
    kind = next((kind for kind in BENCHMARKS if suffix in getattr(BENCHMARKS[kind], "suffixes", ())), "folder")
    return f"{kind}:{path}"


def packaged_lines(file: str) -> list[str]:
    """The lines of a list that comes with the package."""
    return resources.files("ocssl.data.sources").joinpath(file).read_text("utf-8").splitlines()


def require_path(where: Path | None, benchmark: str, how: str = "--data DIR") -> Path:
    """The folder or file that the user named; an error if none was named or nothing is there."""
    if where is None:
        raise SettingError(f"benchmark {benchmark} reads files of yours: name their place with {how}.")
    try:
        exists = os.path.exists(where)
    except ValueError:
        exists = False
    if not exists:
        raise DataError(f"there is no folder {where}: check the path, or name another with {how}.")
    return where


def numbered(splits: Sequence[Iterable[Any]]) -> tuple[list[Numbers], list[Any]]:
    """The values of all splits as numbers, by their sorted order, and the value of each number.

    >>> numbered([["bee", "ant", "bee"]])
    ([array([1, 0, 1])], ['ant', 'bee'])
    """
    values = [list(split) for split in splits]
    names = sorted(set().union(*values))
    number_of = {name: number for number, name in enumerate(names)}
    return [np.array([number_of[value] for value in split], dtype=np.int64) for split in values], names


def refuse_unlearned(numbers: Sequence[Numbers], names: Sequence[str], place: Path) -> None:
    """An error if the last split, which is tested, has classes that the first one lacks."""
    missing = np.setdiff1d(numbers[-1], numbers[0])
    if len(missing):
        raise DataError(
            f"{place} has {len(missing)} classes to test that are not among those to learn, such as "
            f"{names[missing[0]]!r}: use the same classes in both."
        )


def refuse_missing(missing: Sequence[str], count: int, what: str, place: Path) -> None:
    """An error if anything is missing of what a data set must have."""
    if missing:
        raise DataError(f"{place} lacks {len(missing)} of the {count} {what}, the first of them {missing[0]}.")


def class_groups(path: Path, level: str, classes: Sequence[str], used: Numbers) -> tuple[Numbers, list[str]]:
    """The group of each used class, such as birds or vehicles, numbered by name, and the names of the groups.

    The file is JSON: a list with one object per class, in the order of the class numbers, or an object that maps each
    class's name to an object or straight to its group. `level` is the key of the group in the objects.
    """
    if not classes:
        raise SettingError("stream.taxonomy puts classes into groups, but these images have no classes.")
    with reading(path, DataError):
        content = read_json(path)
    if isinstance(content, list) and len(content) != len(classes):
        raise DataError(f"{path} lists {len(content):,} classes, but there are {len(classes):,}.")
    if not isinstance(content, list | dict):
        raise DataError(f"{path} is no taxonomy: it must be a list of objects, or an object with a key per class.")
    (numbers,), names = numbered([[_group(content, number, classes[number], level, path) for number in used]])
    return numbers, names


def _group(content: list[Any] | dict[str, Any], number: int, name: str, level: str, path: Path) -> str:
    if isinstance(content, dict) and name not in content:
        close = nearest(name, content)
        hint = f": did you call it {close!r}?" if close else "."
        raise DataError(f"{path} says nothing about class {name!r}{hint}")
    entry = content[name] if isinstance(content, dict) else content[number]
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict):
        raise DataError(f"{path} has no object and no text for class {name!r}.")
    if level not in entry:
        keys = [key for key, value in entry.items() if isinstance(value, str)]
        close = nearest(level, keys)
        hint = f"did you mean {close!r}?" if close else f"there are {', '.join(map(repr, keys)) or 'none'}."
        raise SettingError(f"stream.level is {level!r}, which {path} does not have for class {name!r}: {hint}")
    if not isinstance(entry[level], str):
        raise SettingError(f"stream.level is {level!r}, which is no text in {path} for class {name!r}.")
    return str(entry[level])
