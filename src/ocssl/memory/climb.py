"""CLIMB (Lefebvre et al., 2026): centroids of the stream in a short-term and a long-term memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.store import LONG, NO_TIER, REFUSED, SHORT, TIER, Context, Store
from ocssl.settings import Share, Size

Array = np.ndarray[Any, np.dtype[Any]]
SLOTS, SHORT_AT, LONG_AT = 2500, 100, 60  # the paper's memory, and how many centroids it has there
GROUP = "group"  # column: the number of a sample's centroid, counted from 1; 0: none


@KEEPS.add("climb")
@dataclass(kw_only=True)
class Climb(Keep):
    """A new sample joins its nearest centroid, or begins one if it is farther away than `percentile` of recent samples.

    A short-term centroid moves by `step` towards each sample that joins, and becomes long-term at `images` samples. The
    short-term centroid that nobody joined for the longest time goes; of long-term ones the closest two merge. A full
    memory is consolidated: centroids become the means of their samples, short-term ones keep their oldest sample alone.
    """

    short: Size | None = None  # short-term centroids at most; None: 100 for 2,500 slots
    long: Size | None = None  # long-term centroids at most; None: 60 for 2,500 slots
    images: Size = 30  # samples of a centroid at most
    window: Size = 1000  # distances that novelty is judged by
    percentile: Share = 0.95
    step: Share = 0.1
    replace: Share = 0.5  # how often a sample takes the place of another of a long-term centroid that is full
    needs = frozenset({"born", "projected"})

    def columns(self, capacity: int) -> dict[str, int]:
        return {TIER: 0, GROUP: 0}

    def annotate(
        self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator, context: Context | None
    ) -> dict[str, Tensor]:
        self._plan = _Plan(self, store, arriving, generator)
        self._plan.run()
        return {"planned": torch.from_numpy(self._plan.slots()).to(arriving["born"].device)}

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return arriving["planned"].clone()

    def settle(self, store: Store) -> None:
        plan = self._plan
        groups = plan.groups_of_slots(len(store))
        store[GROUP].copy_(torch.from_numpy(groups + 1))
        store[TIER].copy_(torch.from_numpy(plan.tiers(groups)))
        for table, values in zip(plan.tables, (plan.centroids, plan.kinds, plan.distances), strict=True):
            table.copy_(torch.from_numpy(values))

    def check(self, store: Store, seen: int) -> None:
        if not len(store):
            return
        short, long = self.limits(store.capacity)
        tiers = store.table("climb.kinds", (short + long, 2))[:, 0]
        groups = store[GROUP].cpu().double()
        with_samples, active = groups[groups != 0].unique(), (tiers != NO_TIER).nonzero()[:, 0] + 1
        counts = [int((tiers == tier).sum()) for tier in (NO_TIER, SHORT, LONG)]
        known = sum(counts) == len(tiers) and counts[1] <= short and counts[2] <= long
        if not known or not torch.equal(with_samples, active.double()):
            raise ValueError("the memory's samples do not belong to its centroids")
        if store.table("climb.distances", (self.window + 1,))[0] < 0:
            raise ValueError("the memory has a negative number of distances")

    def limits(self, capacity: int) -> tuple[int, int]:
        """How many short-term and long-term centroids there may be."""
        wanted = ((self.short, SHORT_AT), (self.long, LONG_AT))
        short, long = (max(1, round(at * capacity / SLOTS)) if n is None else n for n, at in wanted)
        return short, long


class _Plan:
    """What becomes of a minibatch, sample by sample, on copies: a store is not written to before all is decided.

    An entry is a stored sample or, behind those, an arriving one. `group` is -1 for an entry without a centroid: its
    slot is free to be taken.
    """

    def __init__(self, rule: Climb, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> None:
        self.rule, self.store, self.generator = rule, store, generator
        self.short, self.long = rule.limits(store.capacity)
        self.old, self.new = len(store), len(arriving["born"])
        self.arriving = arriving["projected"].double().cpu().numpy()  # [n, P]
        stored, fresh = store["born"].cpu().numpy(), arriving["born"].cpu().numpy()
        self.born = np.concatenate([stored, fresh])
        groups = store[GROUP].cpu().numpy().astype(np.int64) - 1
        self.group = np.concatenate([groups, np.full(self.new, -1)])
        self.slot = np.full(self.old + self.new, REFUSED)
        filled = min(store.capacity, self.old + self.new)  # free slots are taken in order, whatever is decided here
        self.slot[:filled] = np.arange(filled)
        most, width = self.short + self.long, self.arriving.shape[1]
        shapes = {"centroids": (most, width), "kinds": (most, 2), "distances": (rule.window + 1,)}
        self.tables = [store.table(f"climb.{name}", shape) for name, shape in shapes.items()]
        # kinds: tier, and arrival number of the last sample that joined
        self.centroids, self.kinds, self.distances = (table.numpy().copy() for table in self.tables)

    def slots(self) -> Array:
        return self.slot[self.old :]

    def groups_of_slots(self, filled: int) -> Array:
        found = np.full(filled, -1)
        held = self.slot != REFUSED
        found[self.slot[held]] = self.group[held]
        return found

    def tiers(self, groups: Array) -> Array:
        tiers: Array = np.where(groups < 0, NO_TIER, self.kinds[groups, 0])
        return tiers

    def run(self) -> None:
        for entry in range(self.old, self.old + self.new):
            self._join(entry, self.arriving[entry - self.old])
            if (self.group >= 0).sum() > self.store.capacity:
                self._consolidate()
            if self.group[entry] >= 0 and self.slot[entry] == REFUSED:
                self._take_free_slot(entry)

    def _join(self, entry: int, vector: Array) -> None:
        born, kinds = self.born[entry], self.kinds
        active = (kinds[:, 0] != NO_TIER).nonzero()[0]
        threshold = self._threshold()
        nearest, distance = -1, np.inf
        if len(active):
            apart = 1 - _cosines(self.centroids[active], vector)
            nearest, distance = active[apart.argmin()], apart.min()
            self._observe(distance)
        if distance > threshold:
            self._begin(entry, vector)
        elif kinds[nearest, 0] == SHORT:
            self.centroids[nearest] += self.rule.step * (vector - self.centroids[nearest])
            self.group[entry], kinds[nearest, 1] = nearest, born
            if len(self._members(nearest)) >= self.rule.images:
                kinds[nearest, 0] = LONG
                if (kinds[:, 0] == LONG).sum() > self.long:
                    self._merge_closest()
        else:
            members = self._members(nearest)
            if len(members) < self.rule.images:
                self.group[entry] = nearest
            elif torch.rand((), generator=self.generator, dtype=torch.float64) < self.rule.replace:
                leaves = int(torch.randint(len(members), (), generator=self.generator))
                self.group[members[leaves]] = -1
                self.group[entry] = nearest

    def _begin(self, entry: int, vector: Array) -> None:
        tiers = self.kinds[:, 0]
        if (tiers == SHORT).sum() >= self.short:
            tired = np.where(tiers == SHORT, self.kinds[:, 1], np.inf).argmin()
            self._drop(int(tired))
        free = (tiers == NO_TIER).nonzero()[0][0]
        self.centroids[free], self.kinds[free] = vector, (SHORT, self.born[entry])
        self.group[entry] = free

    def _drop(self, centroid: int) -> None:
        self.group[self.group == centroid] = -1
        self.centroids[centroid], self.kinds[centroid] = 0, 0

    def _merge_closest(self) -> None:
        long = (self.kinds[:, 0] == LONG).nonzero()[0]
        cosines = np.stack([_cosines(self.centroids[long], self.centroids[centroid]) for centroid in long])
        cosines[np.tril_indices(len(long))] = -np.inf
        first, second = (long[i] for i in np.unravel_index(cosines.argmax(), cosines.shape))
        self.centroids[first] = (self.centroids[first] + self.centroids[second]) / 2
        self.group[self.group == second] = first
        self._drop(second)
        members = self._members(first)
        order = torch.randperm(len(members), generator=self.generator).numpy()
        self.group[members[order[self.rule.images :]]] = -1

    def _consolidate(self) -> None:
        """Means of stored projections; short-term centroids keep the oldest sample. If that frees nothing, the oldest
        sample of all goes."""
        vectors = np.concatenate([self.store["projected"].double().cpu().numpy(), self.arriving])
        for centroid in (self.kinds[:, 0] != NO_TIER).nonzero()[0]:
            members = self._members(centroid)
            self.centroids[centroid] = vectors[members].mean(0)
            if self.kinds[centroid, 0] == SHORT:
                self.group[members[1:]] = -1
        live = (self.group >= 0).nonzero()[0]
        if len(live) > self.store.capacity:
            oldest = live[self.born[live].argmin()]
            centroid, self.group[oldest] = self.group[oldest], -1
            if not len(self._members(centroid)):
                self._drop(centroid)

    def _take_free_slot(self, entry: int) -> None:
        free = ((self.group < 0) & (self.slot != REFUSED)).nonzero()[0]
        left = free[self.slot[free].argmin()]
        self.slot[entry], self.slot[left] = self.slot[left], REFUSED

    def _members(self, centroid: int) -> Array:
        """Entries of a centroid, the oldest first."""
        members = (self.group == centroid).nonzero()[0]
        by_age: Array = members[self.born[members].argsort()]
        return by_age

    def _threshold(self) -> float:
        seen = min(int(self.distances[0]), self.rule.window)
        return float(np.quantile(self.distances[1 : 1 + seen], self.rule.percentile)) if seen else -np.inf

    def _observe(self, distance: float) -> None:
        """Distances are a ring behind their number."""
        self.distances[1 + int(self.distances[0]) % self.rule.window] = distance
        self.distances[0] += 1


def _cosines(rows: Array, vector: Array) -> Array:
    """Cosines of rows [n, d] with a vector; 0 where one has no length."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
    cosines: Array = rows @ vector / np.where(lengths > 0, lengths, np.inf)
    return cosines
