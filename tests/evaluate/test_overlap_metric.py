"""Overlap of hyperballs against the literal double loop: exact counts, also where float32 cannot tell."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_latent import (
    PRECISIONS,
    TOLERANCE,
    angle,
    cloud,
    literal_count,
    literal_count_from,
    literal_overlap,
    literal_theta,
    mean_view,
)

from ocssl.evaluate import feature_arrays, overlap, overlap_count, overlap_count_from, overlap_metric, sample_angles


@PRECISIONS
def test_overlap_is_the_literal_difference_of_angles(dtype):
    for seed in range(5):
        a, b = cloud(1, 4, 6, seed=seed, dtype=dtype)[0], cloud(1, 3, 6, seed=seed + 50, dtype=dtype)[0]
        assert overlap(a, b) == pytest.approx(literal_overlap(a, b), abs=TOLERANCE[dtype])


def test_the_overlap_oracle_tells_the_mean_of_unit_views_apart():
    a, b = cloud(1, 4, 6, seed=1)[0], cloud(1, 4, 6, seed=2)[0]
    unit_a, unit_b = (s / np.linalg.norm(s, axis=1, keepdims=True) for s in (a, b))
    wrong = literal_theta(a) + literal_theta(b) - angle(mean_view(unit_a), mean_view(unit_b))
    assert abs(wrong - literal_overlap(a, b)) > 1e-3


def test_overlap_of_a_sample_with_itself_is_twice_its_angle():
    views = cloud(1, 5, 4)[0]
    assert overlap(views, views) == pytest.approx(2 * literal_theta(views), abs=1e-12)


@PRECISIONS
@pytest.mark.parametrize(("n", "v", "d", "spread"), [(12, 2, 3, 0.5), (10, 5, 8, 0.8), (9, 3, 2, 3.0), (2, 4, 5, 0.6)])
def test_overlap_count_is_the_literal_share_of_pairs(dtype, n, v, d, spread):
    views = cloud(n, v, d, spread, dtype=dtype)
    off = literal_count(views)
    assert overlap_count(views) == pytest.approx(off, abs=1e-12)
    assert overlap_count(views, include_diagonal=True) == pytest.approx((off * n * (n - 1) + n) / n**2, abs=1e-12)


def test_the_count_oracle_tells_the_diagonal_and_the_full_angle_apart():
    views = cloud(12, 2, 3, 0.3)
    want = literal_count(views)
    means = views.mean(1)
    assert 0 < want < 1
    assert overlap_count(views, include_diagonal=True) != pytest.approx(want, abs=1e-3)
    assert overlap_count_from(means, 2 * sample_angles(views)) != pytest.approx(want, abs=1e-3)


def ball(direction, half):
    """Two views in the plane at half an angle either side of a direction: theta = half, the mean on the direction."""
    return [[math.cos(direction + s * half), math.sin(direction + s * half)] for s in (-1, 1)]


def test_three_hand_made_balls():
    views = np.array([ball(0.0, 0.3), ball(0.5, 0.25), ball(1.5, 0.2)])
    np.testing.assert_allclose(sample_angles(views), [0.3, 0.25, 0.2], atol=1e-12)
    assert overlap(views[0], views[1]) == pytest.approx(0.05, abs=1e-12)
    assert overlap(views[1], views[2]) == pytest.approx(-0.55, abs=1e-12)
    assert overlap_count(views) == pytest.approx(2 / 6)
    assert overlap_count(views, include_diagonal=True) == pytest.approx(5 / 9)


def test_angle_sums_above_pi_always_overlap():
    means = np.array([[1.0, 0.0], [-1.0, 0.0], [-1.0, 1e-3], [0.0, -1.0]])
    angles = np.array([2.0, 1.5, 0.1, 3.0])
    want = literal_count_from(means, angles)
    assert overlap_count_from(means, angles) == pytest.approx(want)
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    hits = unit @ unit.T > np.cos(angles[:, None] + angles)  # the cosine rule without its limit
    assert (hits.sum() - np.trace(hits)) / 12 != pytest.approx(want)


def test_pairs_nearer_than_float32_can_tell_are_decided_right(monkeypatch):
    turns = np.arange(400) * 1e-4 * (1 + 1e-9)  # neighbours at 1e-4, many pairs within a float32 rounding of touching
    means = np.stack([np.cos(turns), np.sin(turns), np.zeros_like(turns)], 1)
    angles = np.full(400, 1.5e-4)  # the 2 neighbours on each side overlap, the third only touches from outside
    want = 2 * (399 + 398) / (400 * 399)
    assert overlap_count_from(means, angles) == pytest.approx(want, abs=1e-12)
    monkeypatch.setattr(overlap_metric, "_ROUNDING", 0.0)  # float32 alone
    assert overlap_count_from(means, angles) != pytest.approx(want, abs=1e-3)


@pytest.mark.slow
def test_one_pair_nearer_than_float32_can_tell_is_decided_right(monkeypatch):
    rng = np.random.default_rng(0)
    means, angles = rng.normal(size=(200, 8)), rng.uniform(0, 0.8, size=200)
    counts = []
    for rounding in (overlap_metric._ROUNDING, 0.0):
        monkeypatch.setattr(overlap_metric, "_ROUNDING", rounding)
        for gap in (-1e-9, 1e-9):
            angles[:2] = 0.3, angle(means[0], means[1]) - 0.3 + gap
            counts.append(overlap_count_from(means, angles))
            assert rounding == 0 or counts[-1] == pytest.approx(literal_count_from(means, angles), abs=1e-12)
    assert counts[1] - counts[0] == pytest.approx(2 / (200 * 199))
    assert counts[2] == counts[3]  # float32 alone cannot tell them apart


def test_a_collapsed_encoder_overlaps_nowhere_as_its_balls_have_no_size():
    for seed in range(20):  # some unit vectors are longer than 1 by a rounding
        constant = np.tile(np.random.default_rng(seed).normal(size=64).astype(np.float32), (50, 3, 1))
        assert overlap_count(constant) == 0
        assert overlap_count(constant, include_diagonal=True) == 0  # Ov = 2 theta = 0 is not above 0


def test_one_sample_has_no_pair():
    views = cloud(1, 3, 4)
    assert overlap_count(views) == 0.0
    assert overlap_count(views, include_diagonal=True) == 1.0


NICE = [0.0, math.pi / 8, math.pi / 4, math.pi / 3, math.pi / 2, 3.0, math.pi]


@settings(max_examples=60, deadline=None)
@given(
    corners=st.lists(st.tuples(*[st.integers(-1, 2)] * 3), min_size=2, max_size=12),
    data=st.data(),
    single=st.booleans(),
    block=st.sampled_from([1, 2, 5, 1024]),
)
@pytest.mark.slow
def test_ties_touching_balls_zeros_duplicates_and_extreme_lengths_are_counted_exactly(corners, data, single, block):
    n = len(corners)
    power = 30 if single else 250
    lengths = 10.0 ** np.array(data.draw(st.lists(st.integers(-power, power), min_size=n, max_size=n)))
    angles = np.array(data.draw(st.lists(st.sampled_from(NICE), min_size=n, max_size=n)))
    means = (np.array(corners, dtype=float) * lengths[:, None]).astype(np.float32 if single else np.float64)
    want = literal_count_from(means, angles, touching=1e-6)  # a float32 cannot hold the lengths exactly
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_arrays, "ROWS", block)
        assert overlap_count_from(means, angles) == pytest.approx(want, abs=1e-12)


def test_the_touching_oracle_tells_a_count_without_its_tie_rule_apart(monkeypatch):
    means = np.eye(3)[[0, 1, 2, 0]] * np.array([[1], [3], [0.1], [7]])
    angles = np.full(4, math.pi / 4)  # at right angles they touch; only the first and the last overlap
    assert overlap_count_from(means, angles) == literal_count_from(means, angles, touching=1e-6) == 2 / 12
    monkeypatch.setattr(overlap_metric, "_TIE", -1e-14)
    assert overlap_count_from(means, angles) == 1


@pytest.mark.parametrize("kind", ["alike", "doubled", "ReLU", "wide"])
@pytest.mark.slow
def test_blocks_in_doubt_as_a_whole_in_part_and_not_at_all_are_counted_like_float64(monkeypatch, kind):
    rng = np.random.default_rng(3)
    means = rng.normal(size=(150, 700 if kind == "wide" else 24)).astype(np.float32)
    angles = rng.uniform(0, 0.9, size=150)
    if kind == "alike":  # every pair is in doubt: nearly one point, nearly no radius
        means, angles = means[:1] + 1e-6 * means, 1e-6 * angles
    elif kind == "doubled":
        means, angles = np.repeat(means[:75], 2, axis=0), np.where(np.arange(150) % 4, angles, 0)
    elif kind == "ReLU":
        means = np.maximum(means, 0)
    unit = means.astype(np.float64) / np.linalg.norm(means.astype(np.float64), axis=1, keepdims=True)
    chord = np.linalg.norm(unit[:, None] - unit, axis=2)
    reach = angles[:, None] + angles - 2 * np.arcsin(chord / 2)
    clear = abs(reach) > 1e-7  # nearer than that a cosine of float64 cannot tell
    np.fill_diagonal(clear, False)
    for rows in (32, 1024):
        monkeypatch.setattr(feature_arrays, "ROWS", rows)
        got = overlap_count_from(means, angles) * 150 * 149
        assert (reach[clear] > 0).sum() <= round(got) <= (reach[clear] > 0).sum() + (~clear).sum() - 150
        if kind in ("ReLU", "wide"):
            assert clear.sum() == 150 * 149


def test_products_that_torch_may_round_to_fewer_digits_are_not_trusted(monkeypatch):
    means, angles = cloud(60, 1, 8)[:, 0].astype(np.float32), np.random.default_rng(1).uniform(0, 0.5, size=60)
    want = literal_count_from(means, angles)
    assert overlap_count_from(means, angles) == pytest.approx(want, abs=1e-12)
    right = torch.mm

    def coarse(a, b, *, out):
        return out.copy_(right(a.bfloat16().float(), b.bfloat16().float()))

    monkeypatch.setattr(torch, "mm", coarse)
    assert overlap_count_from(means, angles) != pytest.approx(want, abs=1e-12)
    monkeypatch.setattr(feature_arrays, "float32_products", lambda device: False)
    assert overlap_count_from(means, angles) == pytest.approx(want, abs=1e-12)


@PRECISIONS
def test_overlap_of_views_with_zeros_duplicates_and_extreme_lengths_is_the_literal_share(dtype):
    power = 1 if dtype == np.float32 else 5
    views = cloud(14, 3, 4, 0.7, dtype=np.float64)
    views[3] = 0
    views[5, 1] = 0
    views[7:9] = views[1:3]
    views[9] *= 10.0 ** (30 * power)
    views[10] *= 10.0 ** (-30 * power)
    views[11] = views[11, :1]  # no angle
    views = views.astype(dtype)
    want = literal_count(views)
    assert 0 < want < 1
    assert overlap_count(views) == pytest.approx(want, abs=1e-12)
    assert overlap_count_from(views.mean(1, dtype=np.float64), [literal_theta(s) for s in views]) == pytest.approx(want)
