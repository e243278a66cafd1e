"""Any folder of images, whose sub-folders are classes or domains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from ocssl.data.decode.decode_processes import Fault, by_reason
from ocssl.data.decode.files import FolderFiles, Packed, Report, survey_folder
from ocssl.data.sources.source import (
    BENCHMARKS,
    Collection,
    SourceImages,
    class_groups,
    numbered,
    refuse_unlearned,
    require_path,
)
from ocssl.errors import DataError, SettingError, printable, unknown
from ocssl.settings import StreamSettings

TRAIN = "train"
TESTS = ("test", "val", "valid", "validation")  # the first of them that is there
MEANINGS = ("class", "domain")


@BENCHMARKS.add("folder")
@dataclass(kw_only=True)
class ImageFolder:
    """folder:PATH: your own images, with sub-folders for classes or domains, and train and test above them if you like.

    `levels` says what the sub-folders are, from the top: class, domain, domain/class, class/domain or none.
    """

    levels: str = "auto"
    taxonomy: str = ""  # a JSON file that puts classes into groups
    level: str = "group"  # the key of the group in that file
    after_colon: ClassVar[str] = "path"

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        root = require_path(where, "folder", "folder:PATH")
        if not root.is_dir():
            raise DataError(f"{root} is no folder.")
        images, ignored = survey_folder(root, report)
        names, left_out = list(images), [Fault(printable(name), why) for name, why in ignored]
        if not names:
            what = f"{len(left_out)} files, {by_reason(left_out)}" if left_out else "it is empty"
            raise DataError(f"there are no images under {root}: {what}.")
        splits, above = _split(root, names)
        levels = self._levels(root, {name.count(b"/") - above for split in splits for name in split})
        if self.levels == "auto" and not above and len({name.partition(b"/")[0] for name in names}) < 2:
            levels = []  # a single folder is no class
        collections = [Collection(FolderFiles(root, Packed(split))) for split in splits]
        group_names: dict[str, Sequence[str]] = {}
        classes: list[str] = []
        for place, meaning in enumerate(levels, above):
            numbers, folders = numbered([[name.split(b"/", place + 1)[place] for name in split] for split in splits])
            titles = [printable(folder) for folder in folders]
            if meaning == "domain":
                group_names["domain"] = titles
                collections = [replace(c, groups={"domain": n}) for c, n in zip(collections, numbers, strict=True)]
            else:
                refuse_unlearned(numbers, titles, root)
                classes = titles
                collections = [replace(c, labels=n) for c, n in zip(collections, numbers, strict=True)]
        if self.taxonomy:
            every = np.arange(len(classes))
            group_of, group_names["taxonomy"] = class_groups(Path(self.taxonomy), self.level, classes, every)
            collections = [replace(c, groups={**c.groups, "taxonomy": group_of[c.labels]}) for c in collections]
        return SourceImages(
            collections[0], collections[1] if len(splits) > 1 else None, classes, group_names, left_out=left_out
        )

    def _levels(self, root: Path, depths: set[int]) -> list[str]:
        """The meaning of each level of sub-folders; `depths`: in how many of them images are."""
        if self.levels == "auto":
            if 0 in depths and len(depths) > 1:
                return []  # images beside sub-folders with images: the folders are no classes
            return [] if depths == {0} else ["class"]
        levels = [] if self.levels == "none" else self.levels.split("/")
        for word in levels:
            if word not in MEANINGS:
                raise unknown("stream.levels", word, (*MEANINGS, "none", "auto"))
        if len(set(levels)) < len(levels):
            raise SettingError(f"stream.levels is {self.levels!r}: each of class and domain can be there once.")
        if min(depths) < len(levels):
            raise DataError(
                f"stream.levels is {self.levels!r}, but {root} has images in {min(depths)} sub-folders "
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
        raise DataError(f"{root} has {what} beside {TRAIN} and {tests[0]}: move that into one of them, or away.")
    splits = []
    for role in (TRAIN, *tests[:1]):
        if len(tops[role]) > 1:
            raise DataError(f"{root} has several folders called {role}, in capital and small letters.")
        (top,) = tops[role]
        splits.append([name for name in names if name.startswith(top + b"/")])
    return splits, 1
