"""A part of a benchmark: images with what evaluation may know of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.data.decode.images import Fault, Pictures


@dataclass(frozen=True)
class Part:
    """Training, validation or test images."""

    pictures: Pictures
    rows: Tensor  # [n] int64, of `pictures`
    labels: Tensor  # [n] int64; -1: none
    tasks: Tensor  # [n] int64, the task that an image's class or group belongs to
    ids: Tensor  # [n] int64, unique in a benchmark

    def __len__(self) -> int:
        return len(self.ids)

    def subset(self, index: Tensor) -> Part:
        return Part(self.pictures, self.rows[index], self.labels[index], self.tasks[index], self.ids[index])

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each cut of places in this part: its usable images, and which of the cut they are."""
        return self.pictures.walk(self.rows[cut] for cut in cuts)

    def all(self) -> Tensor:
        """Every usable image, in memory."""
        return next(self.walk([torch.arange(len(self))]))[0]

    def faults(self) -> list[Fault]:
        """The images of this part that are known, so far, to be of no use."""
        known = self.pictures.faults
        rows = torch.tensor(sorted(known), dtype=torch.int64)
        return [known[row] for row in rows[torch.isin(rows, self.rows)].tolist()]
