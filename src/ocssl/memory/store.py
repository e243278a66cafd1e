"""The slots of a memory: columns allocated once, one row a slot. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

REFUSED = -1  # in place of a slot: the sample is not kept
RULES: set[str] = set()  # names of keep and draw rules: settings know them by name alone, so none has both


class Store:
    """Columns for `capacity` slots, of which the first `filled` hold samples.

    Every store has `image`, `id`, `born` (arrival number, unique), `draws` (times replayed), `loss` and `angle`;
    `vectors` names further columns, such as the mean feature, with their lengths (0: one number a slot). Indexing gives
    the filled part as a view. Behind the slots lies one row more, which nobody reads: what is written for REFUSED
    samples goes there, so that nobody has to ask a device how many they are.
    """

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        vectors: Mapping[str, int] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity
        self.filled = 0
        rows = capacity + 1
        self._columns = {
            "image": torch.zeros(rows, *image_shape, dtype=torch.uint8, device=device),
            "id": torch.zeros(rows, dtype=torch.int64, device=device),
            "born": torch.zeros(rows, dtype=torch.int64, device=device),
            "draws": torch.zeros(rows, dtype=torch.int64, device=device),
            "loss": torch.zeros(rows, dtype=torch.float32, device=device),
            "angle": torch.zeros(rows, dtype=torch.float32, device=device),
        }
        for name, length in (vectors or {}).items():
            shape = (rows, length) if length else (rows,)
            self._columns[name] = torch.zeros(shape, dtype=torch.float32, device=device)
        self._scratch = torch.zeros(2, capacity, dtype=torch.float64, device=device)

    def __len__(self) -> int:
        return self.filled

    def __getitem__(self, column: str) -> Tensor:
        return self._columns[column][: self.filled]

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def scratch(self, row: int) -> Tensor:
        """Working space of one float64 number a filled slot, so that rules allocate nothing; contents are garbage."""
        return self._scratch[row, : self.filled]

    def extend(self, n: int) -> Tensor:
        """Take the next n free slots into use, and tell which they are; `write` is to follow."""
        slots = torch.arange(self.filled, self.filled + n, device=self._columns["id"].device)
        self.filled += n
        return slots

    def write(self, slots: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Put rows into filled slots, or nowhere (REFUSED); columns that are not given start at zero."""
        for name, column in self._columns.items():
            if name in rows:
                column[slots] = rows[name].detach().to(column)
            else:
                column[slots] = 0

    def load(self, columns: Mapping[str, Tensor]) -> None:
        """Take the filled slots of a saved store; columns that do not fit are refused."""
        filled = len(columns["id"])
        for name, column in self._columns.items():
            wanted, given = (filled, *column.shape[1:]), tuple(columns[name].shape)
            if given != wanted or filled > self.capacity:
                raise ValueError(
                    f"column {name} is {list(given)}, wanted {list(wanted)} of at most {self.capacity} rows"
                )
        self.filled = filled
        for name, column in self._columns.items():
            column[:filled] = columns[name].to(column)
