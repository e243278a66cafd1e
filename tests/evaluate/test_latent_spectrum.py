"""Singular values block by block against those of the whole matrix."""

import math

import numpy as np
import pytest
import torch
from literal_latent import PRECISIONS, TOLERANCE, cloud

from ocssl.evaluate import feature_arrays, latent_metrics, spectrum


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


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(feature_arrays, "BLOCK", 1)
    monkeypatch.setattr(latent_metrics, "_WIDTHS", 1)


SHAPES = [(200, 7), (201, 1), (64, 32), (33, 32), (32, 32), (31, 32), (1, 5)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_of_rows_give_the_singular_values_of_all(shape):
    rng = np.random.default_rng(shape[0])
    features = rng.normal(size=shape) * np.geomspace(1, 1e-7, shape[1])  # from large to nothing
    rows = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-6)
    want = torch.linalg.svdvals(torch.from_numpy(rows)).numpy()
    got = spectrum(features)
    assert got.values.shape == (min(shape),)
    np.testing.assert_allclose(got.values, want, atol=1e-12 * want[0])
    np.testing.assert_allclose(got.values[want > 1e-5], want[want > 1e-5], rtol=1e-9)  # more than a Gram matrix holds


@pytest.mark.usefixtures("small_blocks")
def test_few_directions_stay_few_and_blocks_forgotten_are_seen():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(90, 3)) @ rng.normal(size=(3, 10))
    got = spectrum(features)
    assert got.values[3:].max() < 1e-13 * got.values[0]
    assert got.effective_rank < 3 + 1e-9
    last = spectrum(features[-10:])
    assert abs(last.values[0] - got.values[0]) > 1
    assert abs(last.normalised - got.normalised).max() > 1e-3


@pytest.mark.usefixtures("small_blocks")
def test_a_value_that_is_not_finite_is_refused_in_any_block():
    features = np.ones((40, 3))
    for place, bad in ((0, math.nan), (39, math.inf)):
        broken = features.copy()
        broken[place, 1] = bad
        with pytest.raises(ValueError, match="features holds NaN or infinite"):
            spectrum(broken)


def test_rows_too_long_for_their_squares_count_as_directions():
    features = cloud(20, 1, 5)[:, 0]
    far = features * np.where(np.arange(20) % 2, 1e200, 1.0)[:, None]
    np.testing.assert_allclose(spectrum(far).values, spectrum(features).values, atol=1e-5)  # 1e-6 is added to a norm
