"""One evaluation of an encoder: features encoded once, probes on them, Deviation and Overlap of the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ocssl._core.random import generator_for
from ocssl.data import Benchmark
from ocssl.evaluate.features import BenchmarkFeatures, encode_benchmark
from ocssl.evaluate.latent import overlap_count_from
from ocssl.evaluate.linear import Compat, Task, linear_probe, linear_probes
from ocssl.evaluate.probe_data import ProbeResult
from ocssl.evaluate.probes import knn_probe, ridge_probe
from ocssl.evaluate.spectrum_values import spectrum
from ocssl.evaluate.view_samples import measure_samples
from ocssl.learner import Learner
from ocssl.settings import EvaluateSettings

PROBES: dict[str, Callable[..., ProbeResult]] = {"linear": linear_probe, "ridge": ridge_probe, "knn": knn_probe}


@dataclass(frozen=True)
class Evaluation:
    """How good the representation is, and how healthy."""

    accuracy: float | None  # per cent of the test images; None: there are no labels
    deviation: float | None  # mean over stream images, projector space
    overlap: float | None  # share of pairs of stream images whose balls meet, encoder space
    online_overlap: float | None = None  # the same of the memory, from its stored statistics alone
    tasks: list[float] | None = None  # accuracy of each task's own probe
    spectrum: list[float] | None = None  # singular values of stream images' mean features, the largest 1


def evaluate(learner: Learner, benchmark: Benchmark, options: EvaluateSettings, seed: int) -> Evaluation:
    """Probe the encoder on the whole benchmark and measure its latent space; the learner stays as it is."""
    accuracy, tasks = None, None
    if benchmark.labelled:
        features = encode_benchmark(learner, benchmark)
        accuracy = probe(features, options.probe, options.compat, seed).accuracy
        if options.per_task:
            results = probe_tasks(features, options.probe, options.compat, seed, range(len(benchmark.tasks)))
            tasks = [result.accuracy for result in results]
    deviation, overlap, values = None, None, None
    if options.latent_samples:
        generator = generator_for(seed, "latent")
        chosen = torch.randperm(len(benchmark.train), generator=generator)[: options.latent_samples]
        samples = measure_samples(learner, benchmark.train.subset(chosen), options.latent_views, generator)
        deviation, overlap = samples.deviation, samples.overlap
        values = spectrum(samples.means).normalised.tolist()
    return Evaluation(accuracy, deviation, overlap, online_overlap(learner), tasks, values)


def probe(features: BenchmarkFeatures, name: str, compat: Compat, seed: int) -> ProbeResult:
    """One probe of all classes."""
    train, val, test = features.train, features.val, features.test
    more: dict[str, Any] = {"val_x": val.x, "val_y": val.labels} if len(val) else {}
    if name == "linear":
        more["compat"] = compat
    return PROBES[name](train.x, train.labels, test.x, test.labels, seed=seed, **more)


def probe_tasks(
    features: BenchmarkFeatures, name: str, compat: Compat, seed: int, tasks: Iterable[int]
) -> list[ProbeResult]:
    """A probe of its own for every task: the linear ones are trained together."""
    parts = [[part.of_task(task) for part in (features.train, features.val, features.test)] for task in tasks]
    if name == "linear":
        wanted = [
            Task(train.x, train.labels, test.x, test.labels, *((val.x, val.labels) if len(val) else ()))
            for train, val, test in parts
        ]
        return linear_probes(wanted, seed=seed, compat=compat)
    return [probe(BenchmarkFeatures(*part), name, compat, seed) for part in parts]


def online_overlap(learner: Learner) -> float | None:
    """Share of overlapping pairs in the memory by what it has stored; None where it stores no mean features."""
    store = learner.memory.store
    if "feature" not in store or len(learner.memory) < 2:
        return None
    return overlap_count_from(store["feature"], store["angle"])
