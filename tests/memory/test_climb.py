"""CLIMB's memory against a literal loop over lists of samples, in float64 and plain Python."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.errors import CheckpointError
from ocssl.memory import DRAWS, Climb, Memory, Store
from ocssl.memory.climb import GROUP
from ocssl.memory.store import LONG, NO_TIER, SHORT, TIER

Vector = list[float]
SMALL: dict[str, Any] = {"short": 5, "long": 3, "images": 4, "window": 20, "percentile": 0.8}


def memory_of(capacity: int, seed: int = 0, dimension: int = 3, rule: Climb | None = None, **options: Any) -> Memory:
    rule = rule or Climb(**{**SMALL, **options})
    store = Store(capacity, (3, 1, 1), {"projected": dimension, **rule.columns(capacity)})
    return Memory(store, rule, DRAWS.build("tiers"), torch.Generator().manual_seed(seed))


def offer(memory: Memory, vectors: Tensor) -> None:
    n = len(vectors)
    ids = torch.arange(memory.seen, memory.seen + n)
    memory.insert(torch.zeros(n, 3, 1, 1, dtype=torch.uint8), ids, {"projected": vectors})


# ---- the oracle


def distance(a: Vector, b: Vector) -> float:
    lengths = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(y * y for y in b))
    return 1 - (math.fsum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0)


def quantile(values: list[float], share: float) -> float:
    ordered, place = sorted(values), share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def mean(vectors: list[Vector]) -> Vector:
    return [math.fsum(column) / len(vectors) for column in zip(*vectors, strict=True)]


@dataclass
class Cluster:
    at: Vector
    images: list[int]  # arrival numbers, oldest first
    joined: int  # arrival number of the last
    long: bool = False


@dataclass
class Oracle:
    """Novelty, matching, promotion, merging and consolidation as described, over lists."""

    capacity: int
    generator: torch.Generator
    broken: str = ""
    short: int = 5
    long: int = 3
    most: int = 4
    window: int = 20
    share: float = 0.8
    seen: list[float] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    vectors: dict[int, Vector] = field(default_factory=dict)

    def arrive(self, number: int, vector: Vector) -> None:
        self.vectors[number] = vector
        threshold = quantile(self.seen[-self.window :], self.share) if self.seen else -math.inf
        nearest = min(self.clusters, key=lambda c: distance(c.at, vector), default=None)
        if nearest is not None:
            away = distance(nearest.at, vector)
            self.seen.append(away)
        if nearest is None or away > threshold:
            self.begin(number, vector)
        elif not nearest.long:
            self.join(nearest, number, vector)
        elif len(nearest.images) < self.most:
            nearest.images.append(number)
        elif float(torch.rand((), generator=self.generator, dtype=torch.float64)) < 0.5:
            nearest.images.pop(int(torch.randint(len(nearest.images), (), generator=self.generator)))
            nearest.images.append(number)
        if sum(len(c.images) for c in self.clusters) > self.capacity:
            self.consolidate()

    def begin(self, number: int, vector: Vector) -> None:
        brief = [c for c in self.clusters if not c.long]
        if len(brief) >= self.short:
            pick = max if self.broken == "newest goes" else min
            self.clusters.remove(pick(brief, key=lambda c: c.joined))
        self.clusters.append(Cluster(vector, [number], number))

    def join(self, cluster: Cluster, number: int, vector: Vector) -> None:
        step = 0.9 if self.broken == "step" else 0.1
        cluster.at = [(1 - step) * a + step * b for a, b in zip(cluster.at, vector, strict=True)]
        cluster.images.append(number)
        cluster.joined = number
        if len(cluster.images) < self.most + (self.broken == "late"):
            return
        cluster.long = True
        kept = [c for c in self.clusters if c.long]
        if len(kept) <= self.long:
            return
        pairs = [(a, b) for i, a in enumerate(kept) for b in kept[i + 1 :]]
        choose = max if self.broken == "farthest" else min
        first, second = choose(pairs, key=lambda pair: distance(pair[0].at, pair[1].at))
        pool = sorted(first.images + second.images)
        order = torch.randperm(len(pool), generator=self.generator).tolist()[: self.most]
        merged = Cluster(mean([first.at, second.at]), sorted(pool[i] for i in order), first.joined, long=True)
        self.clusters = [c for c in self.clusters if c is not first and c is not second] + [merged]

    def consolidate(self) -> None:
        for cluster in self.clusters:
            cluster.at = mean([self.vectors[i] for i in cluster.images])
            if not cluster.long:
                cluster.images = cluster.images[-1:] if self.broken == "anchor" else cluster.images[:1]
        if sum(len(c.images) for c in self.clusters) > self.capacity:
            oldest = min(self.clusters, key=lambda c: min(c.images))
            oldest.images.remove(min(oldest.images))
            self.clusters = [c for c in self.clusters if c.images]


def state_of(memory: Memory) -> set[tuple[bool, tuple[int, ...]]]:
    """The samples of each centroid, and whether it is long-term."""
    born, group, tier = (memory.store[name].tolist() for name in ("born", GROUP, TIER))
    found: dict[float, list[int]] = {}
    for number, centroid in zip(born, group, strict=True):
        if centroid:
            found.setdefault(centroid, []).append(number)
    kind = {centroid: t for centroid, t in zip(group, tier, strict=True) if centroid}
    return {(kind[centroid] == LONG, tuple(sorted(numbers))) for centroid, numbers in found.items()}


def compare(seed: int, capacity: int, batch: int, broken: str = "", count: int = 160) -> Memory:
    data = torch.Generator().manual_seed(seed)
    centres = torch.randn(12, 3, generator=data)
    vectors = centres[torch.randint(12, (count,), generator=data)] + 0.2 * torch.randn(count, 3, generator=data)
    memory = memory_of(capacity, seed)
    oracle = Oracle(capacity, torch.Generator().manual_seed(seed), broken)
    for first in range(0, count, batch):
        rows = vectors[first : first + batch]
        offer(memory, rows)
        for number, vector in enumerate(rows.double().tolist(), start=first):
            oracle.arrive(number, vector)
        assert state_of(memory) == {(c.long, tuple(c.images)) for c in oracle.clusters}, f"after {first + batch}"
    kinds = memory.store.tables["climb.kinds"]
    at = sorted(memory.store.tables["climb.centroids"][kinds[:, 0] != NO_TIER].tolist())
    assert torch.allclose(torch.tensor(at), torch.tensor(sorted(c.at for c in oracle.clusters)), atol=1e-6)
    return memory


@pytest.mark.parametrize("capacity", [18, 30])
@pytest.mark.parametrize("batch", [1, 7])
def test_centroids_and_their_samples_are_those_of_the_literal_loop(capacity: int, batch: int) -> None:
    for seed in range(3):
        compare(seed, capacity, batch)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 30))
def test_any_capacity_and_minibatch_agree_with_the_literal_loop(seed: int, capacity: int, batch: int) -> None:
    compare(seed, capacity, batch, count=60)


@pytest.mark.parametrize("broken", ["newest goes", "step", "late", "farthest", "anchor"])
def test_a_wrong_loop_is_found_out(broken: str) -> None:
    def all_agree() -> None:
        for seed in range(4):
            compare(seed, 18, 5, broken)

    with pytest.raises(AssertionError):
        all_agree()


# ---- what must always hold


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 30))
def test_limits_hold_and_tiers_are_those_of_the_centroids(seed: int, capacity: int, batch: int) -> None:
    memory, data = memory_of(capacity, seed), torch.Generator().manual_seed(seed)
    for _ in range(8):
        offer(memory, torch.randn(batch, 3, generator=data))
        tier, group = memory.store[TIER], memory.store[GROUP]
        assert torch.equal(tier == NO_TIER, group == 0)
        for kind, most in ((SHORT, 5), (LONG, 3)):
            counts = torch.bincount(group[tier == kind].long())
            assert (counts > 0).sum() <= most
            assert (counts <= 4).all()
        assert (tier != NO_TIER).any()  # somebody is always there to be drawn
        memory.keep_rule.check(memory.store, memory.seen)


def test_the_paper_s_limits_belong_to_its_memory_and_shrink_with_it() -> None:
    assert Climb().limits(2500) == (100, 60)
    assert Climb().limits(2000) == (80, 48)
    assert Climb().limits(1) == (1, 1)
    assert Climb(short=7, long=2).limits(2500) == (7, 2)


def test_constant_and_zero_vectors_are_no_trouble() -> None:
    for vectors in (torch.ones(30, 3), torch.zeros(30, 3)):
        memory = memory_of(10)
        for part in vectors.split(6):
            offer(memory, part)
        assert len(memory) == 10


def test_a_memory_that_was_saved_continues_as_if_nothing_had_happened() -> None:
    data = torch.randn(120, 3, generator=torch.Generator().manual_seed(3))
    whole, first = memory_of(18), memory_of(18)
    for part in data[:60].split(5):
        offer(whole, part)
        offer(first, part)
    second = memory_of(18, seed=9)
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    for part in data[60:].split(5):
        offer(whole, part)
        offer(second, part)
    assert whole.state().keys() == second.state().keys()
    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in whole.state().items())


def test_a_saved_table_of_another_shape_is_refused() -> None:
    memory = memory_of(18)
    offer(memory, torch.randn(20, 3, generator=torch.Generator().manual_seed(0)))
    other = memory_of(18, short=6)
    with pytest.raises(CheckpointError, match=r"memory table climb.kinds is float64 \[8, 2\]"):
        other.load_state(memory.state())


@pytest.mark.parametrize("group", [-1.0, 0.5, 9.0, 1e30])
def test_saved_samples_of_no_centroid_are_refused(group: float) -> None:
    memory = memory_of(18)
    offer(memory, torch.randn(20, 3, generator=torch.Generator().manual_seed(0)))
    state = memory.state()
    groups = state[f"column.{GROUP}"].clone()
    groups[3] = group
    with pytest.raises(ValueError, match="do not belong to its centroids"):
        memory_of(18).load_state({**state, f"column.{GROUP}": groups})


@pytest.mark.parametrize("tier", [-1.0, 0.5, 3.0])
def test_saved_centroids_of_no_tier_are_refused(tier: float) -> None:
    memory = memory_of(18)
    offer(memory, torch.randn(20, 3, generator=torch.Generator().manual_seed(0)))
    state = memory.state()
    kinds = state["table.climb.kinds"].clone()
    kinds[kinds[:, 0].nonzero()[0, 0], 0] = tier
    with pytest.raises(ValueError, match="do not belong to its centroids"):
        memory_of(18).load_state({**state, "table.climb.kinds": kinds})


def test_a_saved_number_of_distances_below_zero_is_refused() -> None:
    memory = memory_of(18)
    offer(memory, torch.randn(20, 3, generator=torch.Generator().manual_seed(0)))
    state = memory.state()
    distances = state["table.climb.distances"].clone()
    distances[0] = -1
    with pytest.raises(ValueError, match="negative number of distances"):
        memory_of(18).load_state({**state, "table.climb.distances": distances})
