"""Prints how much memory each latent metric took beside its input, for each number of times the samples: JSON, in MB.

Each metric runs in a child of its own, as the peak of a process only rises.
"""

import json
import multiprocessing
import resource
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocssl.evaluate import deviation, overlap_count_from, sample_angles, spectrum, uniformity
from ocssl.evaluate.latent_metrics import alignment

MB = 2**20 if sys.platform == "darwin" else 2**10  # of what getrusage counts in

CASES: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Any]]] = {  # metric and the shape of its input at 1 time
    "overlap_count_from": ((2500, 768), lambda x: overlap_count_from(x, torch.linspace(0, 0.8, len(x)))),
    "deviation": ((5000, 4, 256), deviation),
    "deviation near 0": ((5000, 4, 256), lambda x: deviation(x.mul_(0.001).add_(1))),
    "sample_angles": ((5000, 4, 256), sample_angles),
    "alignment": ((5000, 4, 256), alignment),
    "alignment 3": ((5000, 4, 256), lambda x: alignment(x, 3.0)),
    "uniformity": ((20000, 256), lambda x: uniformity(x, max_samples=1500)),
    "uniformity of all": ((2500, 768), lambda x: uniformity(x, max_samples=None)),
    "spectrum": ((20000, 64), spectrum),
    "a copy": ((5000, 4, 256), lambda x: x.clone()),
}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB


def measure(name: str, times: int, answers: Any) -> None:
    (n, *rest), metric = CASES[name]
    torch.set_num_threads(1)
    features = torch.empty(n * times, *rest)
    generator = torch.Generator().manual_seed(0)
    for block in features.split(500):
        block.normal_(generator=generator)
    before = peak()
    metric(features)
    answers.put({"input": features.nbytes / 2**20, "extra": peak() - before})


def main() -> None:
    fork = multiprocessing.get_context("fork")  # torch is imported once
    found = {}
    for name in CASES:
        for times in map(int, sys.argv[1:]):
            answers = fork.SimpleQueue()
            child = fork.Process(target=measure, args=(name, times, answers))
            child.start()
            child.join()
            if child.exitcode:
                raise SystemExit(f"{name} x{times} failed")
            found[f"{name} x{times}"] = answers.get()
    sys.stdout.write(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
