"""Memory Storyboard's two tiers (Yang and Ren, 2025): the recent past, and a uniform sample of what came before it."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.store import LONG, REFUSED, SHORT, TIER, Store
from ocssl.settings import Share


@KEEPS.add("storyboard")
@dataclass(kw_only=True)
class Storyboard(Keep):
    """The last samples in a short-term ring; each sample that leaves it is offered to a long-term reservoir.

    `short` is the share of slots that the ring has: more make the memory recent, fewer make it diverse.
    """

    short: Share = 0.5
    needs = frozenset({"born"})

    def columns(self, capacity: int) -> dict[str, int]:
        return {TIER: 0}

    def ring(self, capacity: int) -> int:
        """Slots of the short-term memory: at least the newest sample has one."""
        return max(1, min(capacity, round(self.short * capacity)))

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        ring, arrived = self.ring(store.capacity), arriving["born"].tolist()
        chances = torch.rand(len(arrived), generator=generator, dtype=torch.float64).tolist()
        born = store["born"].tolist()
        slot_of = {number: slot for slot, number in enumerate(born)}
        long = sorted(slot for slot, number in enumerate(born) if number <= arrived[0] - 1 - ring)
        for number, chance in zip(arrived, chances, strict=True):
            leaving = slot_of[number - ring]  # it is sample number - ring, from 0, that is offered to the reservoir
            chosen = int(chance * (number - ring + 1))
            taken = leaving
            if chosen < len(long):
                taken = long[chosen]
                long[chosen] = leaving
                long.sort()
            del slot_of[born[taken]]
            slot_of[number], born[taken] = taken, number
        slots = [slot_of.get(number, REFUSED) for number in arrived]
        return torch.tensor(slots, dtype=torch.int64, device=arriving["born"].device)

    def check(self, store: Store, seen: int) -> None:
        born = store["born"].tolist()
        newest = range(max(0, seen - self.ring(store.capacity)), seen)
        if len(born) < min(seen, store.capacity) or len(set(born)) < len(born) or not set(born).issuperset(newest):
            raise ValueError(f"the memory does not hold the newest of {seen} samples")

    def settle(self, store: Store) -> None:
        born = store["born"]
        recent = born > born.max() - self.ring(store.capacity)
        store[TIER].copy_(torch.where(recent, SHORT, LONG))
