"""The memory: a store, a keep rule, a draw rule and a generator. It knows nothing of SSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ocssl._core.angles import unit
from ocssl.memory.draw import Draw
from ocssl.memory.keep import Keep, lowest
from ocssl.memory.store import REFUSED, Context, Store

TABLE = "table."  # in a saved state: what a keep rule remembers beyond slots
Statistics = Mapping[str, Tensor]  # column name -> one row a sample, detached


@dataclass(frozen=True)
class Replay:
    """What a draw brought: samples, and the slots that they came from."""

    slots: Tensor  # [n]
    ids: Tensor  # [n]
    born: Tensor  # [n] arrival numbers: they show later whether a slot still holds the same sample
    images: Tensor  # [n, 3, H, W] uint8
    weight: Tensor  # [n] in the loss

    def __len__(self) -> int:
        return len(self.slots)

    def none(self) -> Replay:
        """The same with no rows."""
        return Replay(*(getattr(self, f.name)[:0] for f in fields(self)))


@dataclass(eq=False)
class Memory:
    """Bounded replay memory: `draw`, `refresh`, `insert`, `top`."""

    store: Store
    keep_rule: Keep
    draw_rule: Draw
    generator: torch.Generator
    ema: float = 0.5  # weight of the old statistic at a refresh
    unit_vectors: bool = False  # whether stored vectors are kept at length 1
    seen: int = 0  # samples that were offered

    def __len__(self) -> int:
        return len(self.store)

    def draw(self, n: int, context: Context | None = None) -> Replay:
        """Replay n samples, or all of them if there are fewer, and count the draws."""
        n = max(0, min(n, len(self)))
        if n:
            slots = self.draw_rule.pick(self.store, n, self.generator, context)
        else:
            slots = torch.empty(0, dtype=torch.int64, device=self.store["id"].device)
        weight = self.draw_rule.weigh(self.store, slots)
        self.store["draws"][slots] += 1
        ids, born, images = (self.store[name][slots] for name in ("id", "born", "image"))
        return Replay(slots, ids, born, images, weight)

    def refresh(self, replay: Replay, statistics: Statistics) -> None:
        """Move the statistics of replayed slots towards their new values; a slot overwritten since is left alone."""
        same = self.store["born"][replay.slots] == replay.born
        for name, new in statistics.items():
            if name in self.store:
                old = self.store[name][replay.slots]
                mixed = torch.lerp(new, old, self.ema)
                if self.unit_vectors and mixed.ndim > 1:
                    mixed = unit(mixed)
                shape = (-1, *[1] * (old.ndim - 1))
                self.store[name][replay.slots] = torch.where(same.view(shape), mixed, old)
        self.keep_rule.note(self.store, replay.slots)

    def insert(self, images: Tensor, ids: Tensor, statistics: Statistics, context: Context | None = None) -> Tensor:
        """Offer new samples: free slots first, then the keep rule decides. Returns their slots, -1 where refused."""
        n = len(images)
        born = torch.arange(self.seen, self.seen + n, device=ids.device)
        rows = {**statistics, "image": images, "id": ids, "born": born}
        rows |= self.keep_rule.annotate(self.store, rows, self.generator, context)
        self.seen += n
        slots = self._put(rows, n)
        if len(self):
            self.keep_rule.settle(self.store)
        return slots

    def _put(self, rows: Statistics, n: int) -> Tensor:
        free = min(n, self.store.capacity - len(self))
        filling = self.store.extend(free)
        if free:
            self._write(filling, {name: column[:free] for name, column in rows.items()})
        if free == n:
            return filling
        if self.store.capacity == 0:
            return torch.full((n,), REFUSED, device=rows["id"].device)
        late = {name: column[free:] for name, column in rows.items()}
        arriving = {name: column for name, column in late.items() if name != "image"}  # rules never see pixels
        slots = self.keep_rule.place(self.store, arriving, self.generator)
        self._write(slots, late)
        return torch.cat([torch.where(torch.isin(filling, slots), REFUSED, filling), slots])

    def _write(self, slots: Tensor, rows: Statistics) -> None:
        self.store.write(slots, rows)
        self.keep_rule.note(self.store, slots)

    def top(self, k: int, column: str, outside: Tensor) -> Tensor:
        """The k slots with the highest values of a column, those in `outside` excepted; of equals the older first."""
        values = self.store.scratch(0).copy_(self.store[column]).neg_()
        values[outside] = torch.inf
        return lowest(values, self.store["born"], min(k, len(self) - len(outside)))

    def highest(self, k: int, column: str, outside: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Columns of the k samples with the highest values of one column, as `top` chooses them."""
        slots = self.top(k, column, outside)
        return [self.store[name][slots] for name in names]

    def gathered(self) -> Memory:
        """The memory of which this one may be a part."""
        return self

    def table(self) -> dict[str, Any]:
        """The scalar columns as numpy arrays, one row a filled slot: id, loss, angle, draws, born."""
        return {name: self.store[name].cpu().numpy().copy() for name in ("id", "loss", "angle", "draws", "born")}

    def state(self) -> dict[str, Tensor]:
        """Everything that a loaded memory needs to continue exactly as this one would."""
        columns = {f"column.{name}": self.store[name] for name in self.store}
        tables = {f"{TABLE}{name}": table for name, table in self.store.tables.items()}
        return {**columns, **tables, "generator": self.generator.get_state(), "seen": torch.tensor(self.seen)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.store.load({name: state[f"column.{name}"] for name in self.store})
        saved = {name.removeprefix(TABLE): table for name, table in state.items() if name.startswith(TABLE)}
        self.store.tables = {name: table.to("cpu", copy=True) for name, table in saved.items()}
        self.generator.set_state(state["generator"])
        self.seen = int(state["seen"])
        self.keep_rule.check(self.store, self.seen)
