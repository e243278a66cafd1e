"""Shared by tests: small learners, random images, one thread a worker."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

import ocssl
from ocssl import recipes

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

SMALL: dict[str, Any] = {
    "encoder.name": "resnet10",
    "encoder.width": 2,
    "objective.projection": 16,
    "memory.capacity": 24,
    "schedule.passes": 2,
    "schedule.batch": 16,
}
SMALL_STREAM: dict[str, Any] = {
    "stream.image_size": 8,
    "stream.classes": 4,
    "stream.experiences": 2,
    "stream.train": 20,
    "stream.test": 5,
    "stream.epochs": 1,
    "stream.drop_last": True,
    "evaluate.probe": "ridge",
    "evaluate.latent_samples": 6,
    "evaluate.latent_views": 2,
}
METHODS = list(recipes.methods())
SMALL_OF: dict[str, dict[str, Any]] = {  # what else must be small, where a recipe has it
    "solar": {"terms.overlap.k": 6},
    "cmp": {"objective.patches": 4},
    "mir": {"memory.rules.mir.candidates": 20},
    "gss": {"memory.rules.gss.subsets": 3, "memory.rules.gss.subset_size": 3},
}


def small_settings(method: str, **more: Any) -> dict[str, Any]:
    """Settings for learners that take milliseconds a step; a recipe without memory stays without."""
    settings = {**SMALL, **SMALL_OF.get(method, {})}
    if recipes.resolve(method, None, {}).get("memory", {}).get("capacity") == 0:
        del settings["memory.capacity"]
    return {**settings, **{key.replace("__", "."): value for key, value in more.items()}}


def small_learner(method: str = "solar", seed: int = 0, **more: Any) -> ocssl.Learner:
    return ocssl.Learner(method, image_size=8, seed=seed, settings=small_settings(method, **more))


def random_images(n: int, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    """Every recipe that comes with the package."""
    return str(request.param)
