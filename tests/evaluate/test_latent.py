"""Latent metrics against literal float64 formulas in plain Python, which tell wrong variants apart."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.evaluate import (
    deviation,
    latent,
    overlap,
    overlap_count,
    overlap_count_from,
    sample_angles,
    spectrum,
    uniformity,
)

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-10}
PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


# The literal formulas. Angles of self pairs are 0 by definition and never computed.
def dot(a, b):
    return math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def angle(a, b):
    return math.acos(max(-1.0, min(1.0, cosine(a, b))))


def literal_deviation(views):
    return sum(1 - cosine(a, b) for a in views for b in views) / len(views) ** 2


def literal_theta(views):
    v = len(views)
    return sum(angle(views[i], views[j]) for i in range(v) for j in range(v) if i != j) / v**2


def mean_view(views):
    return [math.fsum(float(view[k]) for view in views) / len(views) for k in range(len(views[0]))]


def literal_overlap(a, b):
    return literal_theta(a) + literal_theta(b) - angle(mean_view(a), mean_view(b))


def literal_count(samples):
    n = len(samples)
    hits = sum(literal_overlap(samples[i], samples[j]) > 0 for i in range(n) for j in range(n) if i != j)
    return hits / (n * (n - 1))


def literal_count_from(means, angles):
    n = len(means)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return sum(angles[i] + angles[j] - angle(means[i], means[j]) > 0 for i, j in pairs) / len(pairs)


def literal_uniformity(features, t):
    unit = [[float(x) / math.sqrt(dot(f, f)) for x in f] for f in features]
    n = len(unit)
    gaps = [math.dist(unit[i], unit[j]) for i in range(n) for j in range(n) if i != j]
    terms = [math.exp(-t * gap**2) for gap in gaps]
    return math.log(math.fsum(terms) / len(terms))


def cloud(n, v, d, spread=0.4, seed=0, dtype=np.float64):
    """Samples around random centres, their views spread around them, at uneven lengths."""
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(n, 1, d)) + 1.0 + spread * rng.normal(size=(n, v, d))
    return (views * rng.uniform(0.2, 5, size=(n, v, 1))).astype(dtype)


def turned(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


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


@pytest.mark.parametrize("block", [1, 3, 7, 64])
def test_blocks_of_any_size_give_the_same_numbers(monkeypatch, block):
    views, features = cloud(23, 4, 5, 0.6), cloud(23, 1, 5)[:, 0]
    before = deviation(views), overlap_count(views), overlap_count(views, True), uniformity(features)
    angles = sample_angles(views)
    monkeypatch.setattr(latent, "_ROWS", block)
    monkeypatch.setattr(latent, "_VALUES", block * 20)
    np.testing.assert_allclose(sample_angles(views), angles, atol=1e-14)
    after = deviation(views), overlap_count(views), overlap_count(views, True), uniformity(features)
    assert after == pytest.approx(before, abs=1e-12)


def test_pairs_nearer_than_float32_can_tell_are_decided_right(monkeypatch):
    turns = np.arange(400) * 1e-4 * (1 + 1e-9)  # neighbours at 1e-4, many pairs within a float32 rounding of touching
    means = np.stack([np.cos(turns), np.sin(turns), np.zeros_like(turns)], 1)
    angles = np.full(400, 1.5e-4)  # the 2 neighbours on each side overlap, the third only touches from outside
    want = 2 * (399 + 398) / (400 * 399)
    assert overlap_count_from(means, angles) == pytest.approx(want, abs=1e-12)
    monkeypatch.setattr(latent, "_DOUBT", 0.0)  # float32 alone
    assert overlap_count_from(means, angles) != pytest.approx(want, abs=1e-3)


def test_one_pair_nearer_than_float32_can_tell_is_decided_right(monkeypatch):
    rng = np.random.default_rng(0)
    means, angles = rng.normal(size=(200, 8)), rng.uniform(0, 0.8, size=200)
    counts = []
    for doubt in (latent._DOUBT, 0.0):
        monkeypatch.setattr(latent, "_DOUBT", doubt)
        for gap in (-1e-9, 1e-9):
            angles[:2] = 0.3, angle(means[0], means[1]) - 0.3 + gap
            counts.append(overlap_count_from(means, angles))
            assert doubt == 0 or counts[-1] == pytest.approx(literal_count_from(means, angles), abs=1e-12)
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


@PRECISIONS
@pytest.mark.parametrize("shape", [(20, 5), (4, 9), (1, 3)])
def test_spectrum_is_that_of_the_normalised_rows(dtype, shape):
    features = cloud(shape[0], 1, shape[1], dtype=dtype)[:, 0]
    rows = features.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) + 1e-6
    s = np.linalg.svd(rows, compute_uv=False)
    got = spectrum(features)
    cev = np.cumsum(s) / s.sum()
    np.testing.assert_allclose(got.values, s, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(got.normalised, s / s[0], atol=TOLERANCE[dtype])
    np.testing.assert_allclose(got.cev, cev, atol=TOLERANCE[dtype])
    assert got.auc == pytest.approx(cev.mean(), abs=TOLERANCE[dtype])
    assert got.effective_rank == pytest.approx(math.exp(-sum(p * math.log(p) for p in s / s.sum())), abs=1e-9)
    if min(shape) > 1:  # squared, centred or unnormalised variants are told apart
        squared = np.cumsum(s**2) / np.sum(s**2)
        centred = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
        raw = np.linalg.svd(features, compute_uv=False)
        assert abs(squared - cev).max() > 1e-3
        assert min(abs(centred - s).max(), abs(raw - s).max()) > 1e-3


def test_effective_rank_counts_equal_directions():
    assert spectrum(np.eye(4)).effective_rank == pytest.approx(4, abs=1e-6)
    assert spectrum(np.ones((5, 3))).effective_rank == pytest.approx(1, abs=1e-6)


def test_arrays_of_any_kind_are_taken_and_left_alone():
    views = cloud(4, 3, 5, dtype=np.float32)
    frozen = views.copy()
    frozen.flags.writeable = False
    want = deviation(views)
    trained = torch.tensor(views, requires_grad=True)
    for same in (frozen, views[::-1], views.astype(">f4"), torch.from_numpy(views), trained, views.tolist()):
        assert deviation(same) == pytest.approx(want, abs=1e-6)
    assert deviation(torch.from_numpy(views).bfloat16()) == pytest.approx(want, abs=1e-2)
    np.testing.assert_array_equal(views, cloud(4, 3, 5, dtype=np.float32))


BAD = np.array([[[1.0, math.nan]]])
GOOD = np.ones((2, 3, 4))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: deviation(np.ones((2, 3))), r"views has shape \(2, 3\): wanted \[n, v, d\]"),
        (lambda: sample_angles(np.ones((0, 3, 2))), r"views has shape \(0, 3, 2\)"),
        (lambda: overlap_count(BAD), "views holds NaN or infinite"),
        (lambda: deviation(np.full((1, 1, 1), math.inf)), "views holds NaN or infinite"),
        (lambda: deviation(GOOD * 1j), "wanted real numbers"),
        (lambda: deviation(torch.ones(1, 1, 1, dtype=torch.complex64)), "wanted real numbers"),
        (lambda: deviation([["a"]]), "wanted real numbers"),
        (lambda: overlap(GOOD, GOOD), r"views_a has shape \(2, 3, 4\): wanted \[v, d\]"),
        (lambda: overlap(GOOD[0], GOOD[0, :, :2]), "views_a has 4 features and views_b 2"),
        (lambda: overlap_count_from(np.ones((3, 2)), np.ones(2)), "angles has 2 values for 3 means"),
        (lambda: overlap_count_from(np.ones((1, 2)), [-0.5]), "angles holds -0.5"),
        (lambda: uniformity(np.ones((1, 2))), "features has 1 rows"),
        (lambda: uniformity(np.ones((3, 2)), max_samples=1), "max_samples is 1"),
        (lambda: uniformity(np.ones((3, 2)), t=0.0), "t is 0.0"),
        (lambda: spectrum(np.ones(3)), r"features has shape \(3,\): wanted \[n, d\]"),
    ],
)
def test_wrong_input_is_a_value_error_that_says_what_was_given(call, said):
    with pytest.raises(ValueError, match=said):
        call()
