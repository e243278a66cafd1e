"""Angles: literal float64 formulas, finite gradients, and the half angle of two views."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ocssl._core.angles import angle_between, pairwise_angles, unit, view_angle


def literal_angle(a: Tensor, b: Tensor) -> float:
    a, b = a.double(), b.double()
    cosine = float(a @ b / (a.norm() * b.norm()))
    return math.acos(max(-1.0, min(1.0, cosine)))


def literal_view_angle(views: Tensor) -> float:
    """Equation 2: the average over all ordered pairs, [V, D]."""
    pairs = [(i, j) for i in range(len(views)) for j in range(len(views))]
    return sum(0.0 if i == j else literal_angle(views[i], views[j]) for i, j in pairs) / len(pairs)


@pytest.mark.parametrize("views", [2, 3, 5])
def test_view_angle_is_the_literal_average_over_all_ordered_pairs(views: int) -> None:
    features = torch.randn(views, 6, 4, generator=torch.Generator().manual_seed(views))
    expected = torch.tensor([literal_view_angle(features[:, i]) for i in range(6)])
    torch.testing.assert_close(view_angle(features), expected, atol=1e-6, rtol=1e-5)


def test_with_two_views_all_pairs_give_half_the_angle_and_distinct_pairs_the_whole() -> None:
    features = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    whole = torch.tensor([literal_angle(features[0, i], features[1, i]) for i in range(5)])
    torch.testing.assert_close(view_angle(features, "all"), whole / 2, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(view_angle(features, "distinct"), whole, atol=1e-6, rtol=1e-5)


def test_one_view_has_no_angle() -> None:
    assert view_angle(torch.randn(1, 3, 4)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("sign", "expected"), [(1.0, 0.0), (-1.0, math.pi)])
def test_equal_and_opposite_vectors_have_the_exact_angle_and_a_finite_gradient(sign: float, expected: float) -> None:
    a = torch.randn(4, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    angle = angle_between(a, sign * a.detach())
    angle.sum().backward()
    torch.testing.assert_close(angle.detach(), torch.full((4,), expected), atol=1e-6, rtol=0)
    assert a.grad is not None
    assert bool(torch.isfinite(a.grad).all())


def test_arccos_would_not_pass_for_equal_vectors() -> None:
    a = torch.randn(4, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    torch.arccos((unit(a) * unit(a.detach())).sum(-1)).sum().backward()
    assert a.grad is not None
    assert not bool(torch.isfinite(a.grad).all())


def test_nearly_equal_vectors_keep_their_angle_in_float32() -> None:
    a = torch.tensor([[1.0, 0.0]])
    b = torch.tensor([[1.0, 1e-5]])
    assert float(angle_between(a, b)) == pytest.approx(1e-5, rel=1e-3)


def test_zero_vectors_give_finite_angles_and_gradients() -> None:
    a = torch.zeros(3, 4, requires_grad=True)
    (angle_between(a, torch.ones(3, 4)).sum() + pairwise_angles(a, torch.ones(2, 4)).sum()).backward()
    assert a.grad is not None
    assert bool(torch.isfinite(a.grad).all())


def test_gradients_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(2)
    a = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: angle_between(x, b[:3]), (a,))
    assert torch.autograd.gradcheck(lambda x: pairwise_angles(x, b), (a,))


def test_pairwise_angles_are_the_literal_ones() -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(5, 7, generator=generator), torch.randn(6, 7, generator=generator)
    expected = torch.tensor([[literal_angle(x, y) for y in b] for x in a])
    torch.testing.assert_close(pairwise_angles(a, b), expected, atol=1e-5, rtol=1e-5)
