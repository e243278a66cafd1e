"""Facts about the detector of Latent Rehearsal Decay: both signs are needed, and for long enough."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ocssl.report.decay import Decay, find_decay, together

PLACES = [10.0 * i for i in range(1, 11)]
STEADY = [0.5] * 10
FALLING_DEVIATION = [0.5, 0.5, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
LEARNING = [20.0, 30, 38, 44, 48, 50, 51, 52, 53, 54]
DROPPING = [20.0, 30, 38, 44, 48, 46, 43, 39, 35, 30]
GOOD_OVERLAP = [0.40, 0.30, 0.25, 0.22, 0.20, 0.19, 0.18, 0.17, 0.17, 0.17]
BAD_OVERLAP = [0.40, 0.30, 0.25, 0.22, 0.20, 0.22, 0.28, 0.34, 0.40, 0.45]


def by_hand(overlap: list[float], accuracy: list[float]) -> list[int]:
    """Evaluations with both signs, looked up one by one from the beginning."""
    found = []
    for i in range(10):
        smooth = [
            [sum(v[max(0, k - 1) : k + 2]) / len(v[max(0, k - 1) : k + 2]) for k in range(10)]
            for v in (overlap, accuracy)
        ]
        lowest, highest = min(smooth[0][: i + 1]), max(smooth[1][: i + 1])
        if smooth[0][i] - lowest >= max(0.1 * lowest, 0.005) and highest - smooth[1][i] >= 1:
            found.append(i)
    return found


def test_decay_begins_where_both_signs_are_there_for_two_evaluations() -> None:
    signs = by_hand(BAD_OVERLAP, DROPPING)
    first = next(a for a, b in pairwise(signs) if b == a + 1)
    assert find_decay(PLACES, FALLING_DEVIATION, BAD_OVERLAP, DROPPING) == Decay(PLACES[first], 100.0, True, 30.0)
    assert PLACES[first] == 70.0


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
    assert find_decay(PLACES, STEADY, overlap, accuracy) == Decay(30.0, 80.0, False, None)


def test_packing_needs_a_deep_fall_of_deviation() -> None:
    shallow = [0.5 - 0.001 * i for i in range(10)]
    for deviation in (STEADY, shallow, [None] * 10):
        found = find_decay(PLACES, deviation, BAD_OVERLAP, DROPPING)
        assert found is not None
        assert found.packing is None


@pytest.mark.parametrize("gone", [1, 2, 3, 10])
def test_evaluations_without_numbers_are_passed_over(gone: int) -> None:
    overlap = [None] * gone + BAD_OVERLAP[gone:]
    found = find_decay(PLACES, STEADY, overlap, DROPPING)
    assert (found is None) == (gone == 10)
    assert find_decay([], [], [], []) is None


def test_a_method_decays_if_most_seeds_do() -> None:
    one, two = Decay(40.0, 100.0, True, 20.0), Decay(60.0, 100.0, True, None)
    assert together([one, two, None]) == Decay(50.0, 100.0, True, 20.0)
    assert together([one, None]) is None
    assert together([]) is None
