"""What every term gives back, and the table of their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from torch import Tensor

from ocssl.memory import Memory, Replay
from ocssl.registry import Registry
from ocssl.statistics import Measured


@dataclass(frozen=True)
class Penalty:
    """A term's loss, unweighted, and what it wants to show."""

    loss: Tensor  # scalar
    signals: dict[str, Tensor] = field(default_factory=dict)


class Term(Protocol):
    """An extra loss on the measured batch; reads the memory, never changes it."""

    needs: ClassVar[frozenset[str]]  # columns of the memory that it reads
    weight: float

    def __call__(self, measured: Measured, replay: Replay, memory: Memory) -> Penalty: ...


TERMS: Registry[Term] = Registry("term")
