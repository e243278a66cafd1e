"""The benchmark of the memory: its rows, its counter of large tensors, and that its peers do the same work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.bench import Row
from ocssl.bench.memory import (
    LEAN,
    Allocations,
    ListMemory,
    beside_list,
    beside_matrices,
    exponent,
    full,
    growth,
    large_tensors,
    matrix_per_victim,
    prepared,
    round_of,
    same_rounds,
    spread_out,
    statistics_of,
    with_images,
)
from ocssl.errors import OcsslError
from ocssl.memory import Context, Store
from ocssl.memory.draw import Uniform
from ocssl.memory.keep import HighestLoss

pytestmark = pytest.mark.slow

LARGE = 70_000  # slots: columns are not looked at as a whole

PARTS: dict[str, Callable[[], list[Row]]] = {
    "growth": lambda: list(growth([40, 80, 160], 2, few=40, many=160)),
    "with images": lambda: list(with_images([30, 60], 4, 2)),
    "beside a list": lambda: list(beside_list(40, 4, 5, 2)),
    "beside matrices": lambda: list(beside_matrices(40, 16, 2)),
    "spread out": lambda: list(spread_out(30, 8, 2)),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_row_has_a_positive_figure(part: str) -> None:
    rows = PARTS[part]()
    assert len({row.key for row in rows}) == len(rows) > 0
    for row in rows:
        assert row.part == "memory"
        assert row.value.low <= row.value.middle <= row.value.high
        assert math.isfinite(row.value.middle)
        assert row.value.middle > 0 or "exponent" in row.name  # which noise can turn at such sizes


def test_the_bars_are_those_of_the_promises() -> None:
    bars = [str(row.bar) for part in ("growth", "beside matrices") for row in PARTS[part]() if row.bar]
    assert bars == ["at most 100", "at least 20"]


@given(power=st.floats(-2, 3), slots=st.lists(st.integers(1, 10**7), min_size=2, max_size=6, unique=True))
@settings(max_examples=50, deadline=None)
def test_the_exponent_of_a_power_is_that_power(power: float, slots: list[int]) -> None:
    times = {str(n): [3.0 * n**power, 0.1 * n**power] for n in slots}
    assert exponent(times, slots).low == pytest.approx(power, abs=1e-6)
    assert exponent(times, slots).high == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize("method", LEAN)
def test_a_round_makes_no_tensor_as_large_as_the_memory(method: str) -> None:
    row = large_tensors(method, LARGE)
    assert row.value.middle == 0, row.note
    assert row.bar is not None
    assert row.bar.met(row.value.middle)


class Masks(HighestLoss):
    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        (store["loss"] < 0.5).sum()
        return super().place(store, arriving, generator)


class Sorts(Uniform):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return store.scratch(1).exponential_(generator=generator).argsort()[:n]


@pytest.mark.parametrize(("rule", "large"), [(Masks(), 1), (Sorts(), 2)])
def test_a_wasteful_rule_is_counted(rule: Masks | Sorts, large: int) -> None:
    memory = full("solar", LARGE)
    if isinstance(rule, Masks):
        memory.keep_rule = rule
    else:
        memory.draw_rule = rule
    with Allocations(LARGE) as made:
        round_of(memory)()
    assert len(made.operations) == large, made.operations


def test_views_and_writing_in_place_make_nothing() -> None:
    column = torch.zeros(100)
    with Allocations(50) as made:
        column[:60].view(2, 30).add_(1)
        torch.mul(column, 2, out=column)
        column[torch.arange(5)] = 1.0
        column.split(60)
        column.detach().to(torch.float32)
        column[:49].clone()
    assert made.operations == []


@pytest.mark.parametrize(
    ("work", "large"),
    [
        (lambda column: column.clone(), 1),
        (lambda column: column[:50] + 1, 1),
        (lambda column: column > 0, 1),
        (lambda column: column.sort(), 2),
        (lambda column: torch.cat([column[:30], column[:30]]), 1),
        (lambda column: column[:1].expand(80).contiguous()[:2], 1),
    ],
)
def test_every_new_storage_counts_once(work: Callable[[Tensor], object], large: int) -> None:
    column = torch.zeros(100)
    with Allocations(50) as made:
        work(column)
    assert len(made.operations) == large, made.operations


def beside(peer: type[ListMemory], slots: int, rounds: int, levels: int | None = None) -> None:
    ours, other = full("solar", slots, 2, 3), peer(slots)
    if levels:
        ours.store["loss"].mul_(levels).round_()
    other.insert(ours.store["image"], ours.store["id"], statistics_of(ours))
    same_rounds(ours, other, rounds)


@given(slots=st.integers(1, 150), rounds=st.integers(1, 5), levels=st.sampled_from([None, 2]))
@settings(max_examples=25, deadline=None)
def test_a_list_of_tensors_holds_the_same_samples(slots: int, rounds: int, levels: int | None) -> None:
    beside(ListMemory, slots, rounds, levels)


class KeepsTheLowest(ListMemory):
    def insert(self, images: Tensor, ids: Tensor, statistics: Mapping[str, Tensor]) -> None:
        super().insert(images, ids, {**statistics, "loss": -statistics["loss"]})


class NeverRefreshes(ListMemory):
    def refresh(self, slots: Sequence[int], statistics: Mapping[str, Tensor]) -> None:
        pass


class DrawsOthers(ListMemory):
    def draw(self, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        return super().draw([*slots[1:], slots[0]])


@pytest.mark.parametrize("broken", [KeepsTheLowest, NeverRefreshes, DrawsOthers])
def test_a_list_that_does_other_work_is_refused(broken: type[ListMemory]) -> None:
    with pytest.raises(OcsslError, match="not hold the same samples"):
        beside(broken, 60, 2)


def older_of_the_closest(vectors: Tensor, born: list[int], n: int) -> list[int]:
    """One number at a time."""
    unit = [[x / math.hypot(*row) for x in row] for row in vectors.double().tolist()]
    left, victims = set(range(len(unit))), []
    for _ in range(n):
        pairs = [(dot(unit[i], unit[j]), i, j) for i in left for j in left if i < j]
        _, i, j = max(pairs)
        victims.append(min(i, j, key=born.__getitem__))
        left.remove(victims[-1])
    return victims


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


@given(seed=st.integers(0, 1000), slots=st.integers(3, 14))
@settings(max_examples=40, deadline=None)
def test_a_matrix_for_every_victim_names_the_older_of_the_closest_pair(seed: int, slots: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors, born = torch.randn(slots, 5, generator=generator), torch.randperm(slots, generator=generator)
    expected = older_of_the_closest(vectors, born.tolist(), slots - 2)
    assert matrix_per_victim(vectors, born, slots - 2).tolist() == expected


def test_minred_evicts_what_its_peer_names() -> None:
    memory = full("minred", 60, projected=8)
    batches = prepared(memory)
    for _ in range(5):
        batch = next(batches)
        expected = matrix_per_victim(memory.store["projected"], memory.store["born"], len(batch.ids))
        assert memory.insert(batch.images, batch.ids, batch.arriving).tolist() == expected.tolist()
