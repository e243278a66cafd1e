"""Every evaluated sample is scored exactly once: by each probe, task and rank, for numbers that fit no batch."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conftest import SMALL_STREAM
from ocssl.data import load_benchmark
from ocssl.evaluate import evaluation, knn_probe, linear_probe, probes, ridge_probe
from ocssl.evaluate.evaluation import PROBES, evaluate
from ocssl.evaluate.probes import ProbeResult
from ocssl.runs.run import _Session
from ocssl.settings import EvaluateSettings, StreamSettings

BATCH = 8
SIZES = (1, 2, BATCH - 1, BATCH, BATCH + 1, 13, 31)
NOBODY = -7  # a label that no training sample has
SMALL = {
    "linear": partial(linear_probe, epochs=2, batch=BATCH),
    "ridge": ridge_probe,
    "knn": partial(knn_probe, k=1),
}


def times_scored(probe: Any, n: int) -> list[int]:
    """How often each of n test samples counts: what the accuracy loses when its label alone becomes wrong."""
    classes = np.arange(n) % 3
    corners = 5 * np.eye(3, 4, dtype=np.float32)  # far apart: every answer is right
    train_y = np.tile(np.arange(3), 4)

    def right(labels: Any) -> float:
        result: ProbeResult = probe(corners[train_y], train_y, corners[classes], labels)
        return result.accuracy * result.scored / 100

    whole = right(classes)
    return [round(whole - right(np.where(np.arange(n) == sample, NOBODY, classes))) for sample in range(n)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (probes, "_SCORES", 3 * BATCH),
        (probes, "_DISTANCES", 12 * BATCH),
        (evaluation, "IMAGES_ENCODED", BATCH),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", PROBES)
def test_each_test_sample_counts_once(name: str, n: int, small_blocks: None) -> None:
    assert times_scored(SMALL[name], n) == [1] * n


def test_a_probe_without_its_last_batch_is_caught() -> None:
    counts = times_scored(partial(SMALL["linear"], compat="authors"), 2 * BATCH + 3)
    assert counts == [1] * 2 * BATCH + [0] * 3


class Copying:
    """In place of a learner: the features of an image are its first pixels, so that a count knows it again."""

    memory = SimpleNamespace(store={})

    def transform(self, images: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
        assert len(images) <= BATCH
        return images.flatten(1)[:, :40].float().numpy()


def evaluated(per_class: int, classes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter[bytes], Counter[bytes]]:
    """How often each test image was there, and how often it was scored, by the probe of all and by those of tasks."""
    scored: Counter[bytes] = Counter()

    def count(train_x: Any, train_y: Any, test_x: Any, test_y: Any, **more: Any) -> ProbeResult:
        scored.update(row.tobytes() + bytes([label]) for row, label in zip(test_x, test_y.tolist(), strict=True))
        return ProbeResult(100.0, len(test_x), np.asarray(test_y), None)

    monkeypatch.setitem(PROBES, "ridge", count)
    options = {k.removeprefix("stream."): v for k, v in SMALL_STREAM.items() if k.startswith("stream.")}
    options |= {"classes": classes, "test": per_class, "experiences": classes}
    benchmark = load_benchmark("synthetic", StreamSettings.model_validate(options))
    part = benchmark.test
    pixels = part.all().flatten(1)[:, :40].float().numpy()
    there = Counter(row.tobytes() + bytes([y]) for row, y in zip(pixels, part.labels.tolist(), strict=True))
    evaluate(
        Copying(),  # type: ignore[arg-type]
        benchmark,
        EvaluateSettings(probe="ridge", per_task=True, latent_samples=0),
        seed=0,
    )
    return there, scored


@pytest.mark.parametrize(("per_class", "classes"), [(1, 2), (1, 7), (3, 3), (2, 2), (13, 3), (31, 2)])
def test_an_evaluation_scores_each_image_once_by_the_probe_of_all_and_once_by_that_of_its_task(
    per_class: int, classes: int, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, scored = evaluated(per_class, classes, monkeypatch)
    assert sum(there.values()) == per_class * classes
    assert scored == Counter({image: 2 * times for image, times in there.items()})


def test_an_evaluation_without_its_last_batch_is_caught(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluation.encode

    def short(learner: Any, part: Any) -> Any:
        return whole(learner, part.subset(torch.arange(max(1, len(part) // BATCH * BATCH))))

    monkeypatch.setattr(evaluation, "encode", short)
    there, scored = evaluated(13, 3, monkeypatch)
    assert scored != Counter({image: 2 * times for image, times in there.items()})


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_of_several_ranks_one_evaluates_all_samples(size: int) -> None:
    measured = []
    for rank in range(size):
        run = SimpleNamespace(
            learner=SimpleNamespace(require_finite=lambda: None, gathered_memory=nullcontext),
            ranks=SimpleNamespace(first=rank == 0),
            _measure=lambda experience, rank=rank: measured.append((rank, experience)),
        )
        _Session._evaluate(run, 4)  # type: ignore[arg-type]
    assert measured == [(0, 4)]
