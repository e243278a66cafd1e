"""Split ImageNet-100: a hundred classes of ImageNet, from its folders or from parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from ocssl.data.decode.folder_files import FolderFiles, list_images
from ocssl.data.decode.images import Report
from ocssl.data.sources.parquet import parquet_paths, parquet_tables
from ocssl.data.sources.source import BENCHMARKS, Collection, Found
from ocssl.data.sources.table import Table, class_names, image_column, label_column
from ocssl.data.sources.text_files import need, read_lines, shown
from ocssl.errors import DataError, SettingError, nearest
from ocssl.settings import StreamSettings

# random.seed(42); random.sample(range(1000), 100), as the authors of CLA draw them: also the order of their stream
AC = """
654 114 25 759 281 250 228 142 754 104 692 758 913 558 89 604 432 32 30 95 223 238 517 616 27
574 203 733 665 718 986 429 225 459 603 284 828 890 6 777 825 163 714 983 348 964 159 220 781 344
990 94 389 99 367 867 352 618 270 826 44 747 470 549 127 387 80 565 300 849 643 633 906 882 370
591 196 721 71 46 677 233 791 296 81 875 978 887 103 947 954 464 650 854 373 166 379 363 214 686
"""

# the list of Contrastive Multiview Coding (HobbitLong/CMC, imagenet100.txt), which most papers use
CMC = """
n02869837 n01749939 n02488291 n02107142 n13037406 n02091831 n04517823 n04589890 n03062245 n01773797
n01735189 n07831146 n07753275 n03085013 n04485082 n02105505 n01983481 n02788148 n03530642 n04435653
n02086910 n02859443 n13040303 n03594734 n02085620 n02099849 n01558993 n04493381 n02109047 n04111531
n02877765 n04429376 n02009229 n01978455 n02106550 n01820546 n01692333 n07714571 n02974003 n02114855
n03785016 n03764736 n03775546 n02087046 n07836838 n04099969 n04592741 n03891251 n02701002 n03379051
n02259212 n07715103 n03947888 n04026417 n02326432 n03637318 n01980166 n02113799 n02086240 n03903868
n02483362 n04127249 n02089973 n03017168 n02093428 n02804414 n02396427 n04418357 n02172182 n01729322
n02113978 n03787032 n02089867 n02119022 n03777754 n04238763 n02231487 n03032252 n02138441 n02104029
n03837869 n03494278 n04136333 n03794056 n03492542 n02018207 n04067472 n03930630 n03584829 n02123045
n04229816 n02100583 n03642806 n04336792 n03259280 n02116738 n02108089 n03424325 n01855672 n02090622
"""


@BENCHMARKS.add("imagenet100")
@dataclass(kw_only=True)
class ImageNet100:
    """Split ImageNet-100: 100 classes of ImageNet (train/n*/ and val/n*/, or parquet files); --data DIR.

    `classes` is ac (those of the CLA and SOLAR experiments), cmc (the usual list), or a file with a WordNet id or a
    number from 0 to 999 a line. Classes are numbered, and come in the stream, as they are listed.
    """

    classes: str = "ac"

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> Found:
        known = imagenet_classes()
        wanted = class_list(self.classes, list(known))
        root = need(where, "imagenet100")
        names = [f"{wnid} {known[wnid]}" for wnid in wanted]
        if not root.is_dir() or parquet_paths(root):
            tables = parquet_tables(root)
            test = next((tables[name] for name in ("validation", "val", "valid") if name in tables), None)
            if test is None:
                raise DataError(f"{shown(root)} has no files validation-*.parquet, which hold the images to test on.")
            numbers = [list(known).index(wnid) for wnid in wanted]
            return Found(_rows(tables["train"], numbers, wanted), _rows(test, numbers, wanted), names)
        inner = root / "ILSVRC" / "Data" / "CLS-LOC"  # as it is on Kaggle
        root = inner if inner.is_dir() else root
        return Found(_folder(root, "train", wanted, report), _folder(root, "val", wanted, report), names)


def imagenet_classes() -> dict[str, str]:
    """The 1000 classes in the order of their WordNet ids, which numbers them, with a name for each."""
    text = resources.files("ocssl.data.sources").joinpath("imagenet_classes.txt").read_text("utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines())


def class_list(choice: str, known: Sequence[str]) -> list[str]:
    """WordNet ids of the classes that `ac`, `cmc` or a file names, in its order."""
    named = {"ac": AC, "cmc": CMC}
    if choice not in named and not Path(choice).is_file():
        raise SettingError(f"stream.classes is {choice!r}: wanted is ac, cmc or a file with a WordNet id a line.")
    words = named[choice].split() if choice in named else read_lines(Path(choice))
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
        raise DataError(f"there is no folder {shown(place)}: name the folder that has train and val with --data.")
    missing = [wnid for wnid in wanted if not (place / wnid).is_dir()]
    if len(missing) == len(wanted) and any(place.glob("ILSVRC2012_*")):
        raise DataError(f"the images in {shown(place)} are not sorted into folders: move them into one a class.")
    if missing:
        raise DataError(
            f"{shown(place)} lacks {len(missing)} of the {len(wanted)} class folders, the first of them {missing[0]}."
        )
    names = list_images(root, report, [f"{split}/{wnid}" for wnid in wanted])
    number_of = {wnid.encode(): number for number, wnid in enumerate(wanted)}
    labels = np.array([number_of[name.split(b"/", 2)[1]] for name in names], dtype=np.int64)
    _refuse_empty(labels, wanted, place)
    return Collection(FolderFiles(root, names), labels)


def _rows(table: Table, numbers: Sequence[int], wanted: Sequence[str]) -> Collection:
    """The rows of the wanted classes, whose numbers among all 1000 are in the column of labels."""
    column = label_column(table, "auto")
    labels = table.column(column) if column else None
    if labels is None or isinstance(labels, list):
        raise DataError(f"{shown(table.place)} has no column label with numbers from 0 to 999.")
    names = class_names(table.schema, column)
    if (names is not None and len(names) != 1000) or (len(labels) and not 0 <= labels.min() <= labels.max() < 1000):
        raise DataError(
            f"the labels of {shown(table.place)} are not those of ImageNet's 1000 classes: use it with parquet:PATH."
        )
    place_of = np.full(1000, -1, dtype=np.int64)
    place_of[list(numbers)] = np.arange(len(numbers))
    rows = np.flatnonzero(place_of[labels] >= 0)
    own = place_of[labels[rows]]
    _refuse_empty(own, wanted, table.place)
    return Collection(table.images(image_column(table)).subset(rows), own)


def _refuse_empty(labels: np.ndarray[tuple[int], np.dtype[np.int64]], wanted: Sequence[str], place: Path) -> None:
    empty = np.setdiff1d(np.arange(len(wanted)), labels)
    if len(empty):
        raise DataError(
            f"{shown(place)} has no images of {len(empty)} of the {len(wanted)} classes, the first of them "
            f"{wanted[empty[0]]}."
        )
