"""Facts about the detector of Latent Rehearsal Decay: both signs are needed, for long enough, and beyond noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ocssl.results import latent_decay
from ocssl.results.latent_decay import Decay, find_decay, median_phase

PLACES = [10.0 * i for i in range(1, 11)]
STEADY = [0.5] * 10
FALLING_DEVIATION = [0.5, 0.5, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
LEARNING = [20.0, 30, 38, 44, 48, 50, 51, 52, 53, 54]
DROPPING = [20.0, 30, 38, 44, 48, 46, 43, 39, 35, 30]
GOOD_OVERLAP = [0.40, 0.30, 0.25, 0.22, 0.20, 0.19, 0.18, 0.17, 0.17, 0.17]
BAD_OVERLAP = [0.40, 0.30, 0.25, 0.22, 0.20, 0.22, 0.28, 0.34, 0.40, 0.45]

LENGTHS = (5, 10, 20, 50)
NOISES = [(points, share) for points in (0.3, 1.0, 2.0) for share in (0.005, 0.02, 0.05)]
RUNS = 100  # of each kind, length and noise

Curves = tuple[np.ndarray, np.ndarray]


def by_hand(overlap: list[float], accuracy: list[float], part: float) -> list[int]:
    """Evaluations with both signs at so much of their thresholds, looked up one by one from the beginning."""
    found = []
    noise = []
    for v in (overlap, accuracy):
        bends = sorted(abs(v[i] - 2 * v[i + 1] + v[i + 2]) for i in range(len(v) - 2))
        noise.append(3.25 * bends[(len(bends) - 1) // 2] / (0.67449 * 6**0.5))
    for i in range(2, len(overlap)):
        over, acc = (sum(v[i - 2 : i + 1]) / 3 for v in (overlap, accuracy))
        lowest = min(sum(overlap[k - 2 : k + 1]) / 3 for k in range(2, i + 1))
        highest = max(sum(accuracy[k - 2 : k + 1]) / 3 for k in range(2, i + 1))
        if over - lowest >= part * max(0.1 * lowest, 0.005, noise[0]) and highest - acc >= part * max(1, noise[1]):
            found.append(i)
    return found


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_decay_begins_where_both_signs_are_half_there_before_they_stay(before: int) -> None:
    overlap, accuracy = [0.4] * before + BAD_OVERLAP, [20.0] * before + DROPPING
    whole, half = (by_hand(overlap, accuracy, part) for part in (1, 0.5))
    first = next(i for i in whole if i + 1 in whole)
    while first - 1 in half:
        first -= 1
    n = len(overlap)
    assert find_decay(range(n), [None] * n, overlap, accuracy) == Decay(first, n - 1, True, None)
    assert before + 4 < first < n - 1


def test_the_fall_of_deviation_before_a_decay_is_found() -> None:
    assert find_decay(PLACES, FALLING_DEVIATION, BAD_OVERLAP, DROPPING) == Decay(80.0, 100.0, True, 40.0)


@pytest.mark.parametrize(
    ("overlap", "accuracy"),
    [(GOOD_OVERLAP, LEARNING), (BAD_OVERLAP, LEARNING), (GOOD_OVERLAP, DROPPING)],
    ids=["well", "overlap alone", "accuracy alone"],
)
def test_one_sign_alone_is_no_decay(overlap: list[float], accuracy: list[float]) -> None:
    assert find_decay(PLACES, FALLING_DEVIATION, overlap, accuracy) is None


def test_one_bad_evaluation_is_no_decay() -> None:
    overlap, accuracy = GOOD_OVERLAP.copy(), LEARNING.copy()
    overlap[6], accuracy[6] = 0.24, 45.0
    assert find_decay(PLACES, STEADY, overlap, accuracy) is None


def test_a_decay_that_ends_says_when() -> None:
    overlap = [0.2, 0.2, 0.2, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2]
    accuracy = [40.0, 40, 40, 20, 20, 20, 20, 45, 50, 50]
    assert find_decay(PLACES, STEADY, overlap, accuracy) == Decay(40.0, 80.0, False, None)


@pytest.mark.parametrize("drop", range(3, 9))
def test_a_sudden_decay_does_not_begin_before_it_is_there(drop: int) -> None:
    overlap = [0.2] * drop + [0.4] * (10 - drop)
    accuracy = [40.0] * drop + [20.0] * (10 - drop)
    found = find_decay(PLACES, STEADY, overlap, accuracy)
    assert found is not None
    assert found.start == PLACES[drop]


def test_packing_needs_a_deep_fall_of_deviation() -> None:
    shallow = [0.5 - 0.001 * i for i in range(10)]
    noisy = [0.5, 0.4, 0.6, 0.4, 0.6, 0.4, 0.3, 0.2, 0.6, 0.4]
    for deviation in (STEADY, shallow, noisy, [None] * 10):
        found = find_decay(PLACES, deviation, BAD_OVERLAP, DROPPING)
        assert found is not None
        assert found.packing is None


@pytest.mark.parametrize("gone", [1, 2, 3, 10])
def test_evaluations_without_numbers_are_passed_over(gone: int) -> None:
    overlap = [None] * gone + BAD_OVERLAP[gone:]
    found = find_decay(PLACES, STEADY, overlap, DROPPING)
    assert (found is None) == (gone == 10)
    for short in range(5):
        assert find_decay(PLACES[:short], STEADY[:short], BAD_OVERLAP[:short], DROPPING[-short:][:short]) is None


def test_a_method_decays_if_most_seeds_do() -> None:
    one, two = Decay(40.0, 100.0, True, 20.0), Decay(60.0, 100.0, True, None)
    assert median_phase([one, two, None]) == Decay(50.0, 100.0, True, 20.0)
    assert median_phase([one, None]) is None
    assert median_phase([]) is None


def without_decay(kind: str, length: int) -> Curves:
    """Accuracy and Overlap of a run that is well, or has one sign only."""
    done = np.arange(1, length + 1) / length
    learned = 1 - np.exp(-5 * done)
    return {
        "flat": (np.full(length, 40.0), np.full(length, 0.2)),
        "rising": (40 * learned, 0.4 - 0.2 * learned),
        "rising with Overlap": (20 + 5 * done, 0.2 + 0.4 * done),
        "falling alone": (40 - 20 * done, np.full(length, 0.2)),
    }[kind]


def with_decay(kind: str, length: int) -> Curves:
    """In the second half, accuracy falls by a fifth of its peak and Overlap rises by 0.15, after what `kind` says."""
    half = length // 2
    ill = np.concatenate([np.zeros(half), np.arange(1, length - half + 1) / (length - half)])
    before = np.minimum(1, np.arange(1, length + 1) / half)
    return {
        "flat": (40 - 8 * ill, 0.2 + 0.15 * ill),
        "learning": (20 + 20 * before - 8 * ill, 0.4 - 0.2 * before + 0.15 * ill),
        "sudden": (40 - 8 * np.ceil(ill), 0.2 + 0.15 * np.ceil(ill)),
    }[kind]


def phases(curves: Curves, points: float, share: float, runs: int = RUNS) -> Iterator[Decay | None]:
    """What is found in these curves with noise, in the unit of evaluations from 0."""
    chance, length = np.random.default_rng(0), len(curves[0])
    for _ in range(runs):
        accuracy = curves[0] + chance.normal(0, points, length)
        overlap = curves[1] + chance.normal(0, share, length)
        yield find_decay(range(length), [None] * length, overlap.tolist(), accuracy.tolist())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["flat", "rising"])
def test_noise_is_no_decay(kind: str, length: int) -> None:
    for points, share in NOISES:
        marked = sum(found is not None for found in phases(without_decay(kind, length), points, share))
        assert marked < 0.05 * RUNS, (points, share)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["rising with Overlap", "falling alone"])
def test_noise_does_not_make_up_for_the_other_sign(kind: str, length: int) -> None:
    found = [found for noise in NOISES for found in phases(without_decay(kind, length), *noise)]
    assert sum(phase is not None for phase in found) < 0.05 * len(found)


@pytest.mark.parametrize("kind", ["flat", "learning", "sudden"])
def test_decay_is_found_in_noise_and_not_long_after_it_began(kind: str) -> None:
    found = [phase for phase in phases(with_decay(kind, 20), 0.5, 0.02, 300) if phase]
    late = np.array([phase.start - 10 for phase in found])
    assert len(found) > 0.9 * 300
    assert np.mean(late < 0) <= 0.02
    assert np.mean(late > 5) <= 0.05
    assert np.median(late) <= (0 if kind == "sudden" else 3)


def test_a_rule_that_knows_no_noise_marks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent_decay, "NOISES", 0.0)
    marked = sum(found is not None for found in phases(without_decay("flat", 20), 1.0, 0.02))
    assert marked > 0.2 * RUNS
