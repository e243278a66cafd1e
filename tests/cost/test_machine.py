"""Four rates of a machine: found again from work that they would take, and labelled when assumed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ocssl.cost import GPUS, Load, Machine, calibrate, gpu, machine
from ocssl.cost.machine import Sample, fit
from ocssl.errors import SettingError

pytestmark = pytest.mark.slow

RATES = ("forward", "backward", "bandwidth", "overhead")
KNOWN = Machine("known", 8e10, 5e10, 6e9, 2e-4)


def samples(of: Machine, noise: float = 0.0) -> list[Sample]:
    generator = np.random.default_rng(5)
    found = []
    for size in (1, 4, 16, 64):
        for both in (0.0, 2.0):
            work = 3e8 * size**1.5
            load = Load(work, both * work, 2e7 * size, 30 + 100 * both)
            found.append(Sample(load, of.seconds(load) * (1 + noise * generator.standard_normal())))
    return found


def test_seconds_by_hand() -> None:
    assert Machine("m", 2.0, 4.0, 8.0, 16.0).seconds(Load(2.0, 4.0, 8.0, 1.0)) == 1 + 1 + 1 + 16


def test_rates_are_found_again() -> None:
    found = fit("x", samples(KNOWN))
    for rate in RATES:
        assert getattr(found, rate) == pytest.approx(getattr(KNOWN, rate), rel=1e-6)


def test_noise_moves_predictions_little() -> None:
    found = fit("x", samples(KNOWN, noise=0.05))
    for sample in samples(KNOWN):
        assert found.seconds(sample.load) == pytest.approx(sample.seconds, rel=0.1)


def test_what_costs_nothing_stays_harmless() -> None:
    """Bytes that take no time give a bandwidth without bound, never a negative one."""
    free = Machine("free", 8e10, 5e10, 1e30, 2e-4)
    found = fit("x", samples(free))
    assert found.bandwidth > 1e12
    assert all(math.isfinite(getattr(found, rate)) and getattr(found, rate) > 0 for rate in RATES)


def test_a_fit_of_absolute_errors_is_worse() -> None:
    """Deliberately wrong: without weights the long works decide, and the short ones are missed."""
    noisy = samples(KNOWN, noise=0.1)
    terms = np.array([[s.load.forward, s.load.backward, s.load.bytes, s.load.calls] for s in noisy])
    plain = np.linalg.lstsq(terms, np.array([s.seconds for s in noisy]))[0]
    relative = [abs(float(row @ plain) / s.seconds - 1) for row, s in zip(terms, noisy, strict=True)]
    ours = [abs(fit("x", noisy).seconds(s.load) / s.seconds - 1) for s in noisy]
    assert np.square(ours).sum() < np.square(relative).sum()


def test_calibration_runs_on_any_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SHAPES", ((2, 8, 12), (4, 8, 12), (4, 16, 12)))
    ticks = itertools.count()
    found = calibrate("here", rounds=1, clock=lambda: float(next(ticks)))
    assert found.measured
    assert all(math.isfinite(getattr(found, rate)) and getattr(found, rate) > 0 for rate in RATES)


def test_gpus_are_labelled() -> None:
    assert {"a100-40gb", "v100", "rtx3090", "rtx4090", "h100"} == set(GPUS)
    assert not any(each.measured for each in GPUS.values())
    assert gpu("h100").seconds(Load(1e15)) < gpu("v100").seconds(Load(1e15))
    with pytest.raises(SettingError, match="a100-40gb"):
        gpu("a100-40")
