"""VICReg against its literal float64 formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ocssl.objectives import VICReg
from ocssl.objectives.vicreg import moments


def literal_moments(z: Tensor) -> tuple[float, float]:
    columns, batch = z.double().T.tolist(), len(z)
    centred = [[x - sum(column) / batch for x in column] for column in columns]
    lack = covary = 0.0
    for d, a in enumerate(centred):
        for e, b in enumerate(centred):
            covariance = sum(x * y for x, y in zip(a, b, strict=True)) / (batch - 1)
            if d == e:
                lack += max(0.0, 1 - math.sqrt(covariance + 1e-4)) / len(columns)
            else:
                covary += covariance**2 / len(columns)
    return lack, covary


def literal_invariance(z1: Tensor, z2: Tensor) -> list[float]:
    pairs = zip(z1.double().tolist(), z2.double().tolist(), strict=True)
    return [sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / len(a) for a, b in pairs]


def literal(z1: Tensor, z2: Tensor) -> float:
    (lack1, covary1), (lack2, covary2) = literal_moments(z1), literal_moments(z2)
    invariance = sum(literal_invariance(z1, z2)) / len(z1)
    return 0.1 * (25 * invariance + 25 * (lack1 + lack2) + covary1 + covary2)


def rows(batch: int = 6, seed: int = 0) -> Tensor:
    """Dimensions that vary too little, about right and too much."""
    deviations = torch.tensor([0.1, 0.5, 1.0, 2.0, 5.0])
    return 3 + deviations * torch.randn(batch, 5, generator=torch.Generator().manual_seed(seed))


def small() -> VICReg:
    torch.manual_seed(0)
    return VICReg(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()), 5, 7)


@pytest.mark.parametrize("batch", [2, 3, 6])
def test_variance_and_covariance_are_the_literal_formulas(batch: int) -> None:
    lack, covary = moments(rows(batch))
    assert (lack.item(), covary.item()) == pytest.approx(literal_moments(rows(batch)), rel=1e-4)


def test_the_oracle_catches_biased_moments_and_a_covariance_with_its_diagonal() -> None:
    z = rows()
    lack, covary = literal_moments(z)
    centred = z - z.mean(0)
    biased = (1 - (centred.square().mean(0) + 1e-4).sqrt()).clamp_min(0).mean()
    with_diagonal = (centred.T @ centred / 5).square().sum() / 5
    for wrong, expected in ((biased, lack), (with_diagonal, covary)):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(wrong, torch.tensor(expected).float(), atol=1e-4, rtol=1e-4)


def test_the_objective_trains_the_literal_loss_and_tells_the_invariance_of_samples() -> None:
    out = small()(torch.randn(2, 6, 3, 2, 2, generator=torch.Generator().manual_seed(4)))
    z1, z2 = out.projected
    assert out.total(torch.ones(6)).item() == pytest.approx(literal(z1, z2), rel=1e-4)
    assert out.loss.tolist() == pytest.approx(literal_invariance(z1, z2), rel=1e-4)


def test_gradients_equal_finite_differences() -> None:
    z = rows(seed=2).requires_grad_()
    lack, covary = moments(z)
    (25 * lack + covary).backward()
    direction = torch.randn(6, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    both = [literal_moments(z.detach().double() + s * direction) for s in (1e-4, -1e-4)]
    up, down = (25 * lack + covary for lack, covary in both)
    assert z.grad is not None
    assert float((z.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def test_uncorrelated_dimensions_of_unit_deviation_cost_nothing() -> None:
    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    lack, covary = moments(z)
    assert (lack.item(), covary.item()) == (0.0, 0.0)


def test_neither_moment_sees_a_shift() -> None:
    torch.testing.assert_close(moments(rows() + 1), moments(rows()), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("z", [rows(1), torch.ones(4, 5), torch.zeros(4, 5)])
def test_rows_that_do_not_vary_give_finite_moments_and_gradients(z: Tensor) -> None:
    z = z.clone().requires_grad_()
    lack, covary = moments(z)
    (lack + covary).backward()
    assert (lack.item(), covary.item()) == pytest.approx((0.99, 0.0))
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_the_distance_is_25_times_the_scale_times_the_mean_squared_difference_to_constant_targets() -> None:
    prediction, target = rows().requires_grad_(), rows(seed=1).requires_grad_()
    distance = small().distance(prediction[None], target[None])
    assert distance.item() == pytest.approx(2.5 * sum(literal_invariance(prediction, target)) / 6, rel=1e-5)
    distance.backward()
    assert prediction.grad is not None
    assert target.grad is None


def test_the_projector_has_three_layers_as_wide_as_the_projection() -> None:
    layers = [m for m in small().projector if isinstance(m, nn.Linear)]
    assert [tuple(m.weight.shape) for m in layers] == [(7, 5), (7, 7), (7, 7)]
    assert isinstance(small().projector[-1], nn.Linear)


def test_the_moments_are_exact_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = moments(rows())
    torch.testing.assert_close(found, moments(rows()))
