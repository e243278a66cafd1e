"""SimSiam against its literal float64 formula; gradients only where the paper lets them flow."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.objectives import SimSiam
from ocssl.objectives.simsiam import simsiam_loss


def literal(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> list[float]:
    def cosine(a: Tensor, b: Tensor) -> float:
        dot = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
        return dot / math.sqrt(sum(x * x for x in a.tolist()) * sum(y * y for y in b.tolist()))

    rows = zip(p1.double(), p2.double(), z1.double(), z2.double(), strict=True)
    return [-0.5 * (cosine(a, d) + cosine(b, c)) for a, b, c, d in rows]


def literal_batch(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> float:
    """Equations 1 and 2 of the SimSiam paper in float64, for the whole batch: D(p1, z2) / 2 + D(p2, z1) / 2."""

    def distance(p: Tensor, z: Tensor) -> float:
        p, z = p.detach().double(), z.detach().double()
        return -float(((p / p.norm(dim=1, keepdim=True)) * (z / z.norm(dim=1, keepdim=True))).sum()) / len(p)

    return distance(p1, z2) / 2 + distance(p2, z1) / 2


def four(seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(6, 9, generator=generator, dtype=dtype) for _ in range(4)]


def small(dimension: int = 5) -> SimSiam:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, dimension), nn.ReLU())
    return SimSiam(encoder, dimension, projection=16, bottleneck=8)


def test_the_loss_is_the_literal_formula_for_every_sample() -> None:
    torch.testing.assert_close(simsiam_loss(*four()), torch.tensor(literal(*four())), atol=1e-6, rtol=1e-5)


def test_the_mean_over_samples_is_the_literal_loss_of_the_batch() -> None:
    for seed in range(3):
        assert float(simsiam_loss(*four(seed)).mean()) == pytest.approx(literal_batch(*four(seed)), abs=1e-6)
    p1, p2, z1, z2 = four()
    for wrong in (simsiam_loss(*four()).sum(), -F.cosine_similarity(p1, z2).mean()):  # not a mean; one half only
        with pytest.raises(AssertionError):
            assert float(wrong) == pytest.approx(literal_batch(p1, p2, z1, z2), abs=1e-6)


def test_what_is_trained_is_the_literal_loss_of_the_batch() -> None:
    objective, views = small(), torch.randn(2, 6, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    out = objective(views)
    predicted = [objective.predictor(z) for z in out.projected]
    expected = literal_batch(*predicted, *out.projected)
    assert float(out.total(torch.ones(6)).detach()) == pytest.approx(expected, abs=1e-5)


def test_the_oracle_catches_views_that_are_not_crossed() -> None:
    p1, p2, z1, z2 = four()
    assert (simsiam_loss(p1, p2, z2, z1) - torch.tensor(literal(p1, p2, z1, z2))).abs().max() > 0.1


def test_the_loss_does_not_depend_on_scale_and_lies_between_minus_one_and_one() -> None:
    p1, p2, z1, z2 = four(1)
    torch.testing.assert_close(simsiam_loss(3 * p1, p2, 0.01 * z1, z2), simsiam_loss(p1, p2, z1, z2))
    torch.testing.assert_close(simsiam_loss(z2, z1, z1, z2), -torch.ones(6))
    torch.testing.assert_close(simsiam_loss(-z2, -z1, z1, z2), torch.ones(6))


def with_gradient_in_targets(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """Broken: the targets are not detached."""
    return -0.5 * (F.cosine_similarity(p1, z2) + F.cosine_similarity(p2, z1))


def require_constant_targets(loss: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> None:
    p1, p2, z1, z2 = (x.requires_grad_() for x in four(2))
    loss(p1, p2, z1, z2).mean().backward()
    assert p1.grad is not None
    assert p2.grad is not None
    assert z1.grad is None
    assert z2.grad is None


def test_no_gradient_flows_through_the_targets() -> None:
    require_constant_targets(simsiam_loss)
    with pytest.raises(AssertionError):
        require_constant_targets(with_gradient_in_targets)


def require_no_gradient_beside_the_predictors_path(objective: SimSiam) -> None:
    objective.predictor.register_forward_pre_hook(lambda module, args: (args[0].detach(),))
    objective(torch.randn(2, 4, 3, 2, 2)).loss.mean().backward()
    assert all(p.grad is None for p in objective.projector.parameters())
    assert all(p.grad is None for p in objective.encoder.parameters())


def test_cutting_the_predictors_path_leaves_no_gradient_in_the_projector(monkeypatch: pytest.MonkeyPatch) -> None:
    require_no_gradient_beside_the_predictors_path(small())
    monkeypatch.setattr("ocssl.objectives.simsiam.simsiam_loss", with_gradient_in_targets)
    with pytest.raises(AssertionError):
        require_no_gradient_beside_the_predictors_path(small())


def test_gradients_equal_finite_differences() -> None:
    p1, p2, z1, z2 = four(3, torch.float64)
    step, direction = 1e-3, torch.randn(6, 9, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    p1.requires_grad_()
    simsiam_loss(p1, p2, z1, z2).sum().backward()
    up, down = (sum(literal(p1.detach() + s * direction, p2, z1, z2)) for s in (step, -step))
    assert p1.grad is not None
    assert float((p1.grad * direction).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-3)


def test_batch_norm_statistics_are_per_view() -> None:
    views = torch.randn(2, 6, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    objective = small()
    together = objective(views)
    alone = [small().projector(small().encoder(view)) for view in views]
    torch.testing.assert_close(together.projected, torch.stack(alone))
    joint = small().projector(small().encoder(views.flatten(0, 1)))
    assert (together.projected.flatten(0, 1) - joint).abs().max() > 0.01  # concatenated views would be caught


def test_heads_have_the_papers_layers() -> None:
    objective = SimSiam(nn.Identity(), 512, 2048)
    shapes = [tuple(m.weight.shape) for m in objective.projector if isinstance(m, nn.Linear)]
    assert shapes == [(512, 512), (512, 512), (2048, 512)]
    first, second, last = (m for m in objective.projector if isinstance(m, nn.Linear))
    assert first.bias is None
    assert second.bias is None
    assert not last.bias.requires_grad
    assert not objective.projector[-1].affine
    inner, outer = (m for m in objective.predictor if isinstance(m, nn.Linear))
    assert (tuple(inner.weight.shape), tuple(outer.weight.shape)) == ((512, 2048), (2048, 512))
    assert inner.bias is None
    assert outer.bias.requires_grad


def test_the_loss_is_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert small()(torch.randn(2, 4, 3, 2, 2)).loss.dtype == torch.float32
