"""What is measured on a batch: literal formulas, and signals that tell a collapsed batch from a healthy one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ocssl._core.angles import view_angle
from ocssl.objectives import Output
from ocssl.objectives.sample_statistics import MeasureSamples, SampleStatistics, collapsed, participation_ratio, spread
from ocssl.settings import MemorySettings


def output(views: int = 2, batch: int = 5) -> Output:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(views, batch, 4, generator=generator)
    return Output(torch.rand(batch, generator=generator), features, torch.randn(views, batch, 3, generator=generator))


def measure(out: Output, settings: MemorySettings) -> SampleStatistics:
    measured: SampleStatistics = MeasureSamples(settings, 4, 3)(out)
    return measured


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


def test_a_running_centre_is_the_literal_unbiased_average_of_all_views_and_rows() -> None:
    settings = MemorySettings(center="running", center_ema=0.9)
    measure, batches = MeasureSamples(settings, 4, 3), [output(batch=n) for n in (5, 2, 1, 7)]
    weighted, weights = torch.zeros(4, dtype=torch.float64), 0.0
    for number, out in enumerate(batches):
        out.features.add_(3.0 + number)  # a cone that wanders
        measured = measure(out)
        weighted = 0.9 * weighted + 0.1 * out.features.double().flatten(0, 1).mean(0)
        weights = 0.9 * weights + 0.1
        centred = out.features.double() - weighted / weights
        torch.testing.assert_close(measured.feature.double(), centred.mean(0), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(measured.angle.double(), view_angle(centred).double(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(measured.projected, out.projected.mean(0))  # what CLA aligns stays as it is


def test_a_common_shift_of_all_features_leaves_centred_statistics_alone() -> None:
    plain, centred = (MeasureSamples(MemorySettings(center=center), 4, 3) for center in ("none", "running"))
    out = output(batch=50)
    moved = Output(out.loss, out.features + torch.tensor([9.0, 0.0, 3.0, 0.0]), out.projected)
    before = centred(out)
    torch.testing.assert_close(MeasureSamples(centred.settings, 4, 3)(moved).angle, before.angle, atol=1e-5, rtol=1e-4)
    assert float(plain(moved).angle.mean()) < 0.2 * float(plain(out).angle.mean())  # without it they shrink to a cone


def test_a_centre_learns_in_train_mode_only_and_passes_no_gradient_through_itself() -> None:
    measure = MeasureSamples(MemorySettings(center="running"), 4, 3)
    measure(output())
    state = {name: tensor.clone() for name, tensor in measure.state_dict().items()}
    assert set(state) == {"mean", "batches"}
    measure.eval()
    out = output(batch=3)
    out.features.requires_grad_()
    measured = measure(out)
    assert all(torch.equal(tensor, state[name]) for name, tensor in measure.state_dict().items())
    [gradient] = torch.autograd.grad(measured.feature.sum(), out.features)
    assert torch.equal(gradient, torch.full_like(gradient, 0.5))  # of the mean over two views, the centre a constant


def test_the_centre_of_the_projector_space_has_its_length() -> None:
    measure = MeasureSamples(MemorySettings(center="running", space="projector"), 4, 3)
    out = output()
    torch.testing.assert_close(measure(out).feature, out.projected.mean(0) - out.projected.mean((0, 1)))


def test_without_centre_nothing_is_saved() -> None:
    assert not MeasureSamples(MemorySettings(), 4, 3).state_dict()


def test_spread_is_the_deviation_of_unit_features() -> None:
    points = torch.randn(50, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    unit = points / points.norm(dim=1, keepdim=True)
    literal = math.sqrt(float((unit - unit.mean(0)).square().sum(1).mean()))
    assert float(spread(points)) == pytest.approx(literal)
    assert float(spread(torch.ones(9, 3))) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("directions", [1, 3, 8])
def test_participation_ratio_counts_the_directions_that_vary(directions: int) -> None:
    assert float(participation_ratio(cloud(directions, noise=0.05))) == pytest.approx(directions, rel=0.05)


def test_participation_ratio_is_that_of_the_eigenvalues() -> None:
    points = torch.randn(40, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    unit = points / points.norm(dim=1, keepdim=True)
    values = torch.linalg.eigvalsh(torch.cov(unit.T, correction=0))
    assert float(participation_ratio(points)) == pytest.approx(float(values.sum() ** 2 / values.square().sum()))


def test_a_constant_batch_has_finite_signals() -> None:
    assert math.isfinite(float(participation_ratio(torch.ones(5, 3))))
    assert math.isfinite(float(spread(torch.zeros(5, 3))))


def test_collapse_is_told_from_health() -> None:
    for healthy in (cloud(8, noise=0.5), torch.randn(138, 64, generator=torch.Generator().manual_seed(4)).relu()):
        assert not collapsed(float(spread(healthy)), float(participation_ratio(healthy)))
    for sick in (cloud(8, noise=0.001), cloud(1, noise=0.5)):
        assert collapsed(float(spread(sick)), float(participation_ratio(sick)))
    assert not collapsed(math.nan, math.nan)  # one image alone says nothing
