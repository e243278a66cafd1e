"""What a benchmark says: rows with a figure, its spread and, where there is one, the bar that it has to meet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ocssl.bench.timing import Spread

Unit = Literal["x", "s", "ms", "us", "images/s", "MB", "bytes", "count"]
MORE_IS_BETTER: frozenset[str] = frozenset({"images/s"})


@dataclass(frozen=True)
class Bar:
    """A promise about a figure."""

    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"


@dataclass(frozen=True)
class Row:
    """One figure. `part` and `name` together are its key: a later run is compared with this one by them."""

    part: str
    name: str
    value: Spread
    unit: Unit
    bar: Bar | None = None
    faster: bool = False  # the figure says how many times faster than a peer: more is better
    note: str = ""

    @property
    def key(self) -> str:
        return f"{self.part}: {self.name}"

    @property
    def more_is_better(self) -> bool:
        return self.faster or self.unit in MORE_IS_BETTER

    def json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v not in (None, "")}


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    quick: bool = False
    threads: int = 2

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full
