"""Deviation, angles, alignment and uniformity against literal formulas, which tell wrong variants apart."""

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
    cosine,
    direction,
    literal_alignment,
    literal_deviation,
    literal_theta,
    literal_uniformity,
    turned,
)

from ocssl.evaluate import (
    deviation,
    feature_arrays,
    latent_metrics,
    overlap,
    overlap_count,
    sample_angles,
    spectrum,
    uniformity,
)
from ocssl.evaluate.latent_metrics import alignment


@PRECISIONS
@pytest.mark.parametrize("shape", [(5, 2, 3), (4, 20, 16), (3, 1, 4), (1, 7, 2)])
def test_deviation_is_the_literal_double_sum(dtype, shape):
    views = cloud(*shape, dtype=dtype)
    want = [literal_deviation(sample) for sample in views]
    np.testing.assert_allclose(deviation(views, per_sample=True), want, atol=TOLERANCE[dtype])
    assert deviation(views) == pytest.approx(np.mean(want), abs=TOLERANCE[dtype])
    assert isinstance(deviation(views), float)
    assert deviation(views, per_sample=True).dtype == dtype


def test_the_deviation_oracle_tells_wrong_variants_apart():
    views = cloud(1, 4, 6)[0]
    want = literal_deviation(views)
    distinct = sum(1 - cosine(a, b) for i, a in enumerate(views) for b in views[i + 1 :]) / 6
    not_normalised = 1 - np.square(views.mean(0)).sum()
    of_the_mean = 1 - np.square(np.mean([v / np.linalg.norm(v) for v in views], axis=0)).sum() ** 0.5
    for wrong in (distinct, not_normalised, of_the_mean):
        assert abs(wrong - want) > 1e-3
    assert deviation(views[None]) == pytest.approx(want, abs=1e-12)


@PRECISIONS
@pytest.mark.parametrize("shape", [(5, 2, 3), (4, 20, 16), (3, 1, 4)])
def test_theta_is_the_literal_mean_over_ordered_pairs(dtype, shape):
    views = cloud(*shape, dtype=dtype)
    theta = sample_angles(views)
    np.testing.assert_allclose(theta, [literal_theta(sample) for sample in views], atol=TOLERANCE[dtype])
    assert theta.dtype == dtype


def test_two_views_give_half_their_angle_and_the_oracle_tells_the_full_angle_apart():
    views = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert literal_theta(views) == pytest.approx(math.pi / 4)
    assert sample_angles(views[None])[0] == pytest.approx(math.pi / 4, abs=1e-12)
    assert abs(angle(*views) - literal_theta(views)) > 0.5  # the mean over distinct pairs


@pytest.mark.parametrize("tiny", [1e-3, 1e-5, 1e-7])
def test_theta_keeps_its_digits_for_nearly_parallel_and_nearly_opposite_views(tiny):
    near = torch.tensor([[[1.0, 0.0], [1.0, tiny]]])
    assert sample_angles(near)[0] == pytest.approx(math.atan(tiny) / 2, rel=1e-5)
    opposite = torch.tensor([[[1.0, 0.0], [-1.0, tiny]]])
    assert sample_angles(opposite)[0] == pytest.approx((math.pi - tiny) / 2, abs=2e-7)
    assert math.acos(np.float32(1) / np.sqrt(np.float32(1) + np.float32(1e-5) ** 2)) == 0  # what arccos would see


@PRECISIONS
def test_identical_views_and_single_views_have_no_angle_and_no_deviation(dtype):
    same = np.repeat(cloud(6, 1, 9, dtype=dtype), 5, axis=1)
    assert (sample_angles(same) == 0).all()
    assert deviation(same) < 1e-15
    assert (sample_angles(same[:, :1]) == 0).all()
    assert deviation(same[:, :1]) == 0


@pytest.mark.parametrize("block", [1, 3, 7, 64])
def test_blocks_of_any_size_give_the_same_numbers(monkeypatch, block):
    views, features = cloud(23, 4, 5, 0.6), cloud(23, 1, 5)[:, 0]
    before = deviation(views), overlap_count(views), overlap_count(views, True), uniformity(features)
    angles = sample_angles(views)
    monkeypatch.setattr(feature_arrays, "ROWS", block)
    monkeypatch.setattr(feature_arrays, "BLOCK", block * 20)
    np.testing.assert_allclose(sample_angles(views), angles, atol=1e-14)
    after = deviation(views), overlap_count(views), overlap_count(views, True), uniformity(features)
    assert after == pytest.approx(before, abs=1e-12)


def test_zero_views_stand_at_right_angles_and_stay_finite():
    zero, one = np.zeros((2, 3)), np.tile([1.0, 0, 0], (2, 1))
    views = np.stack([zero, one])
    np.testing.assert_allclose(deviation(views, per_sample=True), [1, 0], atol=1e-15)
    np.testing.assert_allclose(sample_angles(views), [math.pi / 4, 0], atol=1e-15)
    assert overlap(zero, one) == pytest.approx(-math.pi / 4)
    assert overlap_count(views) == 0
    assert overlap(zero, zero) == pytest.approx(0, abs=1e-12)
    assert math.isfinite(uniformity(views[:, 0]))
    nothing = spectrum(np.zeros((4, 3)))
    assert (nothing.auc, nothing.effective_rank, nothing.normalised.sum()) == (0, 0, 0)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(2, 8),
    v=st.integers(1, 5),
    d=st.integers(2, 6),
    scale=st.floats(1e-12, 1e12),
    seed=st.integers(0, 10**6),
)
@pytest.mark.slow
def test_metrics_ignore_scale_rotation_and_order_and_stay_in_range(n, v, d, scale, seed):
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(n, v, d))
    numbers = deviation(views), overlap_count(views), overlap_count(views, True)
    assert all(0 <= number <= 1 for number in numbers)
    theta = sample_angles(views)
    assert ((theta >= 0) & (theta <= math.pi / 2 + 1e-12)).all()
    assert uniformity(views[:, 0]) <= 1e-12
    for changed in (views * scale, views @ turned(rng, d), rng.permutation(views), views[:, ::-1]):
        assert deviation(changed) == pytest.approx(numbers[0], abs=1e-9)
        assert sorted(sample_angles(changed)) == pytest.approx(sorted(theta), abs=1e-7)
        assert overlap_count(changed) == pytest.approx(numbers[1], abs=1e-12)
        assert uniformity(changed.reshape(-1, d)) == pytest.approx(uniformity(views.reshape(-1, d)), abs=1e-9)
    assert overlap(views[0], views[1]) == pytest.approx(overlap(views[1], views[0]), abs=1e-12)


@PRECISIONS
@pytest.mark.parametrize("t", [2.0, 0.5, 300.0])
def test_uniformity_is_the_literal_log_mean(dtype, t):
    features = cloud(15, 1, 6, dtype=dtype)[:, 0]
    want = literal_uniformity(features, t)
    assert uniformity(features, t) == pytest.approx(want, abs=TOLERANCE[dtype] * max(1, t))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    table = np.exp(-t * np.square(unit[:, None] - unit[None]).sum(-1))
    assert abs(math.log(table.mean()) - want) > 1e-3  # i = j counted: the oracle tells it apart


def test_uniformity_does_not_underflow():
    assert uniformity(np.eye(3), t=1e4) == pytest.approx(-2e4)


def test_uniformity_subsamples_by_its_seed_only():
    features = cloud(200, 1, 6)[:, 0]
    state = torch.get_rng_state()
    assert uniformity(features, max_samples=50, seed=3) == uniformity(features, max_samples=50, seed=3)
    assert uniformity(features, max_samples=50, seed=3) != uniformity(features, max_samples=50, seed=4)
    assert uniformity(features, max_samples=200, seed=3) == uniformity(features)
    assert uniformity(np.eye(5), max_samples=2) == pytest.approx(-4)  # one pair, at a squared distance of 2
    assert torch.equal(torch.get_rng_state(), state)


def test_uniformity_takes_all_rows_when_asked_to():
    features = cloud(90, 1, 6)[:, 0]
    want = literal_uniformity(features, 2.0)
    for everything in (None, 0, 90, 5000):
        assert uniformity(features, max_samples=everything) == pytest.approx(want, abs=1e-12)
    assert abs(uniformity(features, max_samples=45) - want) > 1e-6


@PRECISIONS
@pytest.mark.parametrize("alpha", [2.0, 1.0, 0.5, 3.7])
@pytest.mark.parametrize("shape", [(5, 2, 3), (4, 20, 16), (1, 7, 2)])
def test_alignment_is_the_literal_mean_over_pairs_of_views(dtype, alpha, shape):
    views = cloud(*shape, dtype=dtype)
    views[0, 0] = 0
    assert alignment(views, alpha) == pytest.approx(literal_alignment(views, alpha), abs=TOLERANCE[dtype])
    assert isinstance(alignment(views, alpha), float)


def test_the_alignment_oracle_tells_wrong_variants_apart():
    views = cloud(6, 4, 5)
    want = literal_alignment(views, 2.0)
    unit = np.array([[direction(view) for view in sample] for sample in views])
    squared = np.square(unit[:, :, None] - unit[:, None]).sum(-1)
    with_self_pairs, not_squared = squared.mean(), np.sqrt(squared).sum() / (6 * 12)
    not_normalised = np.square(views[:, :, None] - views[:, None]).sum() / (6 * 12)
    for wrong in (with_self_pairs, not_squared, not_normalised, literal_alignment(views, 1.0)):
        assert abs(wrong - want) > 1e-3
    assert alignment(views) == pytest.approx(want, abs=1e-12)
    assert alignment(views) == pytest.approx(2 * 4 / 3 * deviation(views), abs=1e-12)


def test_alignment_of_views_that_agree_is_0_and_of_opposite_views_2_to_the_alpha():
    same = np.repeat(cloud(6, 1, 9), 4, axis=1)
    assert alignment(same) < 1e-15
    assert alignment(same, 1.0) == 0
    for alpha in (0.5, 2.0, 4.0):
        assert alignment([[[3.0, 0.0], [-0.1, 0.0]]], alpha) == pytest.approx(2**alpha)


@PRECISIONS
@pytest.mark.parametrize("tiny", [0.3, 0.05, 1e-2, 1e-3, 1e-5])
def test_deviation_keeps_its_digits_near_0(monkeypatch, dtype, tiny):
    rng = np.random.default_rng(0)
    views = (rng.normal(size=(30, 1, 40)) + tiny * rng.normal(size=(30, 6, 40))).astype(dtype)
    exact = views.astype(np.longdouble)
    exact /= np.sqrt(np.square(exact).sum(-1, keepdims=True))
    want = np.square(exact - exact.mean(1, keepdims=True)).sum(-1).mean(1)
    np.testing.assert_allclose(deviation(views, per_sample=True), want.astype(np.float64), rtol=3e-4)
    monkeypatch.setattr(latent_metrics, "_NEAR", -1.0)  # float32 alone
    alone = deviation(views, per_sample=True)
    np.testing.assert_allclose(alone, want.astype(np.float64), atol=1e-6)
    assert dtype == np.float64 or tiny >= 1e-2 or abs(alone / want - 1).max() > 1e-2


@PRECISIONS
def test_deviation_of_zeros_duplicates_and_extreme_lengths_is_the_literal_double_sum(dtype):
    power = 1 if dtype == np.float32 else 8
    views = cloud(9, 5, 7)
    views[1] = 0
    views[2, :2] = 0
    views[3] = views[3, :1]
    views[4] *= 10.0 ** (30 * power)
    views[5] *= 10.0 ** (-30 * power)
    views[6] *= 10.0 ** (15 * power * np.array([-2, -1, 0, 1, 2])[:, None])
    views = views.astype(dtype)
    want = [literal_deviation(sample) for sample in views]
    np.testing.assert_allclose(deviation(views, per_sample=True), want, atol=TOLERANCE[dtype] / 10)
    np.testing.assert_allclose(sample_angles(views), [literal_theta(s) for s in views], atol=TOLERANCE[dtype])
    assert alignment(views) == pytest.approx(literal_alignment(views, 2.0), abs=TOLERANCE[dtype])
    assert uniformity(views[:, 4]) == pytest.approx(literal_uniformity(views[:, 4], 2.0), abs=TOLERANCE[dtype])


def test_products_that_torch_may_round_to_fewer_digits_are_not_used(monkeypatch):
    views = cloud(8, 4, 300, dtype=np.float32)
    want = deviation(views)
    right = torch.Tensor.__matmul__

    def coarse(a, b):
        return right(a.bfloat16().float(), b.bfloat16().float()) if a.dtype == torch.float32 else right(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", coarse)
    assert not feature_arrays.float32_products(torch.device("cpu"))
    assert deviation(views) == pytest.approx(want, abs=1e-6)
    monkeypatch.setattr(feature_arrays, "float32_products", lambda device: True)
    assert abs(deviation(views) - want) > 1e-5
