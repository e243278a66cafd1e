"""Shared by tests: small learners, random images, one thread a worker unless OMP_NUM_THREADS says otherwise."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it; also for processes that tests start

import pytest
import torch
from torch import Tensor, nn

import ocssl
from ocssl import recipes
from ocssl.encoders import ENCODERS

ROOT = Path(__file__).parents[1]
REAL_DATA = ROOT.parent / "shared" / "data"  # real images for development; tests that need them are skipped without

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
    "solar-c": {"terms.overlap.k": 6},
    "cmp": {"objective.patches": 4},
    "mir": {"memory.rules.mir.candidates": 20},
    "gss": {"memory.rules.gss.subsets": 3, "memory.rules.gss.subset_size": 3},
}


def small_settings(method: str, **more: Any) -> dict[str, Any]:
    """Settings for learners that take milliseconds a step; a recipe without memory stays without."""
    settings = {**SMALL, **SMALL_OF.get(method, {})}
    if recipes.resolve(method, None, {}).get("memory", {}).get("capacity") == 0:
        del settings["memory.capacity"]
    settings |= {key.replace("__", "."): value for key, value in more.items()}
    if "width" not in ENCODERS.options(settings["encoder.name"]):
        del settings["encoder.width"]
    return settings


@ENCODERS.add("tiny")
class Tiny(nn.Module):
    """A convolution, batch norm and a linear layer: a third of the time of the smallest that comes with the package."""

    def __init__(self, image_size: int, *, width: int = 2) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4 * width, 3, 2, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.last = nn.Linear(4 * width, 8 * width)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.last(torch.relu(self.bn(self.conv(x))).mean(dim=(2, 3)))
        return features


def small_learner(method: str = "solar", seed: int = 0, **more: Any) -> ocssl.Learner:
    more = {"encoder__name": "tiny", **more}
    return ocssl.Learner(method, image_size=8, seed=seed, settings=small_settings(method, **more))


def random_images(n: int, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    """Until something is so; what never is fails the test instead of hanging it."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.05)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the workers of a pool or a cluster have it: bits are compared with theirs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    """Every recipe that comes with the package."""
    return str(request.param)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table at the end of `make torture`: what was tried, how often, and what it found."""
    stats = terminalreporter.stats
    reports = [report for kind in ("passed", "failed") for report in stats.get(kind, [])]
    rows = {tuple(value) for report in reports for key, value in report.user_properties if key == "torture"}
    if not rows or not os.environ.get("OCSSL_TORTURE"):
        return
    terminalreporter.section("torture")
    for what, count, findings in [("what", "how many", "findings"), *sorted(rows)]:
        terminalreporter.write_line(f"{what:<60} {count:>14} {findings:>9}")
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    terminalreporter.write_line(f"{'tests that failed':<60} {'':>14} {failed:>9}")
