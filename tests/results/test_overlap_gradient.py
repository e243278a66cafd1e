"""The gradient of the Overlap loss, taken apart: watching changes nothing, centring leaves the size of features."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import ocssl
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from overlap_gradient import Observer, common_share, cone, contraction, watch

SETTINGS = {
    "encoder.width": 4,
    "objective.projection": 16,
    "memory.capacity": 40,
    "schedule.passes": 2,
    "schedule.batch": 30,
    "terms.overlap.k": 20,
}
IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (12, 10, 3, 8, 8), dtype=np.uint8))


def made(center: str) -> ocssl.Learner:
    settings = {**SETTINGS, "memory.center": center, "memory.center_ema": 0.0}  # the mean of the batch itself
    learner = ocssl.Learner("solar", image_size=8, settings=settings)
    for images in IMAGES[:8]:
        learner.partial_fit(images)
    return learner


def test_a_step_inwards_contracts_and_one_aside_does_not() -> None:
    x = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(0))
    inwards = x.mean((0, 1)) - x
    assert contraction(-3 * inwards, x) == pytest.approx(1, abs=1e-6)
    assert contraction(inwards, x) == pytest.approx(-1, abs=1e-6)
    aside = inwards.roll(1, -1)
    aside = aside - inwards * (aside * inwards).sum() / inwards.square().sum()
    assert contraction(aside, x) == pytest.approx(0, abs=1e-6)


def test_the_common_share_is_one_of_equal_rows_and_the_cone_their_cosine() -> None:
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    assert common_share(rows) == pytest.approx(1)
    assert cone(rows) == pytest.approx(1)
    assert common_share(torch.eye(4)) == pytest.approx(1 / 4)
    assert cone(torch.eye(4)) == pytest.approx(0, abs=1e-6)


def test_watching_changes_no_bit_of_training() -> None:
    plain, watched = made("none"), made("none")
    for images in IMAGES[8:]:
        plain.partial_fit(images)
    found = watch(watched, IMAGES[8:])
    assert len(found) == 6
    assert isinstance(watched.terms["overlap"], Observer)
    assert all(torch.equal(a, b) for a, b in zip(plain.tensors().values(), watched.tensors().values(), strict=True))


def test_only_the_centred_overlap_leaves_the_size_of_the_cloud_alone() -> None:
    push, pull, *_ = watch(made("running"), IMAGES[8:])
    assert abs(push) < 1e-3
    assert abs(pull) < 1e-3
    push, pull, *_ = watch(made("none"), IMAGES[8:])
    assert push < -0.01  # pushes outwards
    assert pull > 0.01  # and pulls inwards
