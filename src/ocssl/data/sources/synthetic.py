"""The embedded benchmark: drawn from a seed when it is needed, nothing to download."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from ocssl.data.decode.files import Report
from ocssl.data.decode.image_set import ArrayImages, ImageSet
from ocssl.data.sources.shapes import CLASSES, class_names, render
from ocssl.data.sources.source import BENCHMARKS, Collection, Counts, Drawing, SourceImages
from ocssl.settings import Size, StreamSettings

TEST_KEYS = 2**40  # test images are numbered from here, so that no number of training images reaches them
AT_ONCE = 2**26  # bytes of images that are drawn beforehand; more are drawn whenever they are asked for


class Shapes(Drawing):
    """Images of these labels and keys."""

    def __init__(self, labels: Tensor, keys: Tensor, seed: int) -> None:
        self.labels, self.keys, self.seed = labels, keys, seed

    def __len__(self) -> int:
        return len(self.keys)

    def draw(self, rows: Tensor, size: int) -> ImageSet:
        drawn = DrawnImages(self.labels[rows], self.keys[rows], size, self.seed)
        few = len(rows) * 3 * size**2 <= AT_ONCE
        return ArrayImages(drawn[torch.arange(len(rows))] if few else drawn)

    def fingerprint(self) -> str:
        return f"shapes {self.seed} {len(self)} {int(self.keys.sum())}"


class DrawnImages:
    """Images that are drawn whenever they are asked for: any number of them costs no memory."""

    def __init__(self, labels: Tensor, keys: Tensor, size: int, seed: int) -> None:
        self._labels, self._keys, self._size, self._seed = labels, keys, size, seed

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return render(self._labels[rows], self._keys[rows], self._size, self._seed)


@BENCHMARKS.add("synthetic")
@dataclass(kw_only=True)
class Synthetic:
    """Shapes with textures on cluttered grounds, class by class; drawn from a seed, no download."""

    classes: Annotated[int, Field(ge=2, le=CLASSES)] = 20
    train: Size = 250  # images a class, validation included
    test: Size = 50  # images a class
    in_memory: ClassVar[bool] = True
    drawn: ClassVar[bool] = True

    def counts(self) -> Counts:
        return Counts(self.classes, self.classes * self.train, self.classes * self.test)

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        train = self._collection(self.train, 0, settings.data_seed)
        test = self._collection(self.test, TEST_KEYS, settings.data_seed)
        return SourceImages(train, test, class_names()[: self.classes])

    def _collection(self, per_class: int, first: int, seed: int) -> Collection:
        labels = torch.arange(self.classes).repeat_interleave(per_class)
        keys: Tensor = first + torch.arange(len(labels))
        return Collection(Shapes(labels, keys, seed), labels.numpy())
