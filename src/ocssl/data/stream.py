"""Streams: images in minibatches of a fixed order, with the labels that only evaluation sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ocssl.data.decode.decode_processes import Fault
from ocssl.data.decode.files import Files, Paths
from ocssl.data.decode.image_set import ImageSet, LiveImages
from ocssl.data.orders import Experience, drifted


@dataclass(frozen=True)
class Subset:
    """Training, validation or test images of a benchmark."""

    images: ImageSet
    rows: Tensor  # [n] int64, of `images`
    labels: Tensor  # [n] int64; -1: none
    tasks: Tensor  # [n] int64, the task that an image's class or group belongs to
    ids: Tensor  # [n] int64, unique in a benchmark
    files: Files | None = None  # by row, where images are encoded

    def __len__(self) -> int:
        return len(self.ids)

    def subset(self, index: Tensor) -> Subset:
        parts = self.rows[index], self.labels[index], self.tasks[index], self.ids[index]
        return Subset(self.images, *parts, files=self.files)

    def paths(self, index: Tensor) -> Sequence[str]:
        """Where the images of these places are; nothing if they have no place."""
        return () if self.files is None else Paths(self.files, self.rows[index].numpy())

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each cut of places in this subset: its usable images, and which of the cut they are."""
        return self.images.walk(self.rows[cut] for cut in cuts)

    def all(self) -> Tensor:
        """Every usable image, in memory."""
        return next(self.walk([torch.arange(len(self))]))[0]

    def faults(self) -> list[Fault]:
        """The unusable images of this subset that are known so far."""
        return list(self.faults_by_id().values())

    def faults_by_id(self) -> dict[int, Fault]:
        """The same by id, in the order in which they are stored."""
        known = self.images.faults
        places = torch.isin(self.rows, torch.tensor(list(known), dtype=torch.int64)).nonzero()[:, 0]
        places = places[self.rows[places].argsort()]
        return {int(self.ids[place]): known[int(self.rows[place])] for place in places}

    def restore_faults(self, known: Mapping[int, Fault]) -> None:
        """Unusable images by id that were found before; images that are decoded live are found one by one again."""
        if isinstance(self.images, LiveImages):
            places = torch.isin(self.ids, torch.tensor(list(known), dtype=torch.int64)).nonzero()[:, 0]
            self.images.faults |= {int(self.rows[place]): known[int(self.ids[place])] for place in places}


@dataclass(frozen=True)
class Batch:
    """A stream minibatch. Task and labels are for evaluation; a learner never receives them.

    It may be short of images that could not be used, and even empty.
    """

    images: Tensor  # [b, 3, H, W] uint8
    ids: Tensor  # [b] int64
    task: int
    labels: Tensor  # [b] int64; -1: none
    paths: Sequence[str] = ()  # b paths of files, or names of images; none if they have no place


class Stream(Protocol):
    """A finite stream with a known order: the same batches every time, from any position."""

    def __len__(self) -> int:
        """Number of minibatches."""
        ...

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """The minibatches from number `start` on."""
        ...


class ExperienceStream:
    """Experiences one after another, each shuffled once and cut into minibatches of one size.

    The incomplete last minibatch of an experience is left out with `drop_last`, as in the paper's setting. With several
    epochs each experience is repeated, shuffled again, before the next: for offline methods only. Without a generator
    rows keep their order. `drift` lets experiences fade into one another.
    """

    def __init__(
        self,
        subset: Subset,
        experiences: Sequence[Experience],
        batch: int,
        generator: torch.Generator | None,
        drop_last: bool = True,
        epochs: int = 1,
        drift: float = 0.0,
    ) -> None:
        self._subset = subset
        self._tasks = [experience.task for experience in experiences]
        stretches, owners = [], []
        for number, experience in enumerate(experiences):
            for _ in range(epochs):
                rows = experience.rows
                stretches.append(rows[torch.randperm(len(rows), generator=generator)] if generator else rows)
                owners.append(number)
        if drift and generator:
            stretches = drifted(stretches, drift, generator)
        self._rows = torch.cat(stretches)
        cuts, first = [], 0
        for owner, stretch in zip(owners, stretches, strict=True):
            last = len(stretch) - len(stretch) % batch if drop_last else len(stretch)
            cuts += [(owner, first + i, min(first + i + batch, first + last)) for i in range(0, last, batch)]
            first += len(stretch)
        self._cuts = torch.tensor(cuts, dtype=torch.int64).reshape(-1, 3)  # experience, first row, end of a minibatch

    def __len__(self) -> int:
        return len(self._cuts)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        cuts = self._cuts[start:]
        pieces = (self._rows[first:end] for _, first, end in cuts)
        for cut, (images, usable) in zip(cuts, self._subset.walk(pieces), strict=True):
            owner, first, end = cut.tolist()
            rows = self._rows[first:end][usable]
            subset = self._subset
            yield Batch(images, subset.ids[rows], self._tasks[owner], subset.labels[rows], subset.paths(rows))

    def ends(self) -> list[int]:
        """For each experience that has minibatches: how many minibatches have passed when it ends."""
        owners = self._cuts[:, 0].tolist()
        return [i + 1 for i, owner in enumerate(owners) if i + 1 == len(owners) or owners[i + 1] != owner]

    def tasks(self) -> list[int]:
        """The task of each experience that has minibatches."""
        return [self._tasks[owner] for owner in self._cuts[:, 0].unique_consecutive().tolist()]
