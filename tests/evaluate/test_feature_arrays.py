"""What the latent metrics take: arrays of any kind, shared and not copied, and errors for what cannot be used."""

import math
import warnings

import numpy as np
import pytest
import torch
from literal_latent import cloud

from ocssl.evaluate import (
    deviation,
    feature_arrays,
    overlap,
    overlap_count,
    overlap_count_from,
    sample_angles,
    spectrum,
    uniformity,
)
from ocssl.evaluate.feature_arrays import float_tensor, unit_rows
from ocssl.evaluate.latent_metrics import alignment


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
        (lambda: uniformity(np.ones((3, 2)), max_samples=-3), "max_samples is -3"),
        (lambda: uniformity(np.ones((1, 2)), max_samples=None), "features has 1 rows"),
        (lambda: uniformity(np.ones((3, 2)), t=0.0), "t is 0.0"),
        (lambda: uniformity([[1.0, math.nan], [1.0, 1.0]]), "features holds NaN"),
        (lambda: overlap_count_from([[1.0, math.nan], [1.0, 1.0]], [0.1, 0.2]), "means holds NaN"),
        (lambda: overlap_count_from([[1.0, math.inf]], [0.1]), "means holds NaN or infinite"),
        (lambda: alignment(GOOD[:, :1]), "views has 1 view of each sample: wanted at least 2"),
        (lambda: alignment(GOOD, alpha=0), "alpha is 0"),
        (lambda: alignment(GOOD, alpha=math.inf), "alpha is inf"),
        (lambda: alignment(GOOD * math.nan), "views holds NaN"),
        (lambda: alignment(GOOD * math.nan, alpha=1), "views holds NaN"),
        (lambda: alignment(np.ones((2, 3))), r"views has shape \(2, 3\)"),
        (lambda: spectrum(np.ones(3)), r"features has shape \(3,\): wanted \[n, d\]"),
    ],
)
def test_wrong_input_is_a_value_error_that_says_what_was_given(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_memory_mapped_array_is_shared_and_not_copied(tmp_path, dtype, mode):
    views = cloud(40, 3, 6, dtype=dtype)
    np.save(tmp_path / "views.npy", views)
    mapped = np.load(tmp_path / "views.npy", mmap_mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of arrays that it may not write to
        tensor = float_tensor("views", mapped, "[n, v, d]")
        assert tensor.data_ptr() == address(mapped)
        assert deviation(mapped) == deviation(views)
        assert overlap_count(mapped) == overlap_count(views)
        assert spectrum(mapped[:, 0]).auc == spectrum(views[:, 0]).auc
        assert uniformity(mapped[:, 0]) == uniformity(views[:, 0])
        assert alignment(mapped) == alignment(views)
    del mapped
    np.testing.assert_array_equal(tensor.numpy(), views)  # the mapping lives as long as the tensor


@pytest.mark.parametrize("dtype", [np.float16, np.int16, np.uint8, np.bool_])
def test_other_types_are_shared_and_become_float32_block_by_block(dtype, monkeypatch):
    views = (cloud(40, 3, 6) * 20).astype(dtype)
    assert feature_arrays.shared_tensor("views", views, "[n, v, d]").data_ptr() == address(views)
    monkeypatch.setattr(feature_arrays, "BLOCK", 60)
    wide = views.astype(np.float32)
    assert deviation(views) == deviation(wide)
    assert deviation(views, per_sample=True).dtype == sample_angles(views).dtype == np.float32
    assert overlap_count_from(views[:, 0], np.full(40, 0.3)) == overlap_count_from(wide[:, 0], np.full(40, 0.3))
    assert uniformity(views[:, 0]) == uniformity(wide[:, 0])
    np.testing.assert_array_equal(spectrum(views[:, 0]).values, spectrum(wide[:, 0]).values)


def test_turned_and_skipped_axes_are_shared_and_backward_ones_copied():
    views = cloud(12, 4, 5, dtype=np.float32)
    for shared in (views.transpose(1, 0, 2), views[::3], views[..., 1:4]):
        tensor = float_tensor("views", shared, "[n, v, d]")
        assert tensor.data_ptr() == address(shared)
        np.testing.assert_array_equal(tensor.numpy(), shared)
    for copied in (views[::-1], views.astype(">f4"), views.astype(np.longdouble)):
        np.testing.assert_array_equal(float_tensor("views", copied, "[n, v, d]").numpy(), copied.astype(np.float32))
    packed = np.zeros(7, dtype=[("flag", "u1"), ("value", "f4")])["value"]  # 5 bytes apart
    assert float_tensor("values", packed, "[n]").shape == (7,)


def test_a_value_that_is_not_finite_is_found_in_any_block(monkeypatch):
    monkeypatch.setattr(feature_arrays, "BLOCK", 4)
    for place in (0, 13, 29):
        for bad in (math.nan, math.inf, -math.inf):
            values = np.ones((30, 3))
            values[place, 1] = bad
            for call in (
                lambda x: float_tensor("views", x, "[n, d]"),
                lambda x: deviation(x[None]),
                lambda x: deviation(x[None].astype(np.float32)),
                lambda x: sample_angles(x[:, None]),
                lambda x: sample_angles(x[None].astype(np.float32)),
                lambda x: overlap_count(x[:, None]),
                lambda x: alignment(np.stack([x, x], 1)),
            ):
                with pytest.raises(ValueError, match="views holds NaN or infinite"):
                    call(values)


@pytest.mark.parametrize("length", [1.0, 1e-30, 1e200, 1e-200, 1e307, 1e-310])
def test_unit_rows_have_length_1_at_any_scale(length):
    rows = torch.from_numpy(cloud(6, 1, 4)[:, 0] / 60) * length
    rows[2] = 0
    unit = unit_rows(rows)
    np.testing.assert_allclose(unit.norm(dim=1), [1, 1, 0, 1, 1, 1], atol=1e-12 if length > 1e-300 else 1e-2)
    assert unit.dtype == torch.float64
