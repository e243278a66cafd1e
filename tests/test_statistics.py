"""What is measured on a batch: literal formulas, and signals that tell a collapsed batch from a healthy one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ocssl.angles import view_angle
from ocssl.objectives import Output
from ocssl.settings import MemorySettings
from ocssl.statistics import collapsed, effective_rank, measure, spread


def output(views: int = 2, batch: int = 5) -> Output:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(views, batch, 4, generator=generator)
    return Output(torch.rand(batch, generator=generator), features, torch.randn(views, batch, 3, generator=generator))


def cloud(directions: int, noise: float = 0.0, n: int = 2000, d: int = 16) -> Tensor:
    """Points around a common direction that vary along so many others."""
    generator = torch.Generator().manual_seed(1)
    points = torch.zeros(n, d)
    points[:, 0] = 1
    points[:, 1 : 1 + directions] = noise * torch.randn(n, directions, generator=generator)
    return points


def test_the_mean_feature_and_angle_are_those_of_the_formula() -> None:
    out = output()
    measured = measure(out, MemorySettings())
    torch.testing.assert_close(measured.feature, (out.features[0] + out.features[1]) / 2)
    torch.testing.assert_close(measured.angle, view_angle(out.features))
    assert torch.equal(measured.loss, out.loss)


def test_settings_choose_space_pairs_and_mean() -> None:
    out = output()
    projected = measure(out, MemorySettings(space="projector"))
    torch.testing.assert_close(projected.feature, out.projected.mean(0))
    distinct = measure(out, MemorySettings(angle="distinct"))
    torch.testing.assert_close(distinct.angle, 2 * view_angle(out.features))
    unit = measure(out, MemorySettings(mean="unit")).feature
    expected = torch.nn.functional.normalize(torch.nn.functional.normalize(out.features, dim=-1).mean(0), dim=-1)
    torch.testing.assert_close(unit, expected)


def test_stored_rows_are_detached() -> None:
    out = output()
    out.features.requires_grad_()
    rows = measure(out, MemorySettings()).rows(slice(1, 3))
    assert all(len(column) == 2 and not column.requires_grad for column in rows.values())


def test_statistics_are_float32_whatever_the_precision() -> None:
    out = output()
    half = Output(out.loss.bfloat16(), out.features.bfloat16(), out.projected.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        measured = measure(half, MemorySettings())
    assert {measured.loss.dtype, measured.feature.dtype, measured.angle.dtype} == {torch.float32}


def test_spread_is_the_deviation_of_unit_features() -> None:
    points = torch.randn(50, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    unit = points / points.norm(dim=1, keepdim=True)
    literal = math.sqrt(float((unit - unit.mean(0)).square().sum(1).mean()))
    assert float(spread(points)) == pytest.approx(literal)
    assert float(spread(torch.ones(9, 3))) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("directions", [1, 3, 8])
def test_effective_rank_counts_the_directions_that_vary(directions: int) -> None:
    assert float(effective_rank(cloud(directions, noise=0.05))) == pytest.approx(directions, rel=0.05)


def test_effective_rank_is_the_participation_ratio_of_the_eigenvalues() -> None:
    points = torch.randn(40, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    unit = points / points.norm(dim=1, keepdim=True)
    values = torch.linalg.eigvalsh(torch.cov(unit.T, correction=0))
    assert float(effective_rank(points)) == pytest.approx(float(values.sum() ** 2 / values.square().sum()))


def test_a_constant_batch_has_finite_signals() -> None:
    assert math.isfinite(float(effective_rank(torch.ones(5, 3))))
    assert math.isfinite(float(spread(torch.zeros(5, 3))))


def test_collapse_is_told_from_health() -> None:
    for healthy in (cloud(8, noise=0.5), torch.randn(138, 64, generator=torch.Generator().manual_seed(4)).relu()):
        assert not collapsed(float(spread(healthy)), float(effective_rank(healthy)))
    for sick in (cloud(8, noise=0.001), cloud(1, noise=0.5)):
        assert collapsed(float(spread(sick)), float(effective_rank(sick)))
    assert not collapsed(math.nan, math.nan)  # one image alone says nothing
