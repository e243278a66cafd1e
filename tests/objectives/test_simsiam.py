"""SimSiam against its literal float64 formula; gradients only where the paper lets them flow."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ocssl.objectives import SimSiam
from ocssl.objectives.simsiam import simsiam_loss


def literal(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> list[float]:
    def cosine(a: Tensor, b: Tensor) -> float:
        dot = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
        return dot / math.sqrt(sum(x * x for x in a.tolist()) * sum(y * y for y in b.tolist()))

    rows = zip(p1.double(), p2.double(), z1.double(), z2.double(), strict=True)
    return [-0.5 * (cosine(a, d) + cosine(b, c)) for a, b, c, d in rows]


def four(seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(6, 9, generator=generator, dtype=dtype) for _ in range(4)]


def small(dimension: int = 5) -> SimSiam:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, dimension), nn.ReLU())
    return SimSiam(encoder, dimension, projection=16, bottleneck=8)


def test_the_loss_is_the_literal_formula_for_every_sample() -> None:
    torch.testing.assert_close(simsiam_loss(*four()), torch.tensor(literal(*four())), atol=1e-6, rtol=1e-5)


def test_the_oracle_catches_views_that_are_not_crossed() -> None:
    p1, p2, z1, z2 = four()
    assert (simsiam_loss(p1, p2, z2, z1) - torch.tensor(literal(p1, p2, z1, z2))).abs().max() > 0.1


def test_the_loss_does_not_depend_on_scale_and_lies_between_minus_one_and_one() -> None:
    p1, p2, z1, z2 = four(1)
    torch.testing.assert_close(simsiam_loss(3 * p1, p2, 0.01 * z1, z2), simsiam_loss(p1, p2, z1, z2))
    torch.testing.assert_close(simsiam_loss(z2, z1, z1, z2), -torch.ones(6))
    torch.testing.assert_close(simsiam_loss(-z2, -z1, z1, z2), torch.ones(6))


def test_no_gradient_flows_through_the_targets() -> None:
    p1, p2, z1, z2 = (x.requires_grad_() for x in four(2))
    simsiam_loss(p1, p2, z1, z2).mean().backward()
    assert p1.grad is not None
    assert p2.grad is not None
    assert z1.grad is None
    assert z2.grad is None


def test_cutting_the_predictors_path_leaves_no_gradient_in_the_projector() -> None:
    objective = small()
    objective.predictor.register_forward_pre_hook(lambda module, args: (args[0].detach(),))
    objective(torch.randn(2, 4, 3, 2, 2)).loss.mean().backward()
    assert all(p.grad is None for p in objective.projector.parameters())
    assert all(p.grad is None for p in objective.encoder.parameters())


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
