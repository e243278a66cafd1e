"""Features of a benchmark, encoded once and shared by everything that is measured on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.data import Benchmark, Part
from ocssl.learner import Learner

AT_ONCE = 256  # images


@dataclass(frozen=True)
class Features:
    """What an encoder makes of a part: one row for each image that can be used."""

    x: npt.NDArray[np.float32]  # [n, d]
    labels: Tensor  # [n]
    tasks: Tensor  # [n]

    def __len__(self) -> int:
        return len(self.x)

    def of_task(self, task: int) -> Features:
        index = self.tasks == task
        return Features(self.x[index.numpy()], self.labels[index], self.tasks[index])


@dataclass(frozen=True)
class BenchmarkFeatures:
    """Features of all three parts of a benchmark."""

    train: Features
    val: Features
    test: Features


def encode(learner: Learner, part: Part) -> Features:
    """Features of a part's images as they are, the encoder in eval mode; the learner stays as it is."""
    blocks, kept = [], []
    cuts = torch.arange(len(part)).split(AT_ONCE)
    for cut, (images, usable) in zip(cuts, part.walk(cuts), strict=True):
        if len(images):
            blocks.append(learner.transform(images))
        kept.append(cut[usable])
    if not blocks:
        return Features(np.zeros((0, 0), np.float32), torch.zeros(0).long(), torch.zeros(0).long())
    index = torch.cat(kept)
    return Features(np.concatenate(blocks), part.labels[index], part.tasks[index])


def encode_benchmark(learner: Learner, benchmark: Benchmark) -> BenchmarkFeatures:
    return BenchmarkFeatures(*(encode(learner, part) for part in (benchmark.train, benchmark.val, benchmark.test)))
