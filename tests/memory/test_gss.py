"""GSS-greedy against its literal formulas, with a context whose gradients are colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ocssl.errors import OcsslError
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.memory.gss import Gss, similarities


class Colours:
    """Gradients are colours about grey; batches that were asked for are remembered."""

    def __init__(self) -> None:
        self.calls: list[list[Tensor]] = []

    def loss_increase(self, images: Tensor) -> Tensor:
        raise AssertionError("GSS does not ask for a loss increase")

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        self.calls.append([images[:, :, 0, 0] for images in batches])
        return torch.stack([images[:, :, 0, 0].double().mean(0) - 128 for images in batches])


def memory_of(capacity: int, **options: Any) -> Memory:
    rule = KEEPS.build("gss", options)
    store = Store(capacity, (3, 1, 1), rule.columns(capacity))
    return Memory(store, rule, DRAWS.build("uniform"), torch.Generator().manual_seed(0))


def images(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, 1, 1), generator=generator, dtype=torch.uint8)


def offer(memory: Memory, pictures: Tensor, context: Colours) -> Tensor:
    return memory.insert(pictures, torch.arange(len(pictures)), {"loss": torch.zeros(len(pictures))}, context)


def cosine(a: list[float], b: list[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def literal(parts: Tensor, own: Tensor) -> tuple[list[float], float]:
    """Each sample's highest cosine with a part's gradient, and that of their mean."""
    scores = [max(cosine(g, part) for part in parts.tolist()) for g in own.tolist()]
    return scores, max(cosine(own.mean(0).tolist(), part) for part in parts.tolist())


def mean_cosine(parts: Tensor, own: Tensor) -> tuple[list[float], float]:
    """Broken: the mean instead of the highest."""
    scores = [sum(cosine(g, part) for part in parts.tolist()) / len(parts) for g in own.tolist()]
    return scores, sum(scores) / len(scores)


def compare(oracle: Any, seed: int, zero: bool = False) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(9, 12, generator=generator, dtype=torch.float64)
    if zero:
        rows[[1, 6]] = 0
    score, whole = similarities(rows, 4)
    expected, expected_whole = oracle(rows[:4], rows[4:])
    torch.testing.assert_close(score, torch.tensor(expected, dtype=torch.float64))
    assert float(whole) == pytest.approx(expected_whole)


def test_scores_are_the_literal_highest_cosines() -> None:
    for seed in range(5):
        compare(literal, seed)
        compare(literal, seed, zero=True)
    with pytest.raises(AssertionError):
        compare(mean_cosine, 0)


def test_zero_gradients_score_zero() -> None:
    score, whole = similarities(torch.zeros(5, 3), 2)
    assert score.tolist() == [0, 0, 0]
    assert whole == 0


def test_the_first_samples_score_a_tenth_and_ask_for_nothing() -> None:
    memory, context = memory_of(10), Colours()
    offer(memory, images(4), context)
    assert memory.store["score"].tolist() == pytest.approx([0.1] * 4)
    assert context.calls == []


def test_samples_that_find_free_slots_come_in_with_their_scores() -> None:
    memory, context = memory_of(50, subsets=3, subset_size=5), Colours()
    offer(memory, images(30), context)
    new = images(8, seed=1)
    offer(memory, new, context)
    (batches,) = context.calls
    parts, singles = batches[:3], batches[3:]
    assert [len(part) for part in parts] == [5, 5, 5]
    assert torch.equal(torch.cat(singles), new[:, :, 0, 0])
    stored = {tuple(row) for row in memory.store["image"][:30, :, 0, 0].tolist()}
    assert {tuple(row) for part in parts for row in part.tolist()} <= stored
    expected, _ = literal(torch.stack([p.double().mean(0) - 128 for p in parts]), new[:, :, 0, 0].double() - 128)
    assert memory.store["score"][30:].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("stored", "sizes"), [(1, [1]), (7, [7]), (25, [10, 10]), (200, [10] * 10)])
def test_a_small_memory_has_fewer_and_smaller_parts(stored: int, sizes: list[int]) -> None:
    memory, context = memory_of(300), Colours()
    offer(memory, images(stored), context)
    offer(memory, images(2, seed=1), context)
    assert [len(part) for part in context.calls[0]] == [*sizes, 1, 1]


def full(memory: Memory, scores: list[float]) -> dict[str, Tensor]:
    """A full memory with these scores, and one arriving row a slot that is novel and scores 0."""
    n = len(scores)
    memory.store.write(memory.store.extend(n), {"score": torch.tensor(scores), "born": torch.arange(n)})
    return {"score": torch.zeros(n), "novel": torch.ones(n, dtype=torch.bool)}


def test_a_batch_that_is_not_novel_is_refused() -> None:
    memory = memory_of(4)
    arriving = full(memory, [0.9, 0.5, 0.1, -0.3])
    assert (memory.keep_rule.place(memory.store, arriving, memory.generator) >= 0).any()
    arriving["novel"][:] = False
    assert memory.keep_rule.place(memory.store, arriving, memory.generator).tolist() == [-1] * 4


def test_novel_means_that_the_batch_lies_below_the_threshold() -> None:
    red = torch.tensor([255, 128, 128], dtype=torch.uint8).view(1, 3, 1, 1)
    cyan = torch.tensor([1, 128, 128], dtype=torch.uint8).view(1, 3, 1, 1)
    for picture, threshold, novel in ((red, 0.0, False), (cyan, 0.0, True), (red, 1.5, True), (cyan, -1.5, False)):
        memory = memory_of(3, threshold=threshold)
        offer(memory, red.expand(3, 3, 1, 1), Colours())
        rows = {"image": picture.expand(2, 3, 1, 1)}
        own = memory.keep_rule.annotate(memory.store, rows, memory.generator, Colours())
        assert own["novel"].tolist() == [novel, novel]


def candidate_frequencies(scores: list[float], trials: int = 3000) -> Tensor:
    """Which slot a single sample replaces; its own score of -1 makes replacing certain."""
    memory = memory_of(len(scores))
    full(memory, scores)
    arriving = {"score": torch.tensor([-1.0]), "novel": torch.tensor([True])}
    slots = torch.cat([memory.keep_rule.place(memory.store, arriving, memory.generator) for _ in range(trials)])
    assert bool((slots >= 0).all())
    return torch.bincount(slots, minlength=len(scores)) / trials


@pytest.mark.slow
def test_candidates_are_drawn_in_proportion_to_the_scaled_score() -> None:
    scores = [0.9, 0.1, -0.2, 0.4]
    scaled = [(c - min(scores)) / (max(scores) - min(scores) + 0.01) for c in scores]
    expected = torch.tensor([s / sum(scaled) for s in scaled])
    assert torch.allclose(candidate_frequencies(scores), expected, atol=0.03)
    assert not torch.allclose(candidate_frequencies(scores), expected.flip(0), atol=0.03)


@pytest.mark.slow
def test_equal_scores_are_candidates_alike() -> None:
    assert torch.allclose(candidate_frequencies([0.1] * 5), torch.full((5,), 0.2), atol=0.03)


@pytest.mark.parametrize(("old", "new"), [(0.8, -0.5), (-0.6, 0.9), (0.0, 0.0), (-1.0, -1.0), (-1.0, 0.3)])
@pytest.mark.slow
def test_a_sample_replaces_its_candidate_with_the_specified_probability(old: float, new: float) -> None:
    memory, trials = memory_of(1), 2500
    full(memory, [old])
    arriving = {"score": torch.tensor([new]), "novel": torch.tensor([True])}
    slots = torch.cat([memory.keep_rule.place(memory.store, arriving, memory.generator) for _ in range(trials)])
    total = (old + 1) + (new + 1)
    expected = (old + 1) / total if total else 0.5
    assert float((slots == 0).float().mean()) == pytest.approx(expected, abs=0.04)


def test_a_replaced_slot_has_the_newcomers_score() -> None:
    memory, context = memory_of(20, threshold=2.0), Colours()
    offer(memory, images(20), context)
    scores: list[float] = []
    for seed in range(1, 6):
        new = images(6, seed)
        slots = offer(memory, new, context)
        parts = torch.stack([part.double().mean(0) - 128 for part in context.calls[-1][:-6]])
        expected, _ = literal(parts, new[:, :, 0, 0].double() - 128)
        for slot, score in zip(slots.tolist(), expected, strict=True):
            if slot >= 0:
                scores.append(score)
                assert float(memory.store["score"][slot]) == pytest.approx(score, abs=1e-6)
    assert scores


def test_a_batch_larger_than_the_memory_fits() -> None:
    memory = memory_of(3, threshold=2.0)
    for seed in range(4):
        offer(memory, images(8, seed), Colours())
        assert len(memory) == 3


def test_without_a_context_it_says_what_is_missing() -> None:
    memory = memory_of(3)
    with pytest.raises(OcsslError, match="context"):
        memory.insert(images(2), torch.arange(2), {"loss": torch.zeros(2)})


def test_the_defaults_are_the_specifications() -> None:
    assert (Gss().subsets, Gss().subset_size, Gss().threshold) == (10, 10, 0.0)
