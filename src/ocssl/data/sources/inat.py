"""iNaturalist 2021 (mini): species of a kingdom, in the order of their taxonomic Classes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocssl._files.untrusted import read_json, reading
from ocssl.data.decode.files import FolderFiles, Packed, Report, refuse_way_out
from ocssl.data.sources.source import (
    BENCHMARKS,
    Collection,
    Counts,
    SourceImages,
    numbered,
    refuse_unlearned,
    require_path,
)
from ocssl.errors import DataError, SettingError, printable, unknown
from ocssl.settings import StreamSettings

MOST_BYTES = 2**30  # of a file of annotations
TRAIN, TEST = "train_mini", "val"
LOOKED_FOR = 20  # images that are looked for; if none of them is there, the archive was not unpacked
RANKS = ("kingdom", "class", "order")
SPECIES = {"Animalia": 5388, "Plantae": 4271}
ORDERS, CLASSES = 152, 50  # of animals; the Classes about
KEPT = {"images", "categories", "annotations", "id", "file_name", "image_id", "category_id", *RANKS}

Image = tuple[str, str, str]  # file name, taxonomic Class, taxonomic Order


@BENCHMARKS.add("inat")
@dataclass(kw_only=True)
class INaturalist:
    """iNaturalist 2021 mini, one kingdom, its Orders as labels; --data DIR with train_mini.json, val.json and images.

    Groups (`taxonomy`) are the taxonomic Classes.
    """

    kingdom: str = "Animalia"  # Plantae is what encoders are pre-trained on

    def counts(self) -> Counts:
        """50 images a species to learn from and 10 to test on, in taxonomic Classes as if these were of one size."""
        if self.kingdom not in SPECIES:
            raise SettingError(f"how many images of {self.kingdom} there are is not known before they are read.")
        species = SPECIES[self.kingdom]
        return Counts(ORDERS, 50 * species, 10 * species, [50 * species // CLASSES] * CLASSES)

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        root = require_path(where, "inat")
        splits = []
        for step, split in enumerate((TRAIN, TEST)):
            report("reading annotations", step, 2)
            splits.append(self._images(root, split))
        report("reading annotations", 2, 2)
        labels, orders = numbered([[order for _, _, order in split] for split in splits])
        taxa, groups = numbered([[group for _, group, _ in split] for split in splits])
        refuse_unlearned(labels, orders, root)
        refuse_unlearned(taxa, groups, root)
        train, test = (
            Collection(FolderFiles(root, Packed([name.encode() for name, _, _ in split])), own, {"taxonomy": taxon})
            for split, own, taxon in zip(splits, labels, taxa, strict=True)
        )
        return SourceImages(train, test, list(map(printable, orders)), {"taxonomy": list(map(printable, groups))})

    def _images(self, root: Path, split: str) -> list[Image]:
        path = root / f"{split}.json"
        with reading(path, DataError):
            content = read_json(path, MOST_BYTES, keep=lambda entry: {key: entry[key] for key in entry if key in KEPT})
        categories = _by_id(path, content, "categories", "id", dict.fromkeys(RANKS, str))
        files = _by_id(path, content, "images", "id", {"file_name": str})
        kinds = _by_id(path, content, "annotations", "image_id", {"category_id": int})
        kingdoms = {entry["kingdom"] for entry in categories.values()}
        if self.kingdom not in kingdoms:
            raise unknown("stream.kingdom", self.kingdom, kingdoms)
        images = []
        for number, annotation in kinds.items():
            kind, file = categories.get(annotation["category_id"]), files.get(number)
            if kind is None or file is None:
                raise DataError(f"{path} annotates image {number}, but does not list it or its category.")
            if kind["kingdom"] == self.kingdom:
                images.append((_safe(path, file["file_name"]), kind["class"], kind["order"]))
        if not images:
            raise DataError(f"{path} has no images of {self.kingdom}.")
        _look_for(root, split, [name for name, _, _ in images[:LOOKED_FOR]])
        return images


def _by_id(path: Path, content: Any, title: str, key: str, fields: dict[str, type]) -> dict[int, dict[str, Any]]:
    """The objects of a list by a number that each has; all must have these fields."""
    entries = content.get(title) if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise DataError(f"{path} has no list {title!r}: these are not iNaturalist's annotations of 2021.")
    found: dict[int, dict[str, Any]] = {}
    for place, entry in enumerate(entries):
        whole = isinstance(entry, dict) and all(type(entry.get(f)) is kind for f, kind in fields.items())
        if not whole or type(entry.get(key)) is not int:
            raise DataError(f"{path}: entry {place:,} of {title!r} lacks {key} or {', '.join(fields)}.")
        if entry[key] in found:
            raise DataError(f"{path}: {title!r} has {key} {entry[key]} twice.")
        found[entry[key]] = entry
    return found


def _safe(path: Path, name: str) -> str:
    """A relative name that leads nowhere else."""
    text = not any("\ud800" <= letter <= "\udfff" for letter in name)
    if not text or "\0" in name or "\\" in name or {"", ".", ".."} & set(name.split("/")):
        raise DataError(f"{path} names an image {name[:100]!r}, which is no place in its folder.")
    return name


def _look_for(root: Path, split: str, names: Sequence[str]) -> None:
    refuse_way_out(root, os.fsencode(split))
    if not any((root / name).exists() for name in names):
        raise DataError(
            f"none of the first {len(names)} images of {split}.json is there, such as {root / names[0]}: "
            f"unpack {split}.tar.gz in {root}."
        )
