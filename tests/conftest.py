"""Shared by tests: small learners, random images, one thread a worker."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

import ocssl

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
    "evaluate.probe": "ridge",
    "evaluate.latent_samples": 6,
    "evaluate.latent_views": 2,
}
METHODS = ["solar", "er-fifo", "er-reservoir", "finetune"]


def small_settings(method: str, **more: Any) -> dict[str, Any]:
    """Settings for learners that take milliseconds a step."""
    settings = {**SMALL, **{key.replace("__", "."): value for key, value in more.items()}}
    if method == "solar":
        settings["terms.overlap.k"] = 6
    if method == "finetune":
        del settings["memory.capacity"]
    return settings


def small_learner(method: str = "solar", seed: int = 0, **more: Any) -> ocssl.Learner:
    return ocssl.Learner(method, image_size=8, seed=seed, settings=small_settings(method, **more))


def random_images(n: int, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    """Every recipe that comes with the package."""
    return str(request.param)
