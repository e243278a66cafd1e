"""PSA against the literal algorithm: a heap of boxes, cut one at a time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.memory.psa import psa

Rows = list[list[float]]


def ranges(points: Rows, box: list[int]) -> list[float]:
    return [max(points[i][d] for i in box) - min(points[i][d] for i in box) for d in range(len(points[0]))]


def central(points: Rows, box: list[int]) -> int:
    """The point closest to the centre of the bounding box, of equals the first; two points are equally close."""
    low = [min(points[i][d] for i in box) for d in range(len(points[0]))]
    high = [max(points[i][d] for i in box) for d in range(len(points[0]))]
    axes = range(len(low))
    return min(box, key=lambda i: sum(((points[i][d] - low[d]) - (high[d] - points[i][d])) ** 2 for d in axes))


def literal(points: Rows, keep: int, choose: Callable[[Rows, list[int]], int] = central) -> list[int]:
    if len(points) <= keep:
        return list(range(len(points)))

    def entry(box: list[int]) -> tuple[Any, ...]:
        return (-max(ranges(points, box)), -len(box), box[0], box)

    heap = [entry(list(range(len(points))))]
    while len(heap) < keep and heap[0][0] < 0:  # the widest box has an extent
        box = heapq.heappop(heap)[-1]
        widths = ranges(points, box)
        axis = widths.index(max(widths))
        middle = min(points[i][axis] for i in box) + max(widths) / 2
        for part in ([i for i in box if points[i][axis] < middle], [i for i in box if points[i][axis] >= middle]):
            heapq.heappush(heap, entry(part))
    kept = {choose(points, box) for *_, box in heap}
    rest = [i for i in range(len(points)) if i not in kept]
    return sorted([*kept, *rest[: keep - len(kept)]])


def first_of_box(points: Rows, box: list[int]) -> int:
    return box[0]


def cut_at_the_median(points: Rows, keep: int) -> list[int]:
    """Broken: boxes of equal numbers of points instead of halves of the range."""
    boxes = [list(range(len(points)))]
    while len(boxes) < keep:
        box = max(boxes, key=lambda b: max(ranges(points, b)))
        widths = ranges(points, box)
        ordered = sorted(box, key=lambda i: points[i][widths.index(max(widths))])
        boxes.remove(box)
        boxes += [ordered[: len(box) // 2], ordered[len(box) // 2 :]]
    return sorted(central(points, box) for box in boxes)


def cloud(n: int, d: int, seed: int, kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, d, generator=generator)
    if kind == "skewed":
        return points.exp()
    if kind == "grid":  # many ties and duplicates
        return points.round()
    if kind == "outliers":  # peel off one by one
        return points * 0.5 ** torch.arange(n)[:, None]
    return points


KINDS = ["normal", "skewed", "grid", "outliers"]


@given(
    n=st.integers(1, 40),
    d=st.integers(1, 6),
    keep=st.integers(1, 40),
    seed=st.integers(0, 2**20),
    kind=st.sampled_from(KINDS),
)
@settings(max_examples=150, deadline=None)
@pytest.mark.slow
def test_the_points_are_those_of_the_heap(n: int, d: int, keep: int, seed: int, kind: str) -> None:
    points = cloud(n, d, seed, kind)
    assert psa(points, keep).tolist() == literal(points.double().tolist(), keep)


@pytest.mark.parametrize("broken", [cut_at_the_median, lambda points, keep: literal(points, keep, first_of_box)])
def test_the_oracle_catches(broken: Callable[[Rows, int], list[int]]) -> None:
    points = cloud(40, 3, 0, "skewed")
    assert psa(points, 12).tolist() == literal(points.double().tolist(), 12)
    with pytest.raises(AssertionError):
        assert psa(points, 12).tolist() == broken(points.double().tolist(), 12)


@given(n=st.integers(1, 60), keep=st.integers(1, 60), seed=st.integers(0, 2**20), kind=st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
def test_as_many_distinct_points_stay_as_may(n: int, keep: int, seed: int, kind: str) -> None:
    kept = psa(cloud(n, 3, seed, kind), keep).tolist()
    assert len(kept) == len(set(kept)) == min(n, keep)


def test_evenly_spaced_points_leave_evenly_spaced_ones() -> None:
    kept = psa(torch.arange(64.0)[:, None], 16)
    assert kept.diff().tolist() == [4] * 15


def test_of_equal_points_the_first_stay() -> None:
    assert psa(torch.ones(9, 4), 5).tolist() == [0, 1, 2, 3, 4]
    assert psa(torch.tensor([[0.0], [0.0], [0.0], [1.0]]), 3).tolist() == [0, 1, 3]


def test_neighbouring_floats_are_told_apart() -> None:
    low = torch.tensor(1.0)
    points = torch.stack([low, low.nextafter(torch.tensor(2.0))])[:, None]
    assert psa(torch.cat([points, points + 1]), 3).tolist() == literal(torch.cat([points, points + 1]).tolist(), 3)


def test_which_points_stay_does_not_depend_on_scale_or_on_the_order_of_the_axes() -> None:
    points = cloud(50, 5, 3, "normal")
    assert torch.equal(psa(points * 4, 20), psa(points, 20))
    assert torch.equal(psa(points.flip(1), 20), psa(points, 20))


def memory_of(features: Tensor, born: Tensor) -> Memory:
    store = Store(len(features), (3, 1, 1), {"feature": features.shape[1]})
    store.write(store.extend(len(features)), {"feature": features, "born": born, "id": born})
    memory = Memory(store, KEEPS.build("psa"), DRAWS.build("uniform"), torch.Generator().manual_seed(0))
    memory.seen = int(born.max()) + 1
    return memory


def test_the_memory_keeps_the_literal_selection_of_stored_and_new_samples_by_age() -> None:
    generator = torch.Generator().manual_seed(5)
    stored, new = torch.randn(20, 4, generator=generator), torch.randn(6, 4, generator=generator)
    born = torch.randperm(20, generator=generator)
    memory = memory_of(stored, born)
    slots = memory.insert(torch.zeros(6, 3, 1, 1, dtype=torch.uint8), 20 + torch.arange(6), {"feature": new})
    by_age = torch.cat([stored[born.argsort()], new])
    assert sorted(memory.store["id"].tolist()) == literal(by_age.double().tolist(), 20)
    assert torch.equal(memory.store["feature"], by_age[memory.store["id"]])
    assert int((slots >= 0).sum()) == int((memory.store["id"] >= 20).sum()) > 0


def test_where_all_features_are_equal_newcomers_are_refused() -> None:
    memory = memory_of(torch.zeros(5, 3), torch.arange(5))
    slots = memory.insert(torch.zeros(2, 3, 1, 1, dtype=torch.uint8), torch.arange(2), {"feature": torch.zeros(2, 3)})
    assert slots.tolist() == [-1, -1]
