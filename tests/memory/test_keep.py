"""Keep rules against slow literal oracles, by statistics, and with broken variants that the oracles catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.memory import DRAWS, KEEPS, Keep, Memory, Store
from ocssl.memory.keep import _by_score_then_age, lowest


class Colours:
    """A context whose gradients are colours."""

    def loss_increase(self, images: Tensor) -> Tensor:
        raise AssertionError("keep rules do not ask for a loss increase")

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        return torch.stack([images.float().mean((0, 2, 3)) for images in batches])


def memory_with(keep: Keep, capacity: int, seed: int = 0) -> Memory:
    store = Store(capacity, (3, 2, 2), {"feature": 2, "projected": 2, **keep.columns(capacity)})
    return Memory(store, keep, DRAWS.build("uniform"), torch.Generator().manual_seed(seed))


def offer(memory: Memory, losses: Tensor) -> Tensor:
    """Insert samples whose id is their arrival number and whose pixels repeat it."""
    n = len(losses)
    ids = torch.arange(memory.seen, memory.seen + n)
    images = (ids % 256).to(torch.uint8)[:, None, None, None].expand(n, 3, 2, 2)
    vectors = losses[:, None].expand(n, 2)
    return memory.insert(images, ids, {"loss": losses, "feature": vectors, "projected": vectors}, Colours())


def kept(memory: Memory) -> set[int]:
    return set(memory.table()["id"].tolist())


def keeps_highest(capacity: int, batches: list[Tensor]) -> set[int]:
    """Algorithm 1, Update: append, sort ascending by loss, remove the first r."""
    entries: list[tuple[float, int]] = []
    number = 0
    for losses in batches:
        for loss in losses.tolist():
            entries.append((loss, number))
            number += 1
        entries.sort()
        entries = entries[max(0, len(entries) - capacity) :]
    return {number for _, number in entries}


batch_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@given(sizes=batch_sizes, capacity=st.integers(1, 20), seed=st.integers(0, 2**20))
@settings(max_examples=150, deadline=None)
@pytest.mark.slow
def test_highest_loss_keeps_what_the_papers_update_keeps(sizes: list[int], capacity: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    batches = [torch.rand(n, generator=generator) for n in sizes]
    memory = memory_with(KEEPS.build("highest-loss"), capacity)
    for losses in batches:
        offer(memory, losses)
    assert kept(memory) == keeps_highest(capacity, batches)


@given(sizes=batch_sizes, capacity=st.integers(1, 20), levels=st.integers(1, 3), seed=st.integers(0, 2**20))
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_of_equal_losses_the_older_goes_first(sizes: list[int], capacity: int, levels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    batches = [torch.randint(0, levels, (n,), generator=generator).float() for n in sizes]
    memory = memory_with(KEEPS.build("highest-loss"), capacity)
    for losses in batches:
        offer(memory, losses)
    assert kept(memory) == keeps_highest(capacity, batches)  # the oracle sorts by (loss, arrival)


def test_the_oracle_tells_lowest_loss_from_highest_loss() -> None:
    batches = [torch.rand(10, generator=torch.Generator().manual_seed(i)) for i in range(5)]
    memory = memory_with(KEEPS.build("lowest-loss"), 20)
    for losses in batches:
        offer(memory, losses)
    assert kept(memory) != keeps_highest(20, batches)
    mirrored = keeps_highest(20, [-losses for losses in batches])
    assert kept(memory) == mirrored


def compare_kept_and_evicted(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    memory = memory_with(KEEPS.build(name), 30)
    offer(memory, torch.rand(30, generator=generator))
    for _ in range(20):
        before = memory.table()
        arriving = torch.rand(7, generator=generator)
        slots = offer(memory, arriving)
        after = memory.table()
        evicted = [loss for i, loss in zip(before["id"], before["loss"], strict=True) if i not in after["id"]]
        refused = arriving[slots < 0].tolist()
        assert len(memory) == 30
        assert len(evicted) + len(refused) == 7
        assert min(after["loss"]) >= max([*evicted, *refused])


def test_after_an_update_no_kept_loss_is_below_an_evicted_one() -> None:
    compare_kept_and_evicted("highest-loss")


@pytest.mark.parametrize("name", ["fifo", "reservoir", "lowest-loss"])
def test_the_comparison_of_kept_and_evicted_catches_rules_that_go_by_something_else(name: str) -> None:
    with pytest.raises(AssertionError):
        compare_kept_and_evicted(name)


def compare_fifo(rule: Keep, sizes: list[int], capacity: int) -> None:
    """The set of slots is the last M samples, after every minibatch."""
    memory = memory_with(rule, capacity)
    for n in sizes:
        offer(memory, torch.zeros(n))
        assert kept(memory) == set(range(max(0, memory.seen - capacity), memory.seen))


@given(sizes=batch_sizes, capacity=st.integers(1, 20))
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_fifo_keeps_the_last_samples(sizes: list[int], capacity: int) -> None:
    compare_fifo(KEEPS.build("fifo"), sizes, capacity)


class OverRandom(Keep):
    """Broken ring: newcomers take random slots."""

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return torch.randperm(store.capacity, generator=generator)[: len(arriving["born"])]


class OverNewest(Keep):
    """Broken ring: newcomers take the newest samples' slots."""

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return store["born"].argsort(descending=True)[: len(arriving["born"])]


class OneOff(Keep):
    """Broken ring: it begins at the second slot."""

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        return (arriving["born"] + 1) % store.capacity


@pytest.mark.parametrize("broken", [OverRandom, OverNewest, OneOff])
def test_the_slot_set_catches_a_ring_that_overwrites_other_slots(broken: type[Keep]) -> None:
    with pytest.raises(AssertionError):
        compare_fifo(broken(), [4, 4, 4], capacity=6)


def reservoir_inclusion(
    memory_of: Callable[[int], int], capacity: int = 10, length: int = 60, batch: int = 6
) -> Tensor:
    """How often each position of a stream ends in a reservoir that believes to have seen `memory_of(seen)` samples."""
    counts = torch.zeros(length)
    for seed in range(800):
        memory = memory_with(KEEPS.build("reservoir"), capacity, seed)
        positions = torch.full((capacity,), -1)
        for start in range(0, length, batch):
            memory.seen = memory_of(memory.seen)
            slots = offer(memory, torch.zeros(batch))
            positions[slots[slots >= 0]] = torch.arange(start, start + batch)[slots >= 0]
        counts[positions] += 1
    return counts


def chi_square(counts: Tensor, expected: float, streams: int = 800) -> float:
    """About chi-square distributed with length - 1 degrees of freedom when every position is equally likely."""
    share = expected / streams
    return float(((counts - expected).square() / (expected * (1 - share))).sum())


@pytest.mark.slow
def test_reservoir_includes_every_position_equally_often() -> None:
    counts = reservoir_inclusion(lambda seen: seen)  # the memory fills in the middle of a batch
    assert counts.sum() == 800 * 10
    assert chi_square(counts, 800 * 10 / 60) < 110  # 59 degrees of freedom: beyond one in 50,000


@pytest.mark.slow
def test_the_statistic_catches_a_reservoir_that_forgets_how_much_it_has_seen() -> None:
    counts = reservoir_inclusion(lambda seen: min(seen, 20))
    assert chi_square(counts, 800 * 10 / 60) > 200


def test_two_arrivals_in_one_slot_leave_the_later_one() -> None:
    memory = memory_with(KEEPS.build("fifo"), 3)
    slots = offer(memory, torch.zeros(8))
    assert kept(memory) == {5, 6, 7}
    assert slots.tolist() == [-1, -1, -1, -1, -1, 2, 0, 1]


@pytest.mark.parametrize("name", list(KEEPS))
def test_a_slots_columns_all_belong_to_one_sample(name: str) -> None:
    memory = memory_with(KEEPS.build(name), 9)
    generator = torch.Generator().manual_seed(1)
    losses = torch.rand(100, generator=generator)
    for start in range(0, 100, 5):
        offer(memory, losses[start : start + 5])
    ids = memory.store["id"]
    assert torch.equal(memory.store["born"], ids)
    assert torch.equal(memory.store["loss"], losses[ids])
    assert torch.equal(memory.store["feature"], losses[ids][:, None].expand(-1, 2))
    assert torch.equal(memory.store["image"][:, 0, 0, 0].long(), ids % 256)
    assert torch.equal(memory.store["draws"], torch.zeros(9, dtype=torch.int64))


def lars(losses: list[float], born: list[int], seen: int, arriving: list[float], coins: list[float]) -> list[int]:
    """One after the other: a coin of M / t, then the lowest loss goes, of equals the older. Slots of the newcomers."""
    slots, capacity = [-1] * len(arriving), len(losses)
    for i, loss in enumerate(arriving):
        seen += 1
        if coins[i] < capacity / seen:
            victim = min(range(capacity), key=lambda slot: (losses[slot], born[slot]))
            slots = [-1 if slot == victim else slot for slot in slots]
            slots[i], losses[victim], born[victim] = victim, loss, seen - 1
    return slots


def lars_all_at_once(
    losses: list[float], born: list[int], seen: int, arriving: list[float], coins: list[float]
) -> list[int]:
    """Broken: newcomers of the same minibatch do not compete with one another."""
    slots, order = [-1] * len(arriving), sorted(range(len(losses)), key=lambda slot: (losses[slot], born[slot]))
    admitted = [i for i, coin in enumerate(coins) if coin < len(losses) / (seen + 1 + i)]
    for place, i in enumerate(admitted):
        slots[i] = order[place]
    return slots


def compare_lars(oracle: Callable[..., list[int]], levels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    memory = memory_with(KEEPS.build("lars"), 6, seed)
    offer(memory, torch.randint(0, levels, (6,), generator=generator).float())
    for _ in range(6):
        arriving = torch.randint(0, levels, (5,), generator=generator).float()
        coins = torch.rand(5, generator=torch.Generator().set_state(memory.generator.get_state()), dtype=torch.float64)
        losses, born = memory.store["loss"].tolist(), memory.store["born"].tolist()
        wanted = oracle(losses, born, memory.seen, arriving.tolist(), coins.tolist())
        assert offer(memory, arriving).tolist() == wanted


@given(levels=st.integers(1, 40), seed=st.integers(0, 2**20))
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_lars_admits_like_a_reservoir_and_evicts_the_lowest_loss_one_by_one(levels: int, seed: int) -> None:
    compare_lars(lars, levels, seed)


def test_the_lars_oracle_catches_newcomers_that_do_not_compete_with_one_another() -> None:
    with pytest.raises(AssertionError):
        compare_lars(lars_all_at_once, 40, seed=0)


@pytest.mark.slow
def test_lars_admits_with_probability_memory_over_seen() -> None:
    rule, trials = KEEPS.build("lars"), 4000
    memory = memory_with(rule, 4)
    offer(memory, torch.tensor([0.5, 0.1, 0.4, 0.3]))
    generator = torch.Generator().manual_seed(0)
    arriving = {"born": torch.tensor([15]), "loss": torch.zeros(1)}
    slots = torch.cat([rule.place(memory.store, arriving, generator) for _ in range(trials)])
    assert set(slots.tolist()) == {-1, 1}
    assert float((slots == 1).float().mean()) == pytest.approx(4 / 16, abs=0.035)


def victim_frequencies(losses: list[float], trials: int = 3000) -> Tensor:
    rule = KEEPS.build("lars", {"victim": "sampled"})
    memory = memory_with(rule, len(losses))
    offer(memory, torch.tensor(losses))
    generator = torch.Generator().manual_seed(0)
    arriving = {"born": torch.tensor([0]), "loss": torch.zeros(1)}  # as if nothing had been seen: always admitted
    slots = torch.cat([rule.place(memory.store, arriving, generator) for _ in range(trials)])
    return torch.bincount(slots, minlength=len(losses)) / trials


@pytest.mark.slow
def test_sampled_lars_victims_follow_the_scaled_negative_loss() -> None:
    losses = [-0.9, -0.4, 0.6, 0.1]
    scores = [(-loss + max(losses)) / (max(losses) - min(losses)) for loss in losses]
    frequencies = victim_frequencies(losses)
    assert torch.allclose(frequencies, torch.tensor([s / sum(scores) for s in scores]), atol=0.03)
    assert frequencies[2] == 0  # the highest loss never goes
    upside_down = [1 - s for s in scores]
    assert not torch.allclose(frequencies, torch.tensor([s / sum(upside_down) for s in upside_down]), atol=0.03)


@pytest.mark.slow
def test_sampled_lars_is_uniform_where_all_losses_are_equal() -> None:
    assert torch.allclose(victim_frequencies([0.3] * 5), torch.full((5,), 0.2), atol=0.03)


@given(
    values=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    n=st.integers(0, 30),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_lowest_is_a_stable_sort(values: list[int], n: int, seed: int) -> None:
    n = min(n, len(values))
    born = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    expected = sorted(range(len(values)), key=lambda i: (values[i], int(born[i])))[:n]
    assert lowest(torch.tensor(values).float(), born, n).tolist() == expected


def test_the_lowest_are_the_same_by_sorting_all_as_on_a_device() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        values = torch.randint(0, 6, (40,), generator=generator).float()
        born = torch.randperm(40, generator=generator)
        here = lowest(values, born, 9)
        assert here.tolist() == _by_score_then_age(values, born)[:9].tolist()
