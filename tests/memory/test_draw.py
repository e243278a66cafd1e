"""Draw rules by statistics: the race has the distribution of drawing one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ocssl.errors import OcsslError
from ocssl.memory import DRAWS, Memory, Store
from ocssl.memory.draw import Draw, min_max
from ocssl.memory.keep import Fifo
from ocssl.memory.store import LONG, NO_TIER, SHORT, TIER


class Brightness:
    """A context whose loss increase is the first pixel."""

    def loss_increase(self, images: Tensor) -> Tensor:
        return images[:, 0, 0, 0].float()

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        raise AssertionError("draw rules ask for no gradients")


def store_with(draws: list[int] | Tensor, losses: list[float] | None = None) -> Store:
    counts = torch.as_tensor(draws)
    store = Store(len(counts), (3, 1, 1))
    loss = torch.tensor(losses) if losses else torch.zeros(len(counts))
    rows = {"draws": counts, "loss": loss, "born": torch.arange(len(counts))}
    store.write(store.extend(len(counts)), rows)
    return store


def first_draw_frequencies(rule: Draw, store: Store, trials: int = 20_000) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    first = torch.cat([rule.pick(store, 1, generator, None) for _ in range(trials)])
    return torch.bincount(first, minlength=len(store)) / trials


def softmax(values: list[float]) -> Tensor:
    weights = [math.exp(v) for v in values]
    return torch.tensor([w / sum(weights) for w in weights])


def close(frequencies: Tensor, probabilities: Tensor, trials: int = 20_000) -> bool:
    """Within five standard errors everywhere."""
    error = (probabilities * (1 - probabilities) / trials).sqrt()
    return bool(((frequencies - probabilities).abs() < 5 * error).all())


COUNTS = [0, 2, 4, 6, 10]


@pytest.mark.slow
def test_least_drawn_first_draws_follow_softmax_of_minus_the_scaled_count() -> None:
    frequencies = first_draw_frequencies(DRAWS.build("least-drawn"), store_with(COUNTS))
    assert close(frequencies, softmax([-c / 10 for c in COUNTS]))
    assert not close(frequencies, softmax([c / 10 for c in COUNTS]))  # the opposite sign would be caught
    assert not close(frequencies, torch.full((5,), 0.2))


@pytest.mark.slow
def test_a_lower_temperature_prefers_the_least_drawn_more() -> None:
    frequencies = first_draw_frequencies(DRAWS.build("least-drawn", {"temperature": 0.25}), store_with(COUNTS))
    assert close(frequencies, softmax([-4 * c / 10 for c in COUNTS]))


@pytest.mark.slow
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
    first = {int(rule.pick(store, 1, generator, None)) for _ in range(60)}
    assert first == {0, 1, 2}  # the preferred ones, all of them


@pytest.mark.slow
def test_high_loss_first_draws_follow_softmax_of_the_scaled_loss() -> None:
    losses = [-0.9, -0.5, -0.1, 0.0, 0.1]
    frequencies = first_draw_frequencies(DRAWS.build("high-loss"), store_with([0] * 5, losses))
    assert close(frequencies, softmax([loss + 0.9 for loss in losses]))


@pytest.mark.slow
def test_equal_counts_are_drawn_uniformly() -> None:
    frequencies = first_draw_frequencies(DRAWS.build("least-drawn"), store_with([7, 7, 7, 7]))
    assert close(frequencies, torch.full((4,), 0.25))


def test_uniform_draws_uniformly() -> None:
    assert close(first_draw_frequencies(DRAWS.build("uniform"), store_with(COUNTS)), torch.full((5,), 0.2))


@pytest.mark.slow
def test_ordered_pairs_are_as_likely_as_drawing_one_by_one_without_replacement() -> None:
    rule, store, trials = DRAWS.build("least-drawn"), store_with([0, 1, 2, 4]), 20_000
    p = softmax([-c / 4 for c in (0, 1, 2, 4)])
    generator = torch.Generator().manual_seed(1)
    drawn = torch.stack([rule.pick(store, 2, generator, None) for _ in range(trials)])
    pairs = list(itertools.permutations(range(4), 2))
    expected = torch.tensor([float(p[a] * p[b] / (1 - p[a])) for a, b in pairs])
    frequencies = torch.tensor([float(((drawn[:, 0] == a) & (drawn[:, 1] == b)).float().mean()) for a, b in pairs])
    assert close(frequencies, expected)


def test_inclusion_of_new_middle_and_old_slots_has_the_known_values() -> None:
    rule, store = DRAWS.build("least-drawn"), store_with(torch.arange(2000))
    generator = torch.Generator().manual_seed(2)
    counts = torch.zeros(2000)
    for _ in range(1500):
        counts[rule.pick(store, 128, generator, None)] += 1
    share = counts / 1500
    assert float(share[:100].mean()) == pytest.approx(0.101, abs=0.006)
    assert float(share[950:1050].mean()) == pytest.approx(0.063, abs=0.005)
    assert float(share[-100:].mean()) == pytest.approx(0.039, abs=0.004)


@pytest.mark.parametrize("name", list(DRAWS))
def test_a_draw_of_everything_is_every_slot_once(name: str) -> None:
    slots = DRAWS.build(name).pick(store_with(COUNTS), 5, torch.Generator().manual_seed(0), Brightness())
    assert sorted(slots.tolist()) == [0, 1, 2, 3, 4]


def test_min_max_of_equal_values_is_zero() -> None:
    assert min_max(torch.full((3,), 5.0), out=torch.empty(3, dtype=torch.float64)).tolist() == [0, 0, 0]


LOSSES, DRAWN = [-0.98, -0.7, -0.2, 0.1, -0.9], [3, 1, 2, 0, 5]


def priorities(
    losses: list[float], draws: list[int], mode: str = "proportional", alpha: float = 0.6, low: float = -1.0
) -> list[float]:
    """The specification's P, loop by loop."""
    highest = max(losses)
    seen = [highest if count == 0 else loss for loss, count in zip(losses, draws, strict=True)]
    if mode == "softmax":
        weights = [math.exp((loss - min(seen)) / (max(seen) - min(seen))) for loss in seen]
    else:
        weights = [max(loss - low + 1e-6, 1e-6) ** alpha for loss in seen]
    return [w / sum(weights) for w in weights]


def with_absolute_loss(losses: list[float], draws: list[int]) -> list[float]:
    """The known mistake: SimSiam's losses are negative, so that |loss| turns the order round."""
    return priorities([abs(loss) for loss in losses], draws, low=0.0)


@pytest.mark.parametrize("options", [{}, {"alpha": 1.5}, {"mode": "softmax"}, {"low": -2.0}])
@pytest.mark.slow
def test_per_draws_with_the_specified_probabilities(options: dict[str, Any]) -> None:
    frequencies = first_draw_frequencies(DRAWS.build("per", options), store_with(DRAWN, LOSSES), 4000)
    assert close(frequencies, torch.tensor(priorities(LOSSES, DRAWN, **options)), 4000)
    assert not close(frequencies, torch.tensor(with_absolute_loss(LOSSES, DRAWN)), 4000)


def test_per_prefers_higher_losses_also_where_all_are_negative() -> None:
    losses = [-0.99, -0.8, -0.6, -0.4, -0.1]
    frequencies = first_draw_frequencies(DRAWS.build("per"), store_with([1] * 5, losses), 4000)
    assert frequencies.argsort().tolist() == [0, 1, 2, 3, 4]


def importance(losses: list[float], draws: list[int], beta: float, **more: Any) -> list[float]:
    p = priorities(losses, draws, **more)
    weights = [(len(p) * each) ** -beta for each in p]
    return [w / max(weights) for w in weights]


def without_the_largest(losses: list[float], draws: list[int], beta: float) -> list[float]:
    return [(len(losses) * p) ** -beta for p in priorities(losses, draws)]


def over_the_drawn_alone(losses: list[float], draws: list[int], beta: float) -> list[float]:
    drawn = importance(losses, draws, beta)[1:]
    return [1.0, *(w / max(drawn) for w in drawn)]


def assert_weights(expected: Callable[..., list[float]], wanted_beta: float, **options: Any) -> None:
    rule, slots = DRAWS.build("per", options), torch.tensor([3, 1, 4])
    weights = rule.weigh(store_with(DRAWN, LOSSES), slots)
    mode = {"mode": options["mode"]} if "mode" in options else {}
    wanted = torch.tensor(expected(LOSSES, DRAWN, wanted_beta, **mode))[slots]
    torch.testing.assert_close(weights, wanted)


def test_per_weights_are_the_formula_divided_by_the_largest_in_the_memory() -> None:
    assert_weights(importance, 0.4)
    assert_weights(importance, 0.9, beta=0.9)
    assert_weights(importance, 0.4, mode="softmax")
    for broken in (without_the_largest, over_the_drawn_alone):
        with pytest.raises(AssertionError):
            assert_weights(broken, 0.4)


def test_per_beta_rises_to_one_over_the_given_arrivals_and_stays_there() -> None:
    assert_weights(importance, 0.4 + 0.6 * 5 / 8, anneal=8)
    assert_weights(importance, 1.0, anneal=5)
    assert_weights(importance, 1.0, anneal=3)


def test_per_without_importance_weighs_all_alike() -> None:
    rule = DRAWS.build("per", {"importance": False})
    assert not rule.weighs()
    assert rule.weigh(store_with(DRAWN, LOSSES), torch.tensor([0, 2])).tolist() == [1, 1]


def test_per_stays_finite_where_low_is_wrong_or_all_losses_are_equal() -> None:
    for losses in ([-5.0, -3.0, 0.2], [-1.0, -1.0, -1.0], [0.3, 0.3, 0.3]):
        for mode in ("proportional", "softmax"):
            rule, store = DRAWS.build("per", {"mode": mode, "low": 0.0}), store_with([1, 1, 1], losses)
            slots = rule.pick(store, 3, torch.Generator().manual_seed(0), None)
            weights = rule.weigh(store, slots)
            assert sorted(slots.tolist()) == [0, 1, 2]
            assert bool(torch.isfinite(weights).all())


def test_the_memory_hands_out_weights_as_they_were_before_the_draw_was_counted() -> None:
    store = store_with([0, 0, 1], [-0.9, -0.5, -0.2])
    rule = DRAWS.build("per")
    expected = rule.weigh(store, torch.arange(3))
    replay = Memory(store, Fifo(), rule, torch.Generator().manual_seed(0)).draw(3)
    assert torch.equal(replay.weight, expected[replay.slots])
    assert rule.weigh(store, torch.arange(3)).unique().numel() == 3  # counted now: each has a priority of its own


def store_of_pixels(pixels: list[int]) -> Store:
    store = Store(len(pixels), (3, 1, 1))
    images = torch.tensor(pixels, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 1, 1)
    store.write(store.extend(len(pixels)), {"image": images, "born": torch.arange(len(pixels))})
    return store


def highest(pixels: list[int], candidates: list[int], n: int) -> list[int]:
    """Candidates by falling score, of equal ones the lower slot first."""
    return sorted(candidates, key=lambda slot: (-pixels[slot], slot))[:n]


def lowest(pixels: list[int], candidates: list[int], n: int) -> list[int]:
    return sorted(candidates, key=lambda slot: (pixels[slot], slot))[:n]


PIXELS = [3, 9, 1, 9, 7, 9, 0, 7, 7, 2]


def test_mir_draws_the_candidates_whose_loss_would_rise_most() -> None:
    rule, generator = DRAWS.build("mir"), torch.Generator().manual_seed(0)
    for n in range(1, 10):
        slots = rule.pick(store_of_pixels(PIXELS), n, generator, Brightness()).tolist()
        assert slots == highest(PIXELS, list(range(10)), n)
        with pytest.raises(AssertionError):
            assert slots == lowest(PIXELS, list(range(10)), n)


def test_mir_looks_at_so_many_uniform_candidates_and_at_least_as_many_as_are_wanted() -> None:
    asked: list[list[int]] = []

    class Listens(Brightness):
        def loss_increase(self, images: Tensor) -> Tensor:
            asked.append(images[:, 0, 0, 0].tolist())
            return super().loss_increase(images)

    rule, generator = DRAWS.build("mir", {"candidates": 4}), torch.Generator().manual_seed(0)
    pixels = list(range(10))
    times = torch.zeros(10)
    for _ in range(1000):
        slots = rule.pick(store_of_pixels(pixels), 2, generator, Listens()).tolist()
        assert len(set(asked[-1])) == 4
        assert slots == highest(pixels, asked[-1], 2)
        times[asked[-1]] += 1
    assert close(times / 1000, torch.full((10,), 0.4), 1000)
    calls = len(asked)
    assert len(set(rule.pick(store_of_pixels(pixels), 7, generator, Listens()).tolist())) == 7
    assert len(asked) == calls  # all candidates are wanted: there is nothing to ask


def test_mir_without_a_context_says_what_is_missing() -> None:
    with pytest.raises(OcsslError, match="context"):
        DRAWS.build("mir").pick(store_of_pixels(PIXELS), 2, torch.Generator().manual_seed(0), None)


def tiered(long: int, short: int, none: int) -> Store:
    kinds = torch.tensor([LONG] * long + [SHORT] * short + [NO_TIER] * none)
    store = Store(len(kinds), (3, 1, 1), {TIER: 0})
    store.write(store.extend(len(kinds)), {TIER: kinds, "born": torch.arange(len(kinds))})
    return store


@pytest.mark.parametrize(
    ("held", "n", "drawn"),
    [
        ((10, 10, 5), 8, (4, 4, 0)),
        ((10, 10, 5), 7, (3, 4, 0)),
        ((2, 10, 5), 8, (2, 6, 0)),
        ((10, 2, 5), 8, (6, 2, 0)),
        ((0, 0, 5), 3, (0, 0, 3)),
        ((2, 2, 5), 7, (2, 2, 3)),
        ((10, 10, 5), 25, (10, 10, 5)),
    ],
)
def test_tiers_are_drawn_half_and_half_and_fill_in_for_each_other(
    held: tuple[int, int, int], n: int, drawn: tuple[int, int, int]
) -> None:
    store, generator = tiered(*held), torch.Generator().manual_seed(0)
    for _ in range(20):
        slots = DRAWS.build("tiers").pick(store, n, generator, None)
        assert len(slots.unique()) == len(slots) == n
        kinds = store[TIER][slots]
        assert tuple(int((kinds == kind).sum()) for kind in (LONG, SHORT, NO_TIER)) == drawn


def test_tiers_are_uniform_in_each_and_in_the_shares_that_were_asked_for() -> None:
    store, generator, trials = tiered(4, 8, 3), torch.Generator().manual_seed(0), 4000
    rule = DRAWS.build("tiers", {"long": 0.25})
    slots = torch.cat([rule.pick(store, 4, generator, None) for _ in range(trials)])
    wanted = torch.tensor([1 / 4] * 4 + [3 / 8] * 8 + [0.0] * 3)
    assert close(torch.bincount(slots, minlength=15)[:12] / trials, wanted[:12], trials)
    assert not (slots >= 12).any()


def test_a_memory_without_tiers_is_drawn_from_uniformly() -> None:
    store = store_with([0] * 5)
    picked = (DRAWS.build(name).pick(store, 3, torch.Generator().manual_seed(4), None) for name in ("tiers", "uniform"))
    assert torch.equal(*picked)
