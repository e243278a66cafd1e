"""The memory of a run on several ranks: each holds the samples that arrived at it, and compares its best with all."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ocssl._distributed.ranks import Ranks
from ocssl.memory.keep import lowest
from ocssl.memory.memory import Memory
from ocssl.memory.store import REFUSED, Store

USUAL = ("image", "id", "born", "draws", "loss", "angle")  # columns that every store has


class Shard(Memory):
    """One rank's part of a memory. Rules act on it as if it were all.

    Arrival t of the stream is number t // size of rank t mod size: so shards keep arrival numbers of their own, which
    is what rules go by, and those of the stream follow from them.
    """

    def __init__(self, memory: Memory, ranks: Ranks, capacity: int) -> None:
        super().__init__(**vars(memory))
        self.ranks = ranks
        self.capacity = capacity  # of all shards together

    def highest(self, k: int, column: str, outside: Tensor, names: Sequence[str]) -> list[Tensor]:
        """The same over all shards: each offers its best, and the best of these are the best of all."""
        ranks, slots = self.ranks, self.top(k, column, outside)
        values, born = ranks.gather(self.store[column][slots]), ranks.gather(self._arrivals()[slots])
        offered = torch.full_like(born, REFUSED)
        offered[born % ranks.size == ranks.rank] = slots
        chosen = offered[lowest(-values.double(), born, min(k, len(born)))]  # REFUSED stands for another rank's slot
        return [ranks.sum(self._rows(name, chosen)) for name in names]

    def gathered(self) -> Memory:
        """On the first rank the memory of all shards, shard by shard; on others this one."""
        own = {name: self._arrivals() if name == "born" else self.store[name] for name in self.store}
        columns = {name: self.ranks.gather(column) for name, column in own.items()}
        seen = self.ranks.total(self.seen)
        if not self.ranks.first:
            return self
        lengths = {name: c.shape[1] if c.ndim > 1 else 0 for name, c in own.items() if name not in USUAL}
        store = Store(self.capacity, tuple(own["image"].shape[1:]), lengths, own["id"].device)
        store.load(columns)
        return Memory(store, self.keep_rule, self.draw_rule, self.generator, self.ema, self.unit_vectors, seen)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take this rank's part of a whole memory's state."""
        born, size = state["column.born"], self.ranks.size
        mine = born % size == self.ranks.rank
        columns = {name: column[mine] for name, column in state.items() if name.startswith("column.")}
        seen = self.ranks.share(int(state["seen"]))
        super().load_state({**state, **columns, "column.born": born[mine] // size, "seen": torch.tensor(seen)})

    def _arrivals(self) -> Tensor:
        """Arrival numbers of the stream, of the filled slots."""
        return self.store["born"] * self.ranks.size + self.ranks.rank

    def _rows(self, name: str, slots: Tensor) -> Tensor:
        """Rows of a column, zeros where REFUSED stands for a slot."""
        column = self.store[name]
        rows = column.new_zeros(len(slots), *column.shape[1:])
        rows[slots >= 0] = column[slots[slots >= 0]]
        return rows
