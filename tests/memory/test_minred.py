"""MinRed against recomputing all cosines for every victim, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.memory import DRAWS, KEEPS, Keep, Memory, MinRed, Store
from ocssl.memory.minred import SELF


def memory_of(capacity: int, dimension: int = 8, rule: Keep | None = None) -> Memory:
    rule = rule or KEEPS.build("minred")
    store = Store(capacity, (3, 1, 1), {"projected": dimension, **rule.columns(capacity)})
    return Memory(store, rule, DRAWS.build("uniform"), torch.Generator().manual_seed(0))


def offer(memory: Memory, vectors: Tensor) -> list[int]:
    n = len(vectors)
    ids = torch.arange(memory.seen, memory.seen + n)
    return memory.insert(torch.zeros(n, 3, 1, 1, dtype=torch.uint8), ids, {"projected": vectors}).tolist()


def cosine(a: list[float], b: list[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def evict(vectors: list[list[float]], born: list[int], n: int) -> list[int]:
    """The closest pair of all that are left, looked for anew; its older one goes, of equally close ones the oldest."""
    left, gone = set(range(len(vectors))), []
    while len(gone) < n:
        pairs = [(cosine(vectors[i], vectors[j]), i, j) for i in left for j in left if i != j]
        top = max(pairs)[0]
        gone.append(min((i for c, i, _ in pairs if c == top), key=lambda i: born[i]))
        left.remove(gone[-1])
    return gone


def evict_the_younger(vectors: list[list[float]], born: list[int], n: int) -> list[int]:
    return evict(vectors, [-b for b in born], n)


def evict_without_masking(vectors: list[list[float]], born: list[int], n: int) -> list[int]:
    """Broken: the n slots with the closest neighbours, those that have gone included."""
    rows = range(len(vectors))
    near = {i: max(cosine(vectors[i], vectors[j]) for j in rows if j != i) for i in rows}
    return sorted(rows, key=lambda i: (-near[i], born[i]))[:n]


Evict = Callable[[list[list[float]], list[int], int], list[int]]


def compare(oracle: Evict, seed: int, batch: int = 4) -> None:
    """Fill, then insert and replay in turn; the victims are always the oracle's."""
    generator = torch.Generator().manual_seed(seed)
    memory = memory_of(12)
    offer(memory, torch.randn(12, 8, generator=generator))
    for _ in range(5):
        replay = memory.draw(5)
        memory.refresh(replay, {"projected": torch.randn(5, 8, generator=generator)})
        wanted = oracle(memory.store["projected"].double().tolist(), memory.store["born"].tolist(), batch)
        assert offer(memory, torch.randn(batch, 8, generator=generator)) == wanted


@given(seed=st.integers(0, 2**20), batch=st.integers(1, 11))
@settings(max_examples=40, deadline=None, derandomize=True)  # float32 can tell these cosines apart
@pytest.mark.slow
def test_victims_are_those_of_recomputing_every_time(seed: int, batch: int) -> None:
    compare(evict, seed, batch)


@given(seed=st.integers(0, 2**20))
@settings(max_examples=30, deadline=None)
def test_of_equally_close_pairs_the_oldest_goes(seed: int) -> None:
    memory = memory_of(12, dimension=3)
    generator = torch.Generator().manual_seed(seed)
    corners = torch.eye(3)[torch.randint(0, 3, (20,), generator=generator)] * 4  # cosines are exactly 0 or 1
    offer(memory, corners[:12])
    for start in (12, 16):
        wanted = evict(memory.store["projected"].tolist(), memory.store["born"].tolist(), 4)
        assert offer(memory, corners[start : start + 4]) == wanted


@pytest.mark.parametrize("broken", [evict_the_younger, evict_without_masking])
def test_the_oracle_catches(broken: Evict) -> None:
    with pytest.raises(AssertionError):
        compare(broken, seed=0)


def test_of_two_identical_features_the_older_goes_first() -> None:
    memory = memory_of(6)
    vectors = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    vectors[4] = 3 * vectors[2]
    offer(memory, vectors)
    assert offer(memory, torch.randn(1, 8, generator=torch.Generator().manual_seed(2))) == [2]


def test_newcomers_are_kept_even_if_identical() -> None:
    memory = memory_of(6)
    offer(memory, torch.randn(6, 8, generator=torch.Generator().manual_seed(1)))
    slots = offer(memory, torch.ones(3, 8))
    assert len(set(slots)) == 3
    assert -1 not in slots


def compare_filling_in_the_middle_of_a_minibatch(rule: Keep) -> None:
    """Two of four newcomers find free slots; the other two evict samples that were there before."""
    memory = memory_of(6, rule=rule)
    offer(memory, torch.randn(4, 8, generator=torch.Generator().manual_seed(1)))
    slots = offer(memory, torch.ones(4, 8))  # closer to one another than to anything old
    left = memory.store["id"].tolist()
    assert set(left) > {4, 5, 6, 7}
    assert [left[slot] for slot in slots] == [4, 5, 6, 7]
    assert len({0, 1, 2, 3} & set(left)) == 2


def test_newcomers_that_just_took_free_slots_are_not_evicted_by_the_rest_of_their_minibatch() -> None:
    compare_filling_in_the_middle_of_a_minibatch(KEEPS.build("minred"))


class EvictsItsOwn(MinRed):
    """Broken: newcomers in slots that were free a moment ago may go, too."""

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        vectors, born = store["projected"].tolist(), store["born"].tolist()
        return torch.tensor(evict(vectors, born, len(arriving["born"])))


def test_the_comparison_catches_a_minibatch_that_evicts_its_own_samples() -> None:
    with pytest.raises(AssertionError):
        compare_filling_in_the_middle_of_a_minibatch(EvictsItsOwn())


def test_of_more_arrivals_than_slots_the_last_stay() -> None:
    memory = memory_of(3)
    offer(memory, torch.randn(3, 8, generator=torch.Generator().manual_seed(1)))
    slots = offer(memory, torch.randn(5, 8, generator=torch.Generator().manual_seed(2)))
    assert slots[:2] == [-1, -1]
    assert sorted(slots[2:]) == [0, 1, 2]
    assert sorted(memory.store["id"].tolist()) == [5, 6, 7]


@pytest.mark.parametrize("vectors", [torch.zeros(9, 8), torch.ones(9, 8), -torch.eye(9, 8)])
def test_collapsed_features_evict_the_oldest(vectors: Tensor) -> None:
    memory = memory_of(9)
    offer(memory, vectors)
    assert offer(memory, vectors[:4]) == [0, 1, 2, 3]


def test_the_similarities_are_kept_up_to_date_and_symmetric() -> None:
    memory = memory_of(10)
    generator = torch.Generator().manual_seed(3)
    for n in (4, 3, 5, 2, 6):
        offer(memory, torch.randn(n, 8, generator=generator))
        memory.refresh(memory.draw(3), {"projected": torch.randn(3, 8, generator=generator)})
        stored = len(memory)
        similarity = memory.store["similarity"][:, :stored]
        rows = memory.store["projected"].tolist()
        expected = torch.tensor(
            [[SELF if i == j else cosine(a, b) for j, b in enumerate(rows)] for i, a in enumerate(rows)]
        )
        torch.testing.assert_close(similarity, expected, atol=1e-6, rtol=0)
        assert torch.equal(similarity, similarity.T)


def test_a_neighbour_of_all_that_goes_first_does_not_mislead() -> None:
    generator = torch.Generator().manual_seed(4)
    vectors = torch.randn(12, 8, generator=generator) + torch.tensor([3.0, *[0.0] * 7])
    vectors[0] = vectors.mean(0)
    memory = memory_of(12)
    offer(memory, vectors)
    wanted = evict(memory.store["projected"].double().tolist(), memory.store["born"].tolist(), 6)
    assert wanted[0] == 0
    assert offer(memory, torch.randn(6, 8, generator=generator)) == wanted
