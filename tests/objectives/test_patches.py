"""EMP-SSL and CMP against their literal float64 formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ocssl.objectives import CMP, EMPSSL
from ocssl.objectives.patches import coding_rate


def literal_rate(z: Tensor, eps: float = 0.2) -> float:
    """1/2 logdet(I_d + d / (m eps) Z^T Z) by elimination, one number at a time."""
    rows, (m, d) = z.double().tolist(), z.shape
    matrix = [
        [float(a == b) + d / (m * eps) * sum(row[a] * row[b] for row in rows) for b in range(d)] for a in range(d)
    ]
    total = 0.0
    for k in range(d):
        total += math.log(matrix[k][k])
        for i in range(k + 1, d):
            factor = matrix[i][k] / matrix[k][k]
            matrix[i] = [x - factor * y for x, y in zip(matrix[i], matrix[k], strict=True)]
    return total / 2


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def literal_emp(projected: Tensor, eps: float = 0.2) -> tuple[list[float], float]:
    """Values of the samples and the loss of the batch, from raw projections [V, B, P]."""
    raw = projected.detach().double().numpy()
    z = raw / np.sqrt((raw**2).sum(-1, keepdims=True))
    patches, batch, _ = z.shape
    values = [-sum(cosine(z[k, i], z[:, i].mean(0)) for k in range(patches)) / patches for i in range(batch)]
    tcr = sum(-literal_rate(torch.from_numpy(z[k]), eps) for k in range(patches)) / patches
    return values, 200 * sum(values) / batch + 1 * tcr


def literal_cmp(projected: Tensor, predicted: Tensor) -> tuple[list[float], float]:
    z, p = projected.detach().double().numpy(), predicted.detach().double().numpy()
    patches, batch, _ = z.shape
    values = [-sum(cosine(p[k, i], z[:, i].mean(0)) for k in range(patches)) / patches for i in range(batch)]
    tcr = sum(-literal_rate(projected[k].detach()) for k in range(patches)) / patches
    return values, 100 * sum(values) / batch + 3 * tcr


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.ReLU())


def emp(patches: int = 4) -> EMPSSL:
    return EMPSSL(encoder(), 6, 9, patches=patches)


def cmp(patches: int = 4) -> CMP:
    return CMP(encoder(), 6, 9, patches=patches, bottleneck=5)


@pytest.mark.parametrize("shape", [(1, 7), (3, 7), (7, 7), (9, 4)])
def test_the_coding_rate_is_the_literal_determinant_whichever_side_is_longer(shape: tuple[int, int]) -> None:
    z = rows(3, *shape)
    torch.testing.assert_close(coding_rate(z, 0.2), torch.tensor([literal_rate(x) for x in z]).float())


def test_the_oracle_catches_the_other_sides_scale() -> None:
    z = rows(3, 7)
    wrong = 0.5 * torch.logdet(torch.eye(3) + 3 / (7 * 0.2) * z @ z.T)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(wrong, torch.tensor(literal_rate(z)).float(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shape", [(3, 7), (9, 4)])
def test_gradients_of_the_coding_rate_equal_finite_differences(shape: tuple[int, int]) -> None:
    z = rows(*shape).requires_grad_()
    coding_rate(z[None], 0.2).sum().backward()
    direction = rows(*shape, seed=9).double()
    up, down = (literal_rate(z.detach().double() + s * direction) for s in (1e-4, -1e-4))
    assert z.grad is not None
    assert float((z.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def test_rows_apart_have_a_higher_coding_rate_than_rows_alike() -> None:
    apart, alike = torch.eye(5, 8), torch.eye(5, 8)[:1].repeat(5, 1)
    assert coding_rate(apart[None], 0.2) > coding_rate(alike[None], 0.2) > 0
    assert coding_rate(torch.zeros(1, 5, 8), 0.2) == 0


@pytest.mark.parametrize("length", [0.0, 1.0, 1e3])
def test_rows_that_are_all_alike_give_the_exact_rate_and_a_finite_gradient(length: float) -> None:
    z = (length * torch.ones(1, 12, 2048) / math.sqrt(2048)).requires_grad_()
    rate = coding_rate(z, 0.2)
    rate.sum().backward()
    assert rate.item() == pytest.approx(0.5 * math.log1p(2048 / 0.2 * length**2), rel=1e-5)
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_what_is_not_finite_stays_so_and_raises_no_error_of_its_own() -> None:
    assert not coding_rate(torch.full((1, 3, 4), torch.nan), 0.2).isfinite()


def test_emp_ssl_trains_the_literal_loss() -> None:
    out = emp()(rows(4, 5, 3, 2, 2))
    values, total = literal_emp(out.projected)
    assert out.loss.tolist() == pytest.approx(values, rel=1e-4)
    assert out.total(torch.ones(5)).item() == pytest.approx(total, rel=1e-4)


def test_cmp_trains_the_literal_loss() -> None:
    views = rows(4, 5, 3, 2, 2)
    out, copy = cmp()(views), cmp()
    predicted = copy.predictor(out.projected.flatten(0, 1)).unflatten(0, (4, 5))
    values, total = literal_cmp(out.projected, predicted)
    assert out.loss.tolist() == pytest.approx(values, rel=1e-4)
    assert out.total(torch.ones(5)).item() == pytest.approx(total, rel=1e-4)


def test_the_oracles_catch_a_coding_rate_of_the_wrong_sign_and_one_of_normalised_rows() -> None:
    out = emp()(rows(4, 5, 3, 2, 2))
    _, total = literal_emp(out.projected)
    z = torch.nn.functional.normalize(out.projected, dim=-1)
    flipped = 200 * out.loss.mean() + coding_rate(z, 0.2).mean()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(flipped, torch.tensor(total).float(), atol=1e-3, rtol=1e-4)
    out, copy = cmp()(rows(4, 5, 3, 2, 2)), cmp()
    predicted = copy.predictor(out.projected.flatten(0, 1)).unflatten(0, (4, 5))
    _, total = literal_cmp(out.projected, predicted)
    z = torch.nn.functional.normalize(out.projected, dim=-1)
    normalised = 100 * out.loss.mean() - 3 * coding_rate(z, 0.2).mean()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(normalised, torch.tensor(total).float(), atol=1e-3, rtol=1e-4)


def test_patches_pass_together_so_that_batch_norm_statistics_are_joint() -> None:
    views = rows(4, 5, 3, 2, 2)
    for objective, copy in ((emp(), emp()), (cmp(), cmp())):
        out = objective(views)
        joint = copy.projector(copy.encoder(views.flatten(0, 1))).unflatten(0, (4, 5))
        torch.testing.assert_close(out.projected, joint)
        assert out.features.shape == (4, 5, 6)
        apart = torch.stack([copy.projector(copy.encoder(view)) for view in views])
        assert (out.projected - apart).abs().max() > 0.01


def test_cutting_the_predictors_path_leaves_cmp_the_coding_rates_gradient_alone() -> None:
    views, found = rows(4, 5, 3, 2, 2), []
    for cut in (True, False):
        objective = cmp()
        if cut:
            objective.predictor.register_forward_pre_hook(lambda module, args: (args[0].detach(),))
        out = objective(views)
        loss = out.batch_loss if cut else -3 * coding_rate(out.projected, 0.2).mean()
        assert loss is not None
        loss.backward()
        found.append([p.grad for p in objective.encoder.parameters()])
    for both, rate in zip(*found, strict=True):
        torch.testing.assert_close(both, rate)


def test_the_agreement_of_emp_ssl_is_the_length_of_the_mean_of_the_unit_projections() -> None:
    out = emp()(rows(4, 5, 3, 2, 2))
    length = torch.nn.functional.normalize(out.projected, dim=-1).mean(0).norm(dim=-1)
    torch.testing.assert_close(out.loss, -length)


def test_losses_do_not_depend_on_the_order_of_patches() -> None:
    views, order = rows(4, 5, 3, 2, 2), torch.tensor([2, 0, 3, 1])
    for make in (emp, cmp):
        straight, permuted = make()(views), make()(views[order])
        torch.testing.assert_close(straight.loss, permuted.loss, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(straight.batch_loss, permuted.batch_loss, atol=1e-3, rtol=1e-4)


def test_they_ask_for_as_many_views_as_patches() -> None:
    assert EMPSSL(encoder(), 6, 9).views == CMP(encoder(), 6, 9).views == 20
    assert emp(3).views == 3


def test_the_coding_rate_is_exact_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = coding_rate(rows(2, 3, 7), 0.2)
    assert torch.equal(found, coding_rate(rows(2, 3, 7), 0.2))
