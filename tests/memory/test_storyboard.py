"""Memory Storyboard's two tiers against a queue and a list, and by statistics."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.memory import DRAWS, Memory, Store, Storyboard
from ocssl.memory.store import LONG, SHORT, TIER


def memory_of(capacity: int, seed: int = 0, short: float = 0.5) -> Memory:
    rule = Storyboard(short=short)
    store = Store(capacity, (3, 1, 1), rule.columns(capacity))
    return Memory(store, rule, DRAWS.build("tiers"), torch.Generator().manual_seed(seed))


def offer(memory: Memory, n: int) -> list[int]:
    ids = torch.arange(memory.seen, memory.seen + n)
    return memory.insert(torch.zeros(n, 3, 1, 1, dtype=torch.uint8), ids, {}).tolist()


def tiers(memory: Memory) -> tuple[list[int], list[int]]:
    born, tier = memory.store["born"], memory.store[TIER]
    short, long = (sorted(born[tier == kind].tolist()) for kind in (SHORT, LONG))
    return short, long


def literal(
    capacity: int, ring: int, batches: list[int], seed: int, broken: bool = False
) -> tuple[list[int], list[int]]:
    """A queue of the newest; whoever leaves it is the t-th candidate of a reservoir, its places the slots in order."""
    generator = torch.Generator().manual_seed(seed)
    queue: deque[int] = deque()
    places: dict[int, int] = {}  # slot of each sample in memory
    seen = 0
    for n in batches:
        late = [number for number in range(seen, seen + n) if number >= capacity]
        chances = iter(torch.rand(len(late), generator=generator, dtype=torch.float64).tolist() if late else [])
        for number in range(seen, seen + n):
            if number < capacity:
                queue.append(number)
                places[number] = number
                while len(queue) > ring:
                    queue.popleft()
                continue
            leaving = queue.popleft()
            offered = leaving + 1 + (100 if broken else 0)
            reservoir = sorted((other for other in places if other < leaving), key=places.__getitem__)
            chosen = int(next(chances) * offered)
            goes = reservoir[chosen] if chosen < len(reservoir) else leaving
            places[number] = places.pop(goes)
            queue.append(number)
        seen += n
    return sorted(queue), sorted(set(places) - set(queue))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 20), st.floats(0, 1), st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(0, 99))
def test_both_tiers_are_those_of_a_queue_and_a_reservoir(
    capacity: int, short: float, batches: list[int], seed: int
) -> None:
    memory = memory_of(capacity, seed, short)
    for n in batches:
        slots = offer(memory, n)
        held = [slot for slot in slots if slot >= 0]
        assert len(held) == len(set(held))
    ring = Storyboard(short=short).ring(capacity)
    assert tiers(memory) == literal(capacity, ring, batches, seed)
    newest = list(range(max(0, sum(batches) - ring), sum(batches)))
    assert tiers(memory)[0] == newest


def test_a_reservoir_that_miscounts_is_found_out() -> None:
    batches = [5] * 12
    memory = memory_of(10)
    for n in batches:
        offer(memory, n)
    assert tiers(memory) == literal(10, 5, batches, 0)
    assert tiers(memory) != literal(10, 5, batches, 0, broken=True)


def test_long_term_memory_is_a_uniform_sample_of_all_that_left() -> None:
    trials, counts = 3000, torch.zeros(25)
    for seed in range(trials):
        memory = memory_of(10, seed)
        for n in (12, 18):
            offer(memory, n)
        counts[tiers(memory)[1]] += 1
    share = 5 / 25  # 25 samples have left the ring of 5
    error = (share * (1 - share) / trials) ** 0.5
    assert ((counts / trials - share).abs() < 5 * error).all()


@pytest.mark.parametrize(("short", "ring"), [(0.0, 1), (0.25, 5), (1.0, 20)])
def test_the_share_of_the_ring(short: float, ring: int) -> None:
    memory = memory_of(20, short=short)
    for _ in range(10):
        offer(memory, 7)
    assert [len(part) for part in tiers(memory)] == [ring, 20 - ring]


@pytest.mark.parametrize("seen", [13, 2**40])
def test_a_loaded_memory_without_the_newest_samples_is_refused(seen: int) -> None:
    memory = memory_of(10)
    offer(memory, 12)
    state = memory.state()
    memory_of(10).load_state(state)
    with pytest.raises(ValueError, match="does not hold the newest"):
        memory_of(10).load_state({**state, "seen": torch.tensor(seen)})


def test_a_loaded_memory_with_a_sample_twice_is_refused() -> None:
    memory = memory_of(10)
    offer(memory, 12)
    state = memory.state()
    born = state["column.born"].clone()
    oldest = born.argsort()[:2]  # of the long-term memory
    born[oldest[0]] = born[oldest[1]]
    with pytest.raises(ValueError, match="does not hold the newest"):
        memory_of(10).load_state({**state, "column.born": born})


def test_a_loaded_memory_with_fewer_samples_than_it_has_seen_is_refused() -> None:
    memory = memory_of(10)
    offer(memory, 12)
    state = memory.state()
    kept = state["column.born"].argsort()[2:]
    fewer = {name: column[kept] for name, column in state.items() if name.startswith("column.")}
    with pytest.raises(ValueError, match="does not hold the newest"):
        memory_of(10).load_state({**state, **fewer})
