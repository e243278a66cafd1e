"""One evaluation of an encoder: features encoded once, probes on them, Deviation and Overlap of random views."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl._core.measures import MEASURES
from ocssl._core.random import evaluating, generator_for
from ocssl.data import Benchmark, Subset
from ocssl.errors import DataError
from ocssl.evaluate import label_free
from ocssl.evaluate.latent_metrics import alignment, deviation, spectrum
from ocssl.evaluate.linear_classifiers import Compat, linear_probe, linear_probes
from ocssl.evaluate.overlap_metric import overlap_count_from, sample_angles
from ocssl.evaluate.probes import ProbeResult, Task, knn_probe, ridge_probe
from ocssl.learner import Learner
from ocssl.settings import EvaluateSettings

IMAGES_ENCODED = 256  # images that are encoded at once
IMAGES_VIEWED = 32  # images whose views are encoded at once
PROBES: dict[str, Callable[..., ProbeResult]] = {"linear": linear_probe, "ridge": ridge_probe, "knn": knn_probe}


@dataclass(frozen=True)
class Evaluation:
    """How good the representation is, and how healthy."""

    accuracy: float | None  # per cent of the test images; None: there are no labels, or no test images
    deviation: float | None  # mean over stream images, projector space
    overlap: float | None  # share of pairs of stream images whose balls meet, encoder space
    online_overlap: float | None = None  # the same of the memory, from its stored statistics alone
    tasks: list[float] | None = None  # accuracy of each task's own probe
    spectrum: list[float] | None = None  # singular values of stream images' mean features, the largest 1
    more: dict[str, float | None] = field(default_factory=dict)  # measures that are functions of the features

    def facts(self) -> dict[str, Any]:
        """What an event records of it, by key; the spectrum has its own event."""
        return {key: value for key, value in asdict(self).items() if key not in ("spectrum", "more")} | self.more


def evaluate(learner: Learner, benchmark: Benchmark, options: EvaluateSettings, seed: int) -> Evaluation:
    """Probe the encoder on the whole benchmark and measure its latent space; the learner stays as it is."""
    accuracy, tasks = None, None
    own = {measure.key: measure.compute for measure in MEASURES.of("evaluation") if measure.compute}
    features = encode_benchmark(learner, benchmark) if benchmark.labelled or own else None
    if features and benchmark.labelled and not (len(features.train) and len(features.test)):
        part = "training" if len(features.test) else "test"
        warnings.warn(f"none of the {part} images of {benchmark.name} can be used: there is no probe.", stacklevel=2)
    elif features and benchmark.labelled:
        accuracy = probe(features, options.probe, options.compat, seed).accuracy
        if options.per_task:
            results = probe_tasks(features, options.probe, options.compat, seed, range(len(benchmark.tasks)))
            tasks = [result.accuracy for result in results]
    mean_deviation, overlap, values = None, None, None
    unlabelled: dict[str, float | None] = {}
    if options.latent_samples:
        generator = generator_for(seed, "latent")
        chosen = torch.randperm(len(benchmark.train), generator=generator)[: options.latent_samples]
        samples = measure_views(learner, benchmark.train.subset(chosen), options.latent_views, generator)
        mean_deviation, overlap = samples.deviation, samples.overlap
        unlabelled = label_free.measures(samples.views)
        values = spectrum(samples.means).normalised.tolist()
    found = {key: compute(features) for key, compute in own.items()}
    more = {key: None if value is None else float(value) for key, value in found.items()} | unlabelled
    return Evaluation(accuracy, mean_deviation, overlap, online_overlap(learner), tasks, values, more)


# ---- probes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Features:
    """What an encoder makes of a part: one row for each image that can be used."""

    x: npt.NDArray[np.float32]  # [n, d]
    labels: Tensor  # [n]
    tasks: Tensor  # [n]

    def __len__(self) -> int:
        return len(self.x)

    def of_task(self, task: int) -> Features:
        index = self.tasks == task
        return Features(self.x[index.numpy()], self.labels[index], self.tasks[index])


class BenchmarkFeatures(NamedTuple):
    """Features of all three parts of a benchmark."""

    train: Features
    val: Features
    test: Features


def encode(learner: Learner, part: Subset) -> Features:
    """Features of a part's images as they are, the encoder in eval mode; the learner stays as it is."""
    blocks, kept = [], []
    cuts = torch.arange(len(part)).split(IMAGES_ENCODED)
    for cut, (images, usable) in zip(cuts, part.walk(cuts), strict=True):
        if len(images):
            blocks.append(learner.transform(images))
        kept.append(cut[usable])
    if not blocks:
        return Features(np.zeros((0, 0), np.float32), torch.zeros(0).long(), torch.zeros(0).long())
    index = torch.cat(kept)
    return Features(np.concatenate(blocks), part.labels[index], part.tasks[index])


def encode_benchmark(learner: Learner, benchmark: Benchmark) -> BenchmarkFeatures:
    return BenchmarkFeatures(*(encode(learner, part) for part in (benchmark.train, benchmark.val, benchmark.test)))


def probe(features: BenchmarkFeatures, name: str, compat: Compat, seed: int) -> ProbeResult:
    """One probe of all classes."""
    more: dict[str, Any] = {"compat": compat} if name == "linear" else {}
    return PROBES[name](**vars(_arrays(*features)), seed=seed, **more)


def probe_tasks(
    features: BenchmarkFeatures, name: str, compat: Compat, seed: int, tasks: Iterable[int]
) -> list[ProbeResult]:
    """A probe for every task: the linear ones are trained together."""
    by_task = [BenchmarkFeatures(*(part.of_task(task) for part in features)) for task in tasks]
    if name == "linear":
        return linear_probes([_arrays(*each) for each in by_task], seed=seed, compat=compat)
    return [probe(each, name, compat, seed) for each in by_task]


def _arrays(train: Features, val: Features, test: Features) -> Task:
    held = (val.x, val.labels) if len(val) else ()
    return Task(train.x, train.labels, test.x, test.labels, *held)


# ---- random views ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ViewStatistics:
    """Deviation and Overlap of a set of images, each seen through many random views, the network in eval mode."""

    deviation: float  # mean over the images, projector space
    overlap: float  # share of pairs whose balls meet, encoder space
    alignment: float  # mean squared distance between views of an image, encoder space
    means: Tensor  # [n, d] mean feature of each image
    angles: Tensor  # [n] radius of each image's ball, radians
    views: Tensor  # [m, v, d] features of the first images' views: as many images as label_free.MOST_VALUES allows


@torch.no_grad()
def measure_views(learner: Learner, part: Subset, views: int, generator: torch.Generator) -> ViewStatistics:
    """Encode `views` views of every image of a part.

    Memory is that of a block, of one mean feature an image and of label_free.MOST_VALUES features.
    """
    deviations, means, angles, alignments = [], [], [], []
    kept: list[Tensor] = []
    room = label_free.MOST_VALUES
    encoder, projector = learner.encoder, learner.objective.projector
    with evaluating(learner.network):
        for images, _ in part.walk(torch.arange(len(part)).split(IMAGES_VIEWED)):
            if not len(images):
                continue
            batch = learner.views(images.to(learner.device), generator, views).flatten(0, 1)  # [V b, 3, S, S]
            encoded = encoder(batch).float()
            projected = projector(encoded).float()
            by_sample = encoded.unflatten(0, (views, -1)).transpose(0, 1)  # [b, V, D]
            deviations.append(deviation(projected.unflatten(0, (views, -1)).transpose(0, 1), per_sample=True))
            means.append(by_sample.mean(1))
            angles.append(torch.as_tensor(sample_angles(by_sample)))
            alignments += [alignment(by_sample)] * len(images)
            fitting = min(len(images), room // by_sample[0].numel())
            kept += [by_sample[:fitting].cpu()]
            room = room - kept[-1].numel() if fitting == len(images) else 0
    if not means:
        raise DataError("no image could be used to measure Deviation and Overlap on.")
    centres, radii = torch.cat(means), torch.cat(angles)
    return ViewStatistics(
        float(torch.cat([torch.as_tensor(values) for values in deviations]).mean()),
        overlap_count_from(centres, radii),
        float(np.mean(alignments)),
        centres.cpu(),
        radii.cpu(),
        torch.cat(kept),
    )


def online_overlap(learner: Learner) -> float | None:
    """Share of overlapping pairs in the memory by what it has stored; None where it stores no mean features."""
    store = learner.memory.store
    if "feature" not in store or len(learner.memory) < 2:
        return None
    return overlap_count_from(store["feature"], store["angle"])
