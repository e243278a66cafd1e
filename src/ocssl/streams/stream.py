"""What arrives: minibatches of images in a fixed order, startable at any of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """A stream minibatch. Task and labels are for evaluation; a learner never receives them."""

    images: Tensor  # [b, 3, H, W] uint8
    ids: Tensor  # [b] int64
    task: int
    labels: Tensor  # [b] int64


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

    The incomplete last minibatch of an experience is left out with `drop_last`, as in the paper's setting. More than
    one epoch goes through each experience so often, shuffled anew, before the next: for offline methods only.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        ids: Tensor,
        experiences: Sequence[Tensor],
        batch: int,
        generator: torch.Generator,
        drop_last: bool = True,
        epochs: int = 1,
    ) -> None:
        self._images, self._labels, self._ids = images, labels, ids
        self._cuts: list[tuple[int, Tensor]] = []  # task and rows of every minibatch
        for task, rows in enumerate(experiences):
            for _ in range(epochs):
                shuffled = rows[torch.randperm(len(rows), generator=generator)]
                for cut in shuffled.split(batch):
                    if len(cut) == batch or not drop_last:
                        self._cuts.append((task, cut))

    def __len__(self) -> int:
        return len(self._cuts)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        for task, rows in self._cuts[start:]:
            yield Batch(self._images[rows], self._ids[rows], task, self._labels[rows])

    def ends(self) -> list[int]:
        """For each experience that has minibatches: how many minibatches have passed when it ends."""
        tasks = [task for task, _ in self._cuts]
        return [i + 1 for i, task in enumerate(tasks) if i + 1 == len(tasks) or tasks[i + 1] != task]
