"""Split ImageNet-100: a hundred classes of ImageNet, from its folders or from parquet files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ocssl._files.untrusted import read_lines
from ocssl.data.decode.files import FolderFiles, Report, list_images
from ocssl.data.sources.parquet_hub import (
    Columns,
    class_names,
    image_column,
    label_column,
    parquet_paths,
    parquet_splits,
)
from ocssl.data.sources.source import (
    BENCHMARKS,
    Collection,
    Counts,
    Numbers,
    SourceImages,
    packaged_lines,
    refuse_missing,
    require_path,
)
from ocssl.errors import DataError, SettingError, nearest
from ocssl.settings import StreamSettings

# Files of this package. ac: random.seed(42); random.sample(range(1000), 100), as the authors of CLA draw them, also the
# order of their stream. cmc: the list of Contrastive Multiview Coding (HobbitLong/CMC), which most papers use.
LISTS = ("ac", "cmc")


@BENCHMARKS.add("imagenet100")
@dataclass(kw_only=True)
class ImageNet100:
    """Split ImageNet-100: 100 classes of ImageNet (train/n*/ and val/n*/, or parquet files); --data DIR.

    `classes` is ac (those of the CLA and SOLAR experiments), cmc (the usual list), or a file with a WordNet id or a
    number from 0 to 999 per line. Classes are numbered, and come in the stream, as they are listed.
    """

    classes: str = "ac"

    def counts(self) -> Counts:
        return Counts(100, 130_000, 5_000)  # about: some classes have fewer than 1,300 to learn from

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        known = imagenet_classes()
        wanted = class_list(self.classes, list(known))
        root = require_path(where, "imagenet100")
        names = [f"{wnid} {known[wnid]}" for wnid in wanted]
        if not root.is_dir() or parquet_paths(root):
            splits = parquet_splits(root)
            test = next((splits[name] for name in ("validation", "val", "valid") if name in splits), None)
            if test is None:
                raise DataError(f"{root} has no files validation-*.parquet, which hold the images to test on.")
            numbers = [list(known).index(wnid) for wnid in wanted]
            return SourceImages(_rows(splits["train"], numbers, wanted), _rows(test, numbers, wanted), names)
        inner = root / "ILSVRC" / "Data" / "CLS-LOC"  # as it is on Kaggle
        root = inner if inner.is_dir() else root
        return SourceImages(_folder(root, "train", wanted, report), _folder(root, "val", wanted, report), names)


def imagenet_classes() -> dict[str, str]:
    """The 1000 classes in the order of their WordNet ids, which numbers them, with a name for each."""
    return dict(line.split(" ", 1) for line in packaged_lines("imagenet_classes.txt"))


def class_list(choice: str, known: Sequence[str]) -> list[str]:
    """WordNet ids of the classes that `ac`, `cmc` or a file names, in its order."""
    if choice not in LISTS and not Path(choice).is_file():
        raise SettingError(f"stream.classes is {choice!r}: it must be ac, cmc or a file with a WordNet id per line.")
    own = choice not in LISTS
    words = read_lines(Path(choice), DataError) if own else packaged_lines(f"imagenet100_{choice}.txt")
    wanted = []
    for number, word in enumerate(words, 1):
        wnid = known[int(word)] if word.isdecimal() and len(word) < 4 else word
        if wnid not in known:
            close = nearest(wnid, known)
            hint = f": did you mean {close}?" if close else " or a number below 1000."
            raise SettingError(f"{word[:40]!r}, class {number} in {choice}, is no WordNet id of ImageNet{hint}")
        wanted.append(wnid)
    if len(set(wanted)) < len(wanted) or not wanted:
        twice = next((wnid for wnid in wanted if wanted.count(wnid) > 1), None)
        raise SettingError(f"{choice} lists {twice} twice." if twice else f"{choice} lists no classes.")
    return wanted


def _folder(root: Path, split: str, wanted: Sequence[str], report: Report) -> Collection:
    place = root / split
    if not place.is_dir():
        raise DataError(f"there is no folder {place}: name the folder that has train and val with --data.")
    missing = [wnid for wnid in wanted if not (place / wnid).is_dir()]
    if len(missing) == len(wanted) and any(place.glob("ILSVRC2012_*")):
        raise DataError(f"the images in {place} are not sorted into folders: move them into one folder per class.")
    refuse_missing(missing, len(wanted), "class folders", place)
    names = list_images(root, report, [f"{split}/{wnid}" for wnid in wanted])
    number_of = {wnid.encode(): number for number, wnid in enumerate(wanted)}
    labels = np.array([number_of[name.split(b"/", 2)[1]] for name in names], dtype=np.int64)
    _refuse_empty(labels, wanted, place)
    return Collection(FolderFiles(root, names), labels)


def _rows(columns: Columns, numbers: Sequence[int], wanted: Sequence[str]) -> Collection:
    """The rows of the wanted classes, whose numbers among all 1000 are in the column of labels."""
    column = label_column(columns, "auto")
    labels = columns.values(column) if column else None
    if labels is None or isinstance(labels, list):
        raise DataError(f"{columns.place} has no column label with numbers from 0 to 999.")
    names = class_names(columns.schema, column)
    if (names is not None and len(names) != 1000) or (len(labels) and not 0 <= labels.min() <= labels.max() < 1000):
        raise DataError(
            f"the labels of {columns.place} are not those of ImageNet's 1000 classes: use it with parquet:PATH."
        )
    place_of = np.full(1000, -1, dtype=np.int64)
    place_of[list(numbers)] = np.arange(len(numbers))
    rows = np.flatnonzero(place_of[labels] >= 0)
    own = place_of[labels[rows]]
    _refuse_empty(own, wanted, columns.place)
    return Collection(columns.images(image_column(columns)).subset(rows), own)


def _refuse_empty(labels: Numbers, wanted: Sequence[str], place: Path) -> None:
    empty = [wanted[number] for number in np.setdiff1d(np.arange(len(wanted)), labels)]
    refuse_missing(empty, len(wanted), "classes with images", place)
