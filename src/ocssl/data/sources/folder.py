"""Any folder of images, whose sub-folders are classes or domains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ocssl.data.decode.encoded import Packed, printable
from ocssl.data.decode.folder_files import SUFFIXES, FolderFiles, list_images
from ocssl.data.decode.images import Report
from ocssl.data.sources.source import BENCHMARKS, Collection, Found, Numbers
from ocssl.data.sources.taxonomy import class_groups
from ocssl.data.sources.text_files import need, shown
from ocssl.errors import DataError, SettingError, unknown
from ocssl.settings import StreamSettings

TRAIN = "train"
TESTS = ("test", "val", "valid", "validation")  # the first of them that is there
MEANINGS = ("class", "domain")


@BENCHMARKS.add("folder")
@dataclass(kw_only=True)
class Folder:
    """folder:PATH: your own images, with sub-folders for classes or domains, and train and test above them if you like.

    `levels` says what the sub-folders are, from the top: class, domain, domain/class, class/domain or none.
    """

    levels: str = "auto"
    taxonomy: str = ""  # a JSON file that puts classes into groups
    level: str = "group"  # the key of the group in that file

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> Found:
        root = need(where, "folder", "folder:PATH")
        if not root.is_dir():
            raise DataError(f"{shown(root)} is no folder.")
        names = list(list_images(root, report))
        if not names:
            kinds = " ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise DataError(f"there are no images under {shown(root)}: their names must end in one of {kinds}.")
        parts, above = _split(root, names)
        levels = self._levels(root, {name.count(b"/") - above for part in parts for name in part})
        collections = [Collection(FolderFiles(root, Packed(part))) for part in parts]
        group_names: dict[str, Sequence[str]] = {}
        classes: list[str] = []
        for place, meaning in enumerate(levels, above):
            numbers, titles = _numbered(parts, place)
            if meaning == "domain":
                group_names["domain"] = titles
                collections = [_with(c, "domain", own) for c, own in zip(collections, numbers, strict=True)]
            else:
                _refuse_unlearned(root, numbers, titles)
                classes = titles
                collections = [Collection(c.images, own, c.groups) for c, own in zip(collections, numbers, strict=True)]
        if self.taxonomy:
            collections, group_names["taxonomy"] = _with_taxonomy(self.taxonomy, self.level, collections, classes)
        return Found(collections[0], collections[1] if len(parts) > 1 else None, classes, group_names)

    def _levels(self, root: Path, depths: set[int]) -> list[str]:
        """The meaning of each level of sub-folders; `depths`: in how many of them images lie."""
        if self.levels == "auto":
            if 0 in depths and len(depths) > 1:
                raise DataError(
                    f"{shown(root)} has images beside sub-folders with images: set stream.levels to none to use all of "
                    "them without labels, or move them into folders."
                )
            return [] if depths == {0} else ["class"]
        levels = [] if self.levels == "none" else self.levels.split("/")
        for word in levels:
            if word not in MEANINGS:
                raise unknown("stream.levels", word, (*MEANINGS, "none", "auto"))
        if len(set(levels)) < len(levels):
            raise SettingError(f"stream.levels is {self.levels!r}: each of class and domain can be there once.")
        if min(depths) < len(levels):
            raise DataError(
                f"stream.levels is {self.levels!r}, but {shown(root)} has images that lie in {min(depths)} sub-folders "
                f"only, not in {len(levels)}."
            )
        return levels


def _split(root: Path, names: list[bytes]) -> tuple[list[list[bytes]], int]:
    """The training and the test images, where the top folders say so, and how many levels of folders that takes."""
    tops: dict[str, set[bytes]] = {}
    for name in names:
        top, slash, _ = name.partition(b"/")
        tops.setdefault(printable(top).lower() if slash else "", set()).add(top)
    tests = [name for name in TESTS if name in tops]
    others = sorted(set(tops) - {TRAIN, *TESTS})
    if TRAIN not in tops or (others and not tests):  # a class may be called train, as it may be called bus
        return [names], 0
    if others:
        what = f"a folder {others[-1]!r}" if others[-1] else "images"
        raise DataError(f"{shown(root)} has {what} beside {TRAIN} and {tests[0]}: move that into one of them, or away.")
    parts = []
    for role in (TRAIN, *tests[:1]):
        if len(tops[role]) > 1:
            raise DataError(f"{shown(root)} has several folders called {role}, in capital and small letters.")
        (top,) = tops[role]
        parts.append([name for name in names if name.startswith(top + b"/")])
    return parts, 1


def _numbered(parts: Sequence[Sequence[bytes]], place: int) -> tuple[list[Numbers], list[str]]:
    """Numbers for the folders of a level, in the order of their bytes, and their names as text."""

    def folders(part: Sequence[bytes]) -> Iterator[bytes]:
        return (name.split(b"/", place + 1)[place] for name in part)

    names = sorted(set().union(*map(folders, parts)))
    number_of = {name: number for number, name in enumerate(names)}
    numbers = [np.fromiter(map(number_of.__getitem__, folders(part)), np.int64, len(part)) for part in parts]
    return numbers, [printable(name) for name in names]


def _refuse_unlearned(root: Path, numbers: Sequence[Numbers], names: Sequence[str]) -> None:
    """Every class that is tested must be there to learn."""
    missing = set(numbers[-1].tolist()) - set(numbers[0].tolist())
    if missing:
        raise DataError(
            f"{shown(root)} has {len(missing)} classes to test that are not among those to learn, such as "
            f"{names[min(missing)]!r}: use the same class folders in both."
        )


def _with(collection: Collection, kind: str, numbers: Numbers) -> Collection:
    return Collection(collection.images, collection.labels, {**collection.groups, kind: numbers})


def _with_taxonomy(
    path: str, level: str, collections: Sequence[Collection], classes: Sequence[str]
) -> tuple[list[Collection], list[str]]:
    if not classes:
        raise SettingError("stream.taxonomy puts classes into groups, but these images have no classes.")
    group_of, names = class_groups(Path(path), level, classes, np.arange(len(classes)))
    return [_with(c, "taxonomy", group_of[c.labels]) for c in collections if c.labels is not None], names
