"""What the latent metrics cost: time beside the bare operation under each, interleaved in one process, and memory.

    python benchmarks/latent.py --rounds 5
    python benchmarks/latent.py --large

Overlap of 1,000 to 20,000 samples in 512-d against the matrix product of that size, in blocks of 1,024 rows into memory
made before: the whole product, and its upper half, which is all that a symmetric count needs. Deviation and angles of
10,000 samples with 20 views against reading the views once (their sum) and copying them. Singular values against those
of the whole matrix in float64. A ratio is that of neighbouring runs; the peak of memory is what a process of its own
grew by beside its input. --large adds 100,000 samples.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ocssl.evaluate.latent import (
    alignment,
    deviation,
    overlap_count,
    overlap_count_from,
    sample_angles,
    spectrum,
    uniformity,
)

Clock = Callable[[], float]
FEATURES, ROWS = 512, 1024
METRICS: dict[str, Callable[[Tensor], Any]] = {
    "overlap_count_from": lambda x: overlap_count_from(x, angles_of(len(x))),
    "overlap_count": overlap_count,
    "deviation": deviation,
    "alignment": alignment,
    "uniformity (5,000 rows)": uniformity,
    "spectrum": spectrum,
}


def drawn(*shape: int, spread: float = 1.0) -> Tensor:
    """Normal features; views lie around a centre of their sample."""
    generator = torch.Generator().manual_seed(0)
    values = torch.empty(shape)
    for block in values.split(500):
        block.normal_(generator=generator)
        if len(shape) == 3:
            block.mul_(spread).add_(torch.randn(len(block), 1, shape[2], generator=generator))
    return values


def angles_of(n: int) -> Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(1)) * 0.9


def timed(work: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def told(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:8.3f} (quartiles {low:.3f} to {high:.3f})"


def compare(title: str, works: dict[str, Callable[[], Any]], rounds: int, against: Sequence[str], clock: Clock) -> None:
    """Run all works in turn, forwards and backwards, and print their seconds and ratios to those named."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name in list(works) if number % 2 else list(works)[::-1]:
            spent = timed(works[name], clock)
            if number:  # the first round warms up
                seconds[name].append(spent)
    print(f"{title}; {rounds} rounds")
    for name, all_spent in seconds.items():
        print(f"  {name:<34} s {told(all_spent)}")
    for base in against:
        for name in works:
            if name not in against:
                ratios = [a / b for a, b in zip(seconds[name], seconds[base], strict=True)]
                print(f"  {name:<34} / {base}: {told(ratios)}", flush=True)


def product(features: Tensor, half: bool) -> None:
    """The bare product of features [n, d] with themselves in blocks, or of each pair of blocks once."""
    room = torch.empty(ROWS * ROWS)
    for i, rows in enumerate(features.split(ROWS)):
        for columns in features.split(ROWS)[i if half else 0 :]:
            out = room[: len(rows) * len(columns)].view(len(rows), len(columns))
            torch.mm(rows, columns.T, out=out)


def overlap_ratios(n: int, rounds: int, views: Sequence[int], clock: Clock) -> None:
    means, angles = drawn(n, FEATURES), angles_of(n)
    works: dict[str, Callable[[], Any]] = {
        "bare product": lambda: product(means, half=False),
        "half of it": lambda: product(means, half=True),
        "overlap_count_from": lambda: overlap_count_from(means, angles),
    }
    for v in views:
        works[f"overlap_count, {v} views"] = partial(overlap_count, drawn(n, v, FEATURES))
    compare(f"Overlap of {n:,} x {FEATURES}", works, rounds, ["bare product", "half of it"], clock)


def views_ratios(n: int, v: int, rounds: int, clock: Clock) -> None:
    views, near = drawn(n, v, FEATURES), drawn(n, v, FEATURES, spread=0.01)
    room = torch.empty_like(views)
    works: dict[str, Callable[[], Any]] = {
        "read once": views.sum,
        "copy": lambda: room.copy_(views),
        "deviation": lambda: deviation(views),
        "deviation of nearly equal views": lambda: deviation(near),
        "alignment": lambda: alignment(views),
        "sample_angles": lambda: sample_angles(views),
    }
    compare(f"{n:,} samples x {v} views x {FEATURES}", works, rounds, ["read once", "copy"], clock)


def rows_ratios(n: int, rounds: int, clock: Clock) -> None:
    features = drawn(n, FEATURES)
    works: dict[str, Callable[[], Any]] = {
        "singular values of float64 at once": lambda: torch.linalg.svdvals(features.double()),
        "spectrum": lambda: spectrum(features),
    }
    compare(f"Spectrum of {n:,} x {FEATURES}", works, rounds, ["singular values of float64 at once"], clock)


def grown(name: str, shape: Sequence[int], threads: int, answers: Any) -> None:
    torch.set_num_threads(threads)
    features = drawn(*shape)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = timed(lambda: METRICS[name](features))
    answers.put((features.nbytes / 2**20, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit, spent))


def memory(sizes: Sequence[int], threads: int) -> None:
    """Peaks of memory beside the input. Children are forked before this process has threads."""
    fork = multiprocessing.get_context("fork")
    print("peak of memory beside the input")
    for n in sizes:
        for name in METRICS:
            views = name in ("overlap_count", "deviation", "alignment")
            widths = [64] if views else [128, FEATURES] if name == "overlap_count_from" else [FEATURES]
            for shape in [(n, 4, d) if views else (n, d) for d in widths]:
                answers = fork.SimpleQueue()
                child = fork.Process(target=grown, args=(name, shape, threads, answers))
                child.start()
                child.join()
                if child.exitcode:
                    raise SystemExit(f"{name} of {shape} failed")
                given, extra, spent = answers.get()
                size = " x ".join(f"{x:,}" for x in shape)
                print(
                    f"  {name:<24} {size:<18} input {given:6.0f} MB, beside it {extra:5.0f} MB, {spent:7.2f} s",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is timed, at least 2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--busy", action="store_true", help="processor time, with one thread: for a machine that others use"
    )
    parser.add_argument("--large", action="store_true", help="100,000 samples too: minutes")
    args = parser.parse_args()
    rounds, threads = max(2, args.rounds), 1 if args.busy else args.threads
    clock: Clock = time.process_time if args.busy else time.perf_counter
    print(f"{threads} threads, {'processor' if args.busy else 'elapsed'} time")
    memory([1000, 20000, *([100000] if args.large else [])], threads)
    torch.set_num_threads(threads)
    for n in (1000, 5000):
        overlap_ratios(n, 4 * rounds, [2, 20], clock)
    overlap_ratios(20000, rounds, [2, 20], clock)
    if args.large:
        overlap_ratios(100000, 2, [], clock)
    views_ratios(10000, 20, 4 * rounds, clock)
    for n in (1000, 20000):
        rows_ratios(n, rounds, clock)


if __name__ == "__main__":
    main()
