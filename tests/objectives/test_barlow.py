"""Barlow Twins against its literal float64 formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ocssl.objectives import BarlowTwins
from ocssl.objectives.barlow import EPS, barlow_loss, standardise


def columns(z: Tensor) -> list[list[float]]:
    """Standardised dimensions, one list each."""
    found = []
    for column in z.double().T.tolist():
        mean = sum(column) / len(column)
        variance = sum((x - mean) ** 2 for x in column) / len(column)
        found.append([(x - mean) / math.sqrt(variance + EPS) for x in column])
    return found


def literal(z1: Tensor, z2: Tensor, off_diagonal: float = 5e-3) -> float:
    first, second = columns(z1), columns(z2)
    total = 0.0
    for d, a in enumerate(first):
        for e, b in enumerate(second):
            c = sum(x * y for x, y in zip(a, b, strict=True)) / len(a)
            total += (c - 1) ** 2 if d == e else off_diagonal * c**2
    return total


def two(batch: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return 3 + 2 * torch.randn(batch, 5, generator=generator), torch.randn(batch, 5, generator=generator)


def small() -> BarlowTwins:
    torch.manual_seed(0)
    return BarlowTwins(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()), 5, 7)


def loss(z1: Tensor, z2: Tensor) -> Tensor:
    return barlow_loss(standardise(z1), standardise(z2), 5e-3)


@pytest.mark.parametrize("batch", [2, 6])
def test_the_loss_is_the_literal_formula(batch: int) -> None:
    assert float(loss(*two(batch))) == pytest.approx(literal(*two(batch)), rel=1e-4)


def test_the_oracle_catches_a_loss_without_centring_and_one_without_the_off_diagonal() -> None:
    z1, z2 = two()
    expected = torch.tensor(literal(z1, z2)).float()
    raw = barlow_loss(z1 / z1.std(0), z2 / z2.std(0), 5e-3)
    diagonal_only = barlow_loss(standardise(z1), standardise(z2), 0.0)
    for wrong in (raw, diagonal_only):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(wrong, expected, atol=1e-4, rtol=1e-4)


def test_uncorrelated_dimensions_that_agree_cost_nothing() -> None:
    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    torch.testing.assert_close(loss(z, z), torch.tensor(0.0), atol=1e-8, rtol=0)
    torch.testing.assert_close(loss(10 * z + 3, z), torch.tensor(0.0), atol=1e-8, rtol=0)
    torch.testing.assert_close(loss(z, -z), torch.tensor(8.0), atol=1e-3, rtol=0)


def test_gradients_equal_finite_differences() -> None:
    z1, z2 = two()
    z1.requires_grad_()
    loss(z1, z2).backward()
    direction = torch.randn(6, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    at = z1.detach().double()
    up, down = (literal(at + s * direction, z2) for s in (1e-4, -1e-4))
    assert z1.grad is not None
    assert float((z1.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def test_the_objective_trains_a_tenth_of_the_loss_and_tells_the_cosines_of_samples() -> None:
    out = small()(torch.randn(2, 6, 3, 2, 2, generator=torch.Generator().manual_seed(4)))
    z1, z2 = out.projected.detach()
    assert out.total(torch.ones(6)).item() == pytest.approx(0.1 * literal(z1, z2), rel=1e-4)
    first, second = (torch.tensor(columns(z)).T for z in (z1, z2))  # [B, P]
    torch.testing.assert_close(out.loss, 1 - torch.cosine_similarity(first, second), atol=1e-5, rtol=1e-4)
    assert out.projected.mean(1).abs().max() > 1e-2  # before standardisation


def test_the_distance_is_the_own_loss_to_constant_targets() -> None:
    prediction, target = (x.requires_grad_() for x in two())
    distance = small().distance(prediction[None], target[None])
    assert distance.item() == pytest.approx(0.1 * literal(prediction, target), rel=1e-4)
    distance.backward()
    assert prediction.grad is not None
    assert target.grad is None


def test_one_sample_alone_gives_a_finite_loss_and_gradient() -> None:
    z1, z2 = (z.requires_grad_() for z in two(1))
    found = loss(z1, z2)
    found.backward()
    assert found.item() == 5.0  # one for each dimension
    assert z1.grad is not None
    assert z1.grad.isfinite().all()


def test_the_loss_is_exact_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(*two())
    torch.testing.assert_close(found, loss(*two()))


def test_the_projector_ends_without_a_norm_and_without_a_bias() -> None:
    last = small().projector[-1]
    assert isinstance(last, nn.Linear)
    assert last.bias is None
