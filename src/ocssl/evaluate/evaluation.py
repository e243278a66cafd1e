"""One evaluation of an encoder: features encoded once, a probe on them, Deviation and Overlap of the stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.evaluate.latent import deviation, overlap_count_from, sample_angles
from ocssl.evaluate.probes import ProbeResult, knn_probe, linear_probe, ridge_probe
from ocssl.learner import Learner
from ocssl.streams import Benchmark
from ocssl.weights import evaluating, generator_for

PROBES: dict[str, Callable[..., ProbeResult]] = {"linear": linear_probe, "ridge": ridge_probe, "knn": knn_probe}
IMAGES_AT_ONCE = 32  # times the number of views: what the latent metrics encode in one go


@dataclass(frozen=True)
class Evaluation:
    """How good the representation is, and how healthy."""

    accuracy: float  # per cent of the test images
    deviation: float | None  # mean over stream images, projector space
    overlap: float | None  # share of pairs of stream images whose balls meet, encoder space


def evaluate(learner: Learner, benchmark: Benchmark, probe: str, samples: int, views: int, seed: int) -> Evaluation:
    """Probe the encoder on the whole benchmark and measure its latent space; the learner stays as it is."""
    train, val, test = benchmark.train, benchmark.val, benchmark.test
    train_x, test_x = learner.transform(train.images), learner.transform(test.images)
    held_out = {"val_x": learner.transform(val.images), "val_y": val.labels} if len(val) else {}
    result = PROBES[probe](train_x, train.labels, test_x, test.labels, seed=seed, **held_out)
    if not samples:
        return Evaluation(result.accuracy, None, None)
    generator = generator_for(seed, "latent")
    chosen = torch.randperm(len(train), generator=generator)[:samples]
    return Evaluation(result.accuracy, *latent(learner, train.images[chosen], views, generator))


@torch.no_grad()
def latent(learner: Learner, images: Tensor, views: int, generator: torch.Generator) -> tuple[float, float]:
    """Deviation (projector space) and share of overlapping pairs (encoder space) over random views, in eval mode."""
    deviations, means, angles = [], [], []
    encoder, projector = learner.encoder, learner.objective.projector
    with evaluating(learner.network):
        for block in images.split(IMAGES_AT_ONCE):
            batch = learner.views(block.to(learner.device), generator, views).flatten(0, 1)  # [V b, 3, S, S]
            encoded = encoder(batch).float()
            projected = projector(encoded).float()
            by_sample = encoded.unflatten(0, (views, -1)).transpose(0, 1)  # [b, V, D]
            deviations.append(
                torch.as_tensor(deviation(projected.unflatten(0, (views, -1)).transpose(0, 1), per_sample=True))
            )
            means.append(by_sample.mean(1))
            angles.append(torch.as_tensor(sample_angles(by_sample)))
    return float(torch.cat(deviations).mean()), overlap_count_from(torch.cat(means), torch.cat(angles))
