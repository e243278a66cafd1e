"""A benchmark: labelled images, split for stream, validation and test, in an order of experiences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ocssl.errors import SettingError, unknown
from ocssl.registry import Registry
from ocssl.settings import StreamSettings
from ocssl.streams.stream import ExperienceStream
from ocssl.weights import generator_for


@dataclass(frozen=True)
class Labelled:
    """Images with labels."""

    images: Tensor  # [n, 3, S, S] uint8
    labels: Tensor  # [n] int64
    ids: Tensor  # [n] int64, unique in a benchmark

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, index: Tensor) -> Labelled:
        return Labelled(self.images[index], self.labels[index], self.ids[index])


@dataclass(frozen=True)
class Benchmark:
    """Stream part, held-out validation part and test part of the same classes."""

    name: str
    train: Labelled
    val: Labelled
    test: Labelled
    experiences: Sequence[Tensor]  # rows of `train`, experience by experience

    def stream(self, batch: int, seed: int, drop_last: bool = True, epochs: int = 1) -> ExperienceStream:
        """The stream that a run with this seed sees: experiences in fixed order, shuffled inside."""
        train = self.train
        generator = generator_for(seed, "stream")
        return ExperienceStream(
            train.images, train.labels, train.ids, self.experiences, batch, generator, drop_last, epochs
        )


class BenchmarkMaker(Protocol):
    """Makes a benchmark from the settings of its stream; its keyword-only arguments are further `stream.` settings."""

    def load(self, settings: StreamSettings) -> Benchmark: ...


BENCHMARKS: Registry[BenchmarkMaker] = Registry("benchmark")


def load_benchmark(name: str, settings: StreamSettings) -> Benchmark:
    """Read or draw a benchmark; a wrong name or option is a SettingError."""
    options = settings.model_extra or {}
    known = BENCHMARKS.options(name)
    for key in options:
        if key not in known:
            raise unknown("setting", f"stream.{key}", [f"stream.{k}" for k in (*StreamSettings.model_fields, *known)])
    return BENCHMARKS.build(name, options).load(settings)


def split(labelled: Labelled, share: float, seed: int) -> tuple[Labelled, Labelled]:
    """Hold out a share of every class: (rest, held out), the same for the same seed."""
    generator = generator_for(seed, "validation")
    held = torch.zeros(len(labelled), dtype=torch.bool)
    for label in labelled.labels.unique():
        rows = (labelled.labels == label).nonzero()[:, 0]
        count = round(share * len(rows))
        held[rows[torch.randperm(len(rows), generator=generator)[:count]]] = True
    return labelled.rows((~held).nonzero()[:, 0]), labelled.rows(held.nonzero()[:, 0])


def class_incremental(labels: Tensor, order: Sequence[int], experiences: int) -> list[Tensor]:
    """Rows of each experience: classes in the given order, in equal groups, each group a task."""
    if len(order) % experiences:
        raise SettingError(f"stream.experiences is {experiences}, which does not divide the {len(order)} classes.")
    groups = torch.tensor(order).reshape(experiences, -1)
    return [torch.isin(labels, group).nonzero()[:, 0] for group in groups]


def iid(labels: Tensor, experiences: int, generator: torch.Generator) -> list[Tensor]:
    """Rows of each experience for a stream that does not change: everything shuffled, in equal parts."""
    return list(torch.randperm(len(labels), generator=generator).tensor_split(experiences))
