"""Images of one size by row number, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fault:
    """An image that cannot be used, and why."""

    name: str
    reason: str


class Pictures(Protocol):
    """Images by row number. A row whose image cannot be used is left out wherever it is asked for, and has a fault."""

    def __len__(self) -> int: ...

    @property
    def faults(self) -> Mapping[int, Fault]:
        """The rows that are known, so far, to be of no use."""
        ...

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each cut, row numbers [n]: the usable images uint8 [m, 3, S, S], and which of the n they are, bool [n].

        The same images in the same order however they are read. Cuts may be asked for ahead of time.
        """
        ...


class ArrayPictures:
    """Images that are in memory already."""

    faults: Mapping[int, Fault] = {}

    def __init__(self, images: Tensor) -> None:
        self.images = images  # uint8 [n, 3, S, S]

    def __len__(self) -> int:
        return len(self.images)

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in cuts:
            yield self.images[rows], torch.ones(len(rows), dtype=torch.bool)


Report = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


def silent(what: str, done: int, total: int) -> None:
    """A report that nobody reads."""
