"""What a source has found: images with all that is known of each, before any of it is split, ordered or decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ocssl._core.registry import Registry
from ocssl.data.decode.encoded import Files
from ocssl.data.decode.images import Pictures, Report
from ocssl.errors import SettingError
from ocssl.settings import StreamSettings

Numbers = npt.NDArray[np.int64]


class Drawing(ABC):
    """Images that are computed when they are needed."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def draw(self, rows: Tensor, size: int) -> Pictures:
        """These rows as pictures of a size."""

    @abstractmethod
    def fingerprint(self) -> str:
        """The same for the same images."""


@dataclass(frozen=True)
class Collection:
    """Images of a training or a test part. Rows stand in the official order where there is one."""

    images: Files | Tensor | Drawing  # encoded, or decoded uint8 [n, 3, H, W], or yet to be drawn
    labels: Numbers | None = None  # [n] class numbers; None: there are no labels
    groups: Mapping[str, Numbers] = field(default_factory=dict)  # by kind ("domain", "taxonomy"): [n] group numbers

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Found:
    """A data set as a benchmark's maker found it."""

    train: Collection
    test: Collection | None = None  # None: a share of the training images is held out instead
    classes: Sequence[str] = ()  # the names of the class numbers
    group_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    class_order: Sequence[int] | None = None  # in a class-incremental stream; None: as they are numbered


class BenchmarkMaker(Protocol):
    """Finds a benchmark's images; its keyword-only arguments are further `stream.` settings."""

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> Found:
        """All images with what is known of each. `where` is what the user named with --data or after the colon."""
        ...


BENCHMARKS: Registry[BenchmarkMaker] = Registry("benchmark")


def parse_name(benchmark: str) -> tuple[str, str | None]:
    """The maker's name, and what stands after the colon in `folder:PATH`.

    >>> parse_name("folder:my/photos")
    ('folder', 'my/photos')
    """
    kind, colon, place = benchmark.partition(":")
    if colon and not place:
        raise SettingError(f"benchmark {benchmark!r} names nothing after the colon.")
    return kind, place if colon else None
