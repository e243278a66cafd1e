"""CLEAR100 (Lin et al. 2021): photographs of a hundred classes from eleven periods of time, one after the other."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ocssl._files.untrusted import read_lines
from ocssl.data.decode.files import FolderFiles, Report, list_images
from ocssl.data.sources.source import BENCHMARKS, Collection, Counts, SourceImages, refuse_missing, require_path
from ocssl.errors import DataError, printable
from ocssl.settings import StreamSettings

BUCKETS = [str(bucket) for bucket in range(11)]
TRAINS = ("train_image_only", "train")  # the two archives differ in what they have besides
IMAGES = "labeled_images"


@BENCHMARKS.add("clear100")
@dataclass(kw_only=True)
class Clear100:
    """CLEAR100: all classes in every one of 11 periods of time (domains); --data DIR with train_image_only and test.

    The 'iid' protocol: the official test images of all periods are tested on, not those of the next period.
    """

    def counts(self) -> Counts:
        return Counts(100, 10_000 * len(BUCKETS), 5_000 * len(BUCKETS), [10_000] * len(BUCKETS))

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        root = require_path(where, "clear100")
        train = next((name for name in TRAINS if (root / name).is_dir()), None)
        if train is None or not (root / "test").is_dir():
            lacking = "test" if train else " or ".join(TRAINS)
            raise DataError(
                f"{root} has no folder {lacking}: unpack clear100-train-image-only.zip, clear100-test.zip there."
            )
        classes = read_lines(root / train / "class_names.txt", DataError)
        if not classes or len(set(classes)) < len(classes):
            raise DataError(f"{root / train / 'class_names.txt'} is empty or names a class twice.")
        named = root / "test" / "class_names.txt"
        if named.is_file() and read_lines(named, DataError) != classes:
            raise DataError(f"{named} lists other classes than that of {train}.")
        return SourceImages(
            _collection(root, train, classes, report),
            _collection(root, "test", classes, report),
            [printable(name) for name in classes],
            {"domain": BUCKETS},
        )


def _collection(root: Path, split: str, classes: Sequence[str], report: Report) -> Collection:
    place = root / split / IMAGES
    if not place.is_dir():
        raise DataError(f"there is no folder {place}, which holds the images of CLEAR100.")
    missing = [bucket for bucket in BUCKETS if not (place / bucket).is_dir()]
    refuse_missing(missing, len(BUCKETS), f"folders {BUCKETS[0]} to {BUCKETS[-1]}", place)
    names = list_images(root, report, [f"{split}/{IMAGES}/{bucket}" for bucket in BUCKETS])
    number_of = {name.encode(): number for number, name in enumerate(classes)}
    labels, buckets = (np.empty(len(names), dtype=np.int64) for _ in range(2))
    for row, name in enumerate(names):
        _, _, bucket, folder, *inner = name.split(b"/")
        if not inner or folder not in number_of:
            raise DataError(f"{os.fsdecode(name)} in {root} is in no class folder of class_names.txt.")
        labels[row], buckets[row] = number_of[folder], int(bucket)
    empty = [BUCKETS[bucket] for bucket in np.setdiff1d(np.arange(len(BUCKETS)), buckets)]
    refuse_missing(empty, len(BUCKETS), "folders with images", place)
    return Collection(FolderFiles(root, names), labels, {"domain": buckets})
