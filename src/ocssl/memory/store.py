"""What rules see: the slots of a memory, as columns allocated once, and the learner's answers to their questions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ocssl.errors import CheckpointError

REFUSED = -1  # in place of a slot: the sample is not kept
RULES: set[str] = set()  # names of keep and draw rules: settings know them by name alone, so none has both
RUN = 64  # numbers of which only the smallest is looked at first
TIER = "tier"  # column of memories in two parts: to which part a sample belongs
NO_TIER, SHORT, LONG = 0, 1, 2  # values of that column: none (its slot is free to be taken), short-term, long-term
ONE_PASS = 2**16  # columns up to this length are searched in one pass, which takes less time


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
        zeros = partial(torch.zeros, device=device)
        rows = capacity + 1
        self._columns = {"image": zeros(rows, *image_shape, dtype=torch.uint8)}
        self._columns |= {name: zeros(rows, dtype=torch.int64) for name in ("id", "born", "draws")}
        for name, length in {"loss": 0, "angle": 0, **(vectors or {})}.items():
            self._columns[name] = zeros((rows, length) if length else rows, dtype=torch.float32)
        self._scratch = torch.zeros(2, capacity, dtype=torch.float64, device=device)
        self.tables: dict[str, Tensor] = {}  # what a keep rule remembers beyond slots, on the CPU

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

    def table(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Numbers that are saved with the store but belong to no slot: float64, zeros when first asked for."""
        found = self.tables.setdefault(name, torch.zeros(shape, dtype=torch.float64))
        if tuple(found.shape) != shape or found.dtype != torch.float64:
            given = f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"
            raise CheckpointError(f"memory table {name} is {given}, and its settings ask for float64 {list(shape)}.")
        return found

    def extend(self, n: int) -> Tensor:
        """Take the next n free slots into use and return them; `write` is to follow."""
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
                limit = f"of at most {self.capacity} rows"
                raise ValueError(f"column {name} is {list(given)}, wanted {list(wanted)} {limit}")
        self.filled = filled
        for name, column in self._columns.items():
            column[:filled] = columns[name].to(column)


class Context(Protocol):
    """Questions about images, uint8 [n, 3, H, W]. Asking changes no weights, momentum or batch norm statistics."""

    def loss_increase(self, images: Tensor) -> Tensor:
        """How much the loss of each image would rise by a plain SGD step on the stream minibatch alone: [n]."""

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        """The gradient of each batch's mean loss for the last layers, one row a batch: [n, d]."""


def smallest_slots(values: Tensor, n: int, one_pass: int = ONE_PASS) -> Tensor:
    """Places of the n smallest of values [m], smallest first, 0 <= n <= m; which of equal ones is not said."""
    if n == 0 or len(values) <= one_pass:
        return values.topk(n, largest=False).indices
    pool = up_to_nth(values, n, one_pass)
    return pool[values[pool].topk(n, largest=False).indices]


def up_to_nth(values: Tensor, n: int, one_pass: int = ONE_PASS) -> Tensor:
    """Places, ascending, of all values [m] that are not above the n-th smallest, 1 <= n <= m: n, or more by ties.

    Where the minima of n runs are up to some number, n values are up to it. So the n-th smallest value is not above the
    n-th smallest minimum, and runs whose minimum is above that hold no value that is wanted.
    """
    runs = len(values) // RUN
    if len(values) <= one_pass or runs < 2 * n:
        return _not_above(values, n)
    near = _not_above(values[: runs * RUN].view(runs, RUN).amin(1), n)
    if 2 * len(near) > runs:  # many ties
        return _not_above(values, n)
    inside = near[:, None] * RUN + torch.arange(RUN, device=near.device)
    places = torch.cat([inside.flatten(), torch.arange(runs * RUN, len(values), device=near.device)])
    return places[_not_above(values[places], n)]


def _not_above(values: Tensor, n: int) -> Tensor:
    """The same of values as a whole. NaN is not above anything here: runs that hold one are never passed over."""
    threshold = values.topk(n, largest=False, sorted=False).values.max()
    return (values > threshold).logical_not_().nonzero()[:, 0]
