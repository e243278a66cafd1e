"""Draw rules by statistics: the race has the distribution of drawing one by one."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from ocssl.memory import DRAWS, Store
from ocssl.memory.draw import Draw, min_max


def store_with(draws: list[int] | Tensor, losses: list[float] | None = None) -> Store:
    counts = torch.as_tensor(draws)
    store = Store(len(counts), (3, 1, 1))
    loss = torch.tensor(losses) if losses else torch.zeros(len(counts))
    rows = {"draws": counts, "loss": loss, "born": torch.arange(len(counts))}
    store.write(torch.arange(len(counts)), rows)
    return store


def first_draw_frequencies(rule: Draw, store: Store, trials: int = 20_000) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    first = torch.cat([rule.pick(store, 1, generator) for _ in range(trials)])
    return torch.bincount(first, minlength=len(store)) / trials


def softmax(values: list[float]) -> Tensor:
    weights = [math.exp(v) for v in values]
    return torch.tensor([w / sum(weights) for w in weights])


def close(frequencies: Tensor, probabilities: Tensor, trials: int = 20_000) -> bool:
    """Within five standard errors everywhere."""
    error = (probabilities * (1 - probabilities) / trials).sqrt()
    return bool(((frequencies - probabilities).abs() < 5 * error).all())


COUNTS = [0, 2, 4, 6, 10]


def test_least_drawn_first_draws_follow_softmax_of_minus_the_scaled_count() -> None:
    frequencies = first_draw_frequencies(DRAWS.build("least-drawn"), store_with(COUNTS))
    assert close(frequencies, softmax([-c / 10 for c in COUNTS]))
    assert not close(frequencies, softmax([c / 10 for c in COUNTS]))  # the opposite sign would be caught
    assert not close(frequencies, torch.full((5,), 0.2))


def test_a_lower_temperature_prefers_the_least_drawn_more() -> None:
    frequencies = first_draw_frequencies(DRAWS.build("least-drawn", {"temperature": 0.25}), store_with(COUNTS))
    assert close(frequencies, softmax([-4 * c / 10 for c in COUNTS]))


def test_one_minus_softmax_is_the_pseudo_codes_formula() -> None:
    frequencies = first_draw_frequencies(
        DRAWS.build("least-drawn", {"probability": "one-minus-softmax"}), store_with(COUNTS)
    )
    weights = 1 - softmax([c / 10 for c in COUNTS])
    assert close(frequencies, weights / weights.sum())


@pytest.mark.parametrize("name", ["least-drawn", "high-loss"])
def test_a_very_low_temperature_is_neither_stuck_nor_infinite(name: str) -> None:
    store = store_with([0, 0, 0, 5, 9], [0.9, 0.9, 0.9, 0.1, 0.0])
    rule, generator = DRAWS.build(name, {"temperature": 1e-6}), torch.Generator().manual_seed(0)
    first = {int(rule.pick(store, 1, generator)) for _ in range(60)}
    assert first == {0, 1, 2}  # the preferred ones, all of them


def test_high_loss_first_draws_follow_softmax_of_the_scaled_loss() -> None:
    losses = [-0.9, -0.5, -0.1, 0.0, 0.1]
    frequencies = first_draw_frequencies(DRAWS.build("high-loss"), store_with([0] * 5, losses))
    assert close(frequencies, softmax([loss + 0.9 for loss in losses]))


def test_equal_counts_are_drawn_uniformly() -> None:
    frequencies = first_draw_frequencies(DRAWS.build("least-drawn"), store_with([7, 7, 7, 7]))
    assert close(frequencies, torch.full((4,), 0.25))


def test_uniform_draws_uniformly() -> None:
    assert close(first_draw_frequencies(DRAWS.build("uniform"), store_with(COUNTS)), torch.full((5,), 0.2))


def test_ordered_pairs_are_as_likely_as_drawing_one_by_one_without_replacement() -> None:
    rule, store, trials = DRAWS.build("least-drawn"), store_with([0, 1, 2, 4]), 20_000
    p = softmax([-c / 4 for c in (0, 1, 2, 4)])
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([rule.pick(store, 2, generator) for _ in range(trials)])
    pairs = list(itertools.permutations(range(4), 2))
    expected = torch.tensor([float(p[a] * p[b] / (1 - p[a])) for a, b in pairs])
    frequencies = torch.tensor([float(((drawn[:, 0] == a) & (drawn[:, 1] == b)).float().mean()) for a, b in pairs])
    assert close(frequencies, expected)


def test_inclusion_of_new_middle_and_old_slots_has_the_known_values() -> None:
    rule, store = DRAWS.build("least-drawn"), store_with(torch.arange(2000))
    generator = torch.Generator().manual_seed(2)
    counts = torch.zeros(2000)
    for _ in range(1500):
        counts[rule.pick(store, 128, generator)] += 1
    share = counts / 1500
    assert float(share[:100].mean()) == pytest.approx(0.101, abs=0.006)
    assert float(share[950:1050].mean()) == pytest.approx(0.063, abs=0.005)
    assert float(share[-100:].mean()) == pytest.approx(0.039, abs=0.004)


@pytest.mark.parametrize("name", list(DRAWS))
def test_a_draw_of_everything_is_every_slot_once(name: str) -> None:
    slots = DRAWS.build(name).pick(store_with(COUNTS), 5, torch.Generator().manual_seed(0))
    assert sorted(slots.tolist()) == [0, 1, 2, 3, 4]


def test_min_max_of_equal_values_is_zero() -> None:
    assert min_max(torch.full((3,), 5.0), out=torch.empty(3, dtype=torch.float64)).tolist() == [0, 0, 0]
