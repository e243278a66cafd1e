"""CLEAR100 (Lin et al. 2021): photographs of a hundred classes from eleven periods of time, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ocssl.data.decode.encoded import printable
from ocssl.data.decode.folder_files import FolderFiles, list_images
from ocssl.data.decode.images import Report
from ocssl.data.sources.source import BENCHMARKS, Collection, Found
from ocssl.data.sources.text_files import need, read_lines, shown
from ocssl.errors import DataError
from ocssl.settings import StreamSettings

BUCKETS = 11
TRAINS = ("train_image_only", "train")  # the two archives differ in what they have besides
IMAGES = "labeled_images"


@BENCHMARKS.add("clear100")
@dataclass(kw_only=True)
class Clear100:
    """CLEAR100: all classes in every one of 11 periods of time (domains); --data DIR with train_image_only and test.

    The 'iid' protocol: the official test images of all periods are tested on, not those of the next period.
    """

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> Found:
        root = need(where, "clear100")
        train = next((name for name in TRAINS if (root / name).is_dir()), None)
        if train is None or not (root / "test").is_dir():
            lacking = "test" if train else " or ".join(TRAINS)
            raise DataError(
                f"{shown(root)} has no folder {lacking}: unpack clear100-train-image-only.zip, clear100-test.zip there."
            )
        classes = read_lines(root / train / "class_names.txt")
        if not classes or len(set(classes)) < len(classes):
            raise DataError(f"{shown(root / train / 'class_names.txt')} is empty or names a class twice.")
        named = root / "test" / "class_names.txt"
        if named.is_file() and read_lines(named) != classes:
            raise DataError(f"{shown(named)} lists other classes than that of {train}.")
        buckets = [str(bucket) for bucket in range(BUCKETS)]
        return Found(
            _collection(root, train, classes, report),
            _collection(root, "test", classes, report),
            [printable(name) for name in classes],
            {"domain": buckets},
        )


def _collection(root: Path, split: str, classes: Sequence[str], report: Report) -> Collection:
    place = root / split / IMAGES
    if not place.is_dir():
        raise DataError(f"there is no folder {shown(place)}, which holds the images of CLEAR100.")
    missing = [bucket for bucket in range(BUCKETS) if not (place / str(bucket)).is_dir()]
    if missing:
        raise DataError(
            f"{shown(place)} lacks {len(missing)} of the {BUCKETS} folders 0 to {BUCKETS - 1}, the first of them "
            f"{missing[0]}: unpack the archive anew."
        )
    names = list_images(root, report, [f"{split}/{IMAGES}/{bucket}" for bucket in range(BUCKETS)])
    number_of = {name.encode(): number for number, name in enumerate(classes)}
    labels, buckets = (np.empty(len(names), dtype=np.int64) for _ in range(2))
    for row, name in enumerate(names):
        _, _, bucket, folder, *inner = name.split(b"/")
        if not inner or folder not in number_of:
            raise DataError(f"{printable(name)} in {shown(root)} lies in no folder of a class of class_names.txt.")
        labels[row], buckets[row] = number_of[folder], int(bucket)
    empty = np.setdiff1d(np.arange(BUCKETS), buckets)
    if len(empty):
        raise DataError(f"{shown(place / str(empty[0]))} has no images: unpack the archive anew.")
    return Collection(FolderFiles(root, names), labels, {"domain": buckets})
