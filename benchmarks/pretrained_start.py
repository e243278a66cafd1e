"""What a short stream does to an encoder that starts from good weights: probes before and after.

    python benchmarks/efficientnet_lite0.py lite0.safetensors
    python benchmarks/pretrained_start.py lite0.safetensors --data DIR --out docs/results/pretrained --seeds 3

DIR holds the folders mini-imagenet-64 and pacs-96. A cell that is in the folder `--out` is not run again, so that the
same command continues a study that was stopped. timm is imported without torchvision where that is broken or missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ocssl._distributed.ranks import ALONE
from ocssl._files.atomic import replace_file
from ocssl.data import Benchmark, load_benchmark
from ocssl.evaluate.evaluation import BenchmarkFeatures, encode_benchmark, probe
from ocssl.learner import Learner
from ocssl.runs.config import resolve_run
from ocssl.runs.run import make_stream, new_learner
from torchvision_standin import import_timm

BENCHMARKS = {"mini-imagenet": ("mini-imagenet-64", 0.02), "pacs": ("pacs-96", 0.05)}  # folder, share of its images
METHODS = ["solar", "solar-c"]
NAIVE: dict[str, Any] = {
    "encoder.freeze": 0,
    "encoder.batch_norm": "train",
    "optimizer.encoder_lr": 1.0,
    "optimizer.encoder_start": 0,
}
NORM: dict[str, Any] = {**NAIVE, "encoder.batch_norm": "frozen"}
HEADS: dict[str, Any] = {**NORM, "optimizer.encoder_start": 20}
VARIANTS: dict[str, dict[str, Any]] = {
    "all trained": NAIVE,  # as random weights are
    "first 5 stages frozen": {**NAIVE, "encoder.freeze": 5},
    "rate 0.1": {**NAIVE, "optimizer.encoder_lr": 0.1},
    "rate 0.01": {**NAIVE, "optimizer.encoder_lr": 0.01},
    "batch norm frozen": NORM,
    "batch norm frozen, rate 0.1": {**NORM, "optimizer.encoder_lr": 0.1},
    "batch norm frozen, rate 0.01": {**NORM, "optimizer.encoder_lr": 0.01},
    "batch norm frozen, rate 0.003": {**NORM, "optimizer.encoder_lr": 0.003},
    "batch norm frozen, rate 0.001": {**NORM, "optimizer.encoder_lr": 0.001},
    "batch norm frozen, rate 0.0003": {**NORM, "optimizer.encoder_lr": 0.0003},
    "batch norm frozen, rate 0.03": {**NORM, "optimizer.encoder_lr": 0.03},
    "heads first, rate 0.001": {**HEADS, "optimizer.encoder_lr": 0.001},
    "heads first, rate 0.003": {**HEADS, "optimizer.encoder_lr": 0.003},
    "heads first, rate 0.01": {**HEADS, "optimizer.encoder_lr": 0.01},
    "heads first, rate 0.03": {**HEADS, "optimizer.encoder_lr": 0.03},
    "heads first, rate 0.1": {**HEADS, "optimizer.encoder_lr": 0.1},
    "100 steps of heads first, rate 0.01": {**NORM, "optimizer.encoder_start": 100, "optimizer.encoder_lr": 0.01},
}
STUDY = ["all trained", "first 5 stages frozen", "batch norm frozen, rate 0.0003"]  # the last is the default
SMALL = {
    "encoder.name": "timm:tf_efficientnet_lite0",
    "stream.image_size": 64,
    "stream.validation": 0.0,
    "schedule.batch": 32,
    "schedule.passes": 1,
    "memory.capacity": 200,
    "objective.projection": 512,
    "terms.overlap.k": 50,
}
PROBED = 2000  # images to train a probe on, and half as many to test it on
PROBES = ("linear", "knn")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--longer", type=int, default=1, help="how many times as many images to learn from")
    parser.add_argument("--method", action="append", choices=METHODS, help="only these")
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), help="only these")
    parser.add_argument(
        "--probe-seeds", type=int, default=1, help="average the linear probe over this many of its seeds"
    )
    parser.add_argument("--spread", type=int, default=0, help="only the start, by this many seeds of the linear probe")
    chosen = parser.parse_args()
    import_timm()
    if chosen.spread:
        for name in BENCHMARKS:
            print(name, *spread(name, chosen))
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    for seed, method, name, variant in product(
        range(chosen.seeds), chosen.method or METHODS, BENCHMARKS, chosen.variant or STUDY
    ):
        file = chosen.out / f"{name}-{method}-{variant.replace(',', '').replace(' ', '-')}-seed{seed}.json"
        if not file.exists():
            found = cell(name, method, variant, seed, chosen)
            replace_file(file, (json.dumps(found, indent=1) + "\n").encode())
            print(json.dumps(found), flush=True)
    print(table(chosen.out))


def cell(name: str, method: str, variant: str, seed: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """One run: accuracies of the probes before and after it."""
    folder, share = BENCHMARKS[name]
    given = {**SMALL, **VARIANTS[variant], "encoder.weights": str(chosen.weights)}
    given["stream.fraction"] = share * chosen.longer
    given["data.path"] = str((chosen.data / folder).absolute())
    settings = resolve_run(method, name, seed, given)
    whole = resolve_run(method, name, seed, {**given, "stream.fraction": 1.0})
    stream = make_stream(load_benchmark(settings.benchmark, settings.stream, settings.data), settings)
    probed = sample(load_benchmark(whole.benchmark, whole.stream, whole.data))
    learner = new_learner(settings, "cpu", ALONE)
    before = accuracies(learner, probed, chosen.probe_seeds, chosen.out / f".{name}-before.json")
    losses = [learner.partial_fit(batch.images, ids=batch.ids).loss for batch in stream.batches()]
    after = accuracies(learner, probed, chosen.probe_seeds)
    return {
        "benchmark": name,
        "method": method,
        "variant": variant,
        "seed": seed,
        "images": learner.seen,
        "steps": learner.steps,
        "encoder_lr": settings.optimizer.encoder_lr,
        "freeze": settings.encoder.freeze,
        "last_losses": [round(loss, 4) for loss in losses[-3:]],
        "before": before,
        "after": after,
    }


def spread(name: str, chosen: argparse.Namespace) -> list[float]:
    """Accuracies of linear probes of several seeds on the same features: those before training."""
    given = {**SMALL, **NORM, "encoder.weights": str(chosen.weights)}
    given["data.path"] = str((chosen.data / BENCHMARKS[name][0]).absolute())
    settings = resolve_run("solar", name, 0, given)
    probed = sample(load_benchmark(settings.benchmark, settings.stream, settings.data))
    features = encode_benchmark(new_learner(settings, "cpu", ALONE), probed)
    return [round(probe(features, "linear", "none", seed).accuracy, 2) for seed in range(chosen.spread)]


def sample(benchmark: Benchmark) -> Benchmark:
    """The same few images of a benchmark in every cell."""
    generator = torch.Generator().manual_seed(0)

    def some(count: int, most: int) -> torch.Tensor:
        return torch.randperm(count, generator=generator)[:most].sort().values

    train, test = benchmark.train, benchmark.test

    return replace(
        benchmark,
        train=train.subset(some(len(train), PROBED)),
        test=test.subset(some(len(test), PROBED // 2)),
    )


def accuracies(learner: Learner, benchmark: Benchmark, seeds: int, known: Path | None = None) -> dict[str, float]:
    """Accuracy of each probe, in per cent, its mean over seeds; what all cells share is read where it is known."""
    if known is not None and known.exists():
        return dict(json.loads(known.read_text()))
    features: BenchmarkFeatures = encode_benchmark(learner, benchmark)
    drawn = {name: range(seeds if name == "linear" else 1) for name in PROBES}  # kNN draws nothing
    found = {
        name: round(fmean(probe(features, name, "none", seed).accuracy for seed in drawn[name]), 2) for name in PROBES
    }
    if known is not None:
        known.write_text(json.dumps(found))
    return found


def table(folder: Path) -> str:
    """The cells of a folder as a table: accuracies after training, one entry a seed, and before it."""
    cells = [json.loads(path.read_text()) for path in sorted(folder.glob("[!.]*.json"))]
    columns = [(name, probe) for name in BENCHMARKS for probe in PROBES]
    before = {(cell["benchmark"], probe): cell["before"][probe] for cell in cells for probe in PROBES}
    lines = ["| method | encoder | " + " | ".join(f"{name}, {probe}" for name, probe in columns) + " |"]
    lines += ["| --- | --- |" + " ---: |" * len(columns)]
    lines += ["| | before | " + " | ".join(f"{before.get(column, '')}" for column in columns) + " |"]
    for method, variant in product(METHODS, VARIANTS):
        own = [cell for cell in cells if (cell["method"], cell["variant"]) == (method, variant)]
        found = [", ".join(str(c["after"][probe]) for c in own if c["benchmark"] == name) for name, probe in columns]
        lines += [f"| `{method}` | {variant} | " + " | ".join(found) + " |"] if own else []
    return "\n".join(lines)


if __name__ == "__main__":
    main()
