"""Keep rules: which slots of a full memory arriving samples take. A new eviction rule goes here.

The memory fills its free slots by itself and asks a rule only once it is full. A rule answers with one slot for each
arriving sample, or -1 where it is refused; no slot twice. It reads statistics, never images, and `place`
writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ocssl._core.registry import Registry
from ocssl._core.transfer import send
from ocssl.memory.store import REFUSED, RULES, Context, Store, up_to_nth


class Keep:
    """The paper's update policy. What a rule remembers stands in the store: loading makes new rules."""

    needs: ClassVar[frozenset[str]] = frozenset()  # columns that it reads, of the store and of arriving samples
    asks: ClassVar[bool] = False  # whether it asks the context, which answers about losses
    shardable: ClassVar[bool] = False  # whether it is right, or near it, on each part of a memory by itself

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        """Slots [n] for n arriving samples, REFUSED for those that are not kept."""
        raise TypeError(f"{type(self).__name__} does not define place")

    def columns(self, capacity: int) -> dict[str, int]:
        """Columns that it adds: names, and the length of a row (0: one number)."""
        return {}

    def annotate(
        self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator, context: Context | None
    ) -> dict[str, Tensor]:
        """Further columns of arriving samples, before free slots are filled and `place` is asked. Images are there to
        be handed to the context."""
        return {}

    def note(self, store: Store, slots: Tensor) -> None:
        """These slots were written or refreshed: update the columns that it added."""

    def settle(self, store: Store) -> None:
        """The arriving samples are in their slots: update what it remembers of the memory as a whole, in columns that
        it added and in tables of the store."""

    def check(self, store: Store, seen: int) -> None:
        """A ValueError where a loaded store cannot be one that this rule has filled with `seen` samples."""


KEEPS: Registry[Keep] = Registry("keep rule", RULES)


@KEEPS.add("fifo")
class Fifo(Keep):
    """The last M samples: the newest replaces the oldest."""

    needs = frozenset({"born"})
    shardable = True

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return _last_of_each_slot(arriving["born"] % store.capacity)


@KEEPS.add("reservoir")
class Reservoir(Keep):
    """A uniform sample of the stream: accepts the t-th sample with probability M / t, in the place of a random one."""

    needs = frozenset({"born"})
    shardable = True

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        slots = (_uniform(arriving["born"], generator) * (arriving["born"] + 1)).long()
        return _last_of_each_slot(torch.where(slots < store.capacity, slots, REFUSED))


@KEEPS.add("highest-loss")
class HighestLoss(Keep):
    """The Deviation-Aware memory: keeps the highest losses among stored and new samples."""

    needs = frozenset({"born", "loss"})
    shardable = True

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return _replace_lowest(store, store["loss"], arriving["loss"], arriving["born"])


@KEEPS.add("lowest-loss")
class LowestLoss(Keep):
    """Keeps the lowest losses, the opposite of `highest-loss`: a sanity check of the paper's appendix."""

    needs = frozenset({"born", "loss"})
    shardable = True

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return _replace_lowest(store, -store["loss"], -arriving["loss"], arriving["born"])


@KEEPS.add("lars")
@dataclass(kw_only=True)
class Lars(Keep):
    """Loss-aware reservoir: accepts the t-th sample with probability M / t and evicts the lowest stored loss.

    With `sampled` the slot is drawn instead, in proportion to how far its loss lies below the highest one: that one
    itself never goes.
    """

    victim: Literal["argmin", "sampled"] = "argmin"
    needs = frozenset({"born", "loss"})
    shardable = True

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        losses, born = store["loss"].double(), store["born"].clone()
        slots = torch.full_like(arriving["born"], REFUSED)
        coins = _uniform(arriving["born"], generator) * (arriving["born"] + 1)
        chances = _uniform(arriving["born"], generator)
        for i in (coins < store.capacity).nonzero()[:, 0].tolist():
            slot = lowest(losses, born, 1)[0] if self.victim == "argmin" else _below_the_highest(losses, chances[i])
            slots[slots == slot] = REFUSED  # an earlier newcomer whose slot this one takes
            slots[i] = slot
            losses[slot], born[slot] = arriving["loss"][i], arriving["born"][i]
        return slots


def _below_the_highest(losses: Tensor, chance: Tensor) -> Tensor:
    """The slot of a uniform number, with probabilities proportional to highest loss - loss; all equal: uniform."""
    distance = losses.max() - losses
    total = (distance if distance.any() else torch.ones_like(distance)).cumsum(0)
    return torch.searchsorted(total, chance * total[-1], right=True)


def _uniform(born: Tensor, generator: torch.Generator) -> Tensor:
    """A number in [0, 1) for each arriving sample, the same on every device."""
    return send(torch.rand(len(born), generator=generator, dtype=torch.float64), born.device)


def _replace_lowest(store: Store, stored: Tensor, arriving: Tensor, born: Tensor) -> Tensor:
    """Of stored and arriving samples the n with the lowest score lose; ties go against the older."""
    n = len(arriving)
    victims = lowest(stored, store["born"], min(n, len(stored)))  # [<= n] slots, lowest score first
    scores = torch.cat([stored[victims], arriving])
    ages = torch.cat([store["born"][victims], born])
    loses = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    loses[_by_score_then_age(scores, ages)[:n]] = True
    stays = ~loses[len(victims) :]
    freed = victims[(stays.cumsum(0) - 1).clamp_min(0)]  # the k-th that stays takes the k-th that goes
    return torch.where(stays, freed, REFUSED)


def lowest(values: Tensor, born: Tensor, n: int) -> Tensor:
    """Indices of the n lowest values, lowest first; of equal values the older comes first."""
    if n == 0:
        return torch.empty(0, dtype=torch.int64, device=values.device)
    if values.device.type != "cpu":  # sorting all is quicker than asking the device how many values are equal
        return _by_score_then_age(values, born)[:n]
    pool = up_to_nth(values, n)  # n of them, more only where values are equal
    return pool[_by_score_then_age(values[pool], born[pool])[:n]]


def _by_score_then_age(scores: Tensor, born: Tensor) -> Tensor:
    by_age = born.argsort(stable=True)
    return by_age[scores[by_age].argsort(stable=True)]


def _last_of_each_slot(slots: Tensor) -> Tensor:
    """Where several arriving samples chose one slot the last of them has it, as if they had come one by one."""
    same = slots[:, None] == slots[None, :]
    overwritten = same.triu(1).any(1)
    return torch.where(overwritten, REFUSED, slots)
