"""A million images and more: whether a step stays as quick, and the process as small, as the stream goes on.

    python benchmarks/long_stream.py --images 1000000 --folder long -o long.json

SOLAR with a ResNet-10 of width 4 on images of 8 px, made on the way; 2,000 slots with loss, mean feature and angle;
minibatches of 50 (10 otherwise). To end within half an hour on one core, a minibatch is trained on once
(`schedule.passes` is 6 otherwise), 100 samples at a time (138), against 100 stored samples (500). For each tenth of the
stream: the time of a minibatch and the memory resident at its end; then the last tenth as so many times the first. The
time is given as it passed and as the processor's, which other work on the machine disturbs less.

With --folder the learner is saved every so often, and a killed run goes on from there: an image is a function of its
position, so that the end is the same to the bit. Saving is not timed. Steps after the last save are timed again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl._core import checkpoint
from ocssl._core.random import generator_for
from ocssl.data.sources.shapes import render
from ocssl.learner import Learner
from ocssl.results.evaluate_runs import write_json

SIZE, BATCH, TENTHS = 8, 50, 10
CLASSES, EACH, CHANGE = 20, 50, 10_000  # classes, images of a class that are drawn, images until the next class
NOISE = 24  # of 255
SETTINGS: dict[str, Any] = {
    "encoder.name": "resnet10",
    "encoder.width": 4,
    "objective.projection": 32,
    "schedule.passes": 1,
    "schedule.stream_batch": BATCH,
    "schedule.batch": 2 * BATCH,
    "terms.overlap.k": 100,
}


class Endless:
    """Minibatches by their number: images out of a small pool, class after class, each with noise of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        labels = torch.arange(CLASSES).repeat_interleave(EACH)
        self.pool = render(labels, torch.arange(len(labels)), SIZE, seed).view(CLASSES, EACH, 3, SIZE, SIZE)

    def __getitem__(self, number: int) -> Tensor:
        generator = generator_for(self.seed, f"minibatch {number}")
        rows = torch.randint(EACH, (BATCH,), generator=generator)
        images = self.pool[number * BATCH // CHANGE % CLASSES, rows].to(torch.int16)
        noise = torch.randint(-NOISE, NOISE + 1, images.shape, dtype=torch.int16, generator=generator)
        return (images + noise).clamp_(0, 255).to(torch.uint8)


class Clock:
    """Times of the steps of a stretch, elapsed and the processor's, in arrays that are filled again and again."""

    def __init__(self, most: int) -> None:
        self.times = np.ones((2, most))  # not zeros: the pages are to be there from the start
        self.steps = 0

    def time(self, work: Callable[[], object]) -> None:
        start, processor = time.perf_counter(), time.process_time()
        work()
        self.times[:, self.steps] = time.perf_counter() - start, time.process_time() - processor
        self.steps += 1

    def told(self) -> dict[str, Any]:
        """Lower quartile, median and upper quartile of what was timed; the clock begins anew."""
        quartiles = 1000 * np.quantile(self.times[:, : self.steps], [0.25, 0.5, 0.75], axis=1)
        figures = {"steps": self.steps, "ms": quartiles[:, 0].tolist(), "processor_ms": quartiles[:, 1].tolist()}
        self.steps = 0
        return figures


def resident() -> float:
    """MB of this process that are in memory now; Linux tells it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def state(learner: Learner) -> str:
    """One word for all that the learner has come to."""
    digest = hashlib.sha256(json.dumps(learner.facts(), sort_keys=True).encode())
    for name, tensor in sorted(learner.tensors().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def started(folder: Path | None, images: int, seed: int, capacity: int) -> tuple[Learner, dict[str, Any]]:
    """The learner and what was found so far: from the folder if something was saved there."""
    settings = {**SETTINGS, "memory.capacity": capacity}
    learner = Learner("solar", image_size=SIZE, seed=seed, settings=settings)
    asked = {"images": images, "seed": seed, "memory": capacity}
    if folder is None or not (folder / checkpoint.MANIFEST).exists():
        return learner, {**asked, "began_at": [0], "tenths": []}
    tensors, facts = checkpoint.read(folder)
    found = dict(facts["extra"])
    if {name: found.get(name) for name in asked} != asked:
        raise SystemExit(f"{folder} holds another stream than {asked}: name another folder.")
    learner = Learner.restore(tensors, facts)
    return learner, {**found, "began_at": [*found["began_at"], learner.seen]}


def walk(learner: Learner, found: dict[str, Any], save_every: int, folder: Path | None) -> None:
    """The rest of the stream. A tenth that a kill fell into is told by the steps after the last save before it."""
    stream, steps = Endless(found["seed"]), found["images"] // BATCH
    clock = Clock(steps // TENTHS)
    for number in range(learner.seen // BATCH, steps):
        images = stream[number]
        clock.time(lambda images=images: learner.partial_fit(images))
        done = number + 1
        tenth = done * TENTHS // steps
        if tenth > len(found["tenths"]):
            found["tenths"].append({"images": learner.seen, **clock.told(), "resident_mb": resident()})
            print(line(found["tenths"][-1]), flush=True)
        if folder and (done == steps or learner.seen % save_every == 0):
            learner.save(folder, found)


def line(tenth: dict[str, Any]) -> str:
    low, middle, high = tenth["ms"]
    return (
        f"{tenth['images']:>10,} images: {middle:6.2f} ms a step (quartiles {low:.2f} to {high:.2f}; "
        f"processor {tenth['processor_ms'][1]:.2f}), resident {tenth['resident_mb']:.1f} MB"
    )


def compared(tenths: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The last tenth as so many times the first."""
    first, last = tenths[0], tenths[-1]
    return {
        "ms": last["ms"][1] / first["ms"][1],
        "processor_ms": last["processor_ms"][1] / first["processor_ms"][1],
        "resident_mb": last["resident_mb"] / first["resident_mb"],
    }


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000, help=f"in whole {BATCH * TENTHS}s")
    parser.add_argument("--memory", type=int, default=2000, help="slots")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the learner is saved, and found again")
    parser.add_argument("--save-every", type=int, default=10_000, help=f"in images, in whole {BATCH}s")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for all numbers")
    options = parser.parse_args(words)
    for name, given, unit in (
        ("--images", options.images, BATCH * TENTHS),
        ("--save-every", options.save_every, BATCH),
    ):
        if given < unit or given % unit:
            parser.error(f"{name} must be a multiple of {unit}, not {given}.")
    torch.set_num_threads(options.threads)
    learner, found = started(options.folder, options.images, options.seed, options.memory)
    walk(learner, found, options.save_every, options.folder)
    found |= {"last_to_first": compared(found["tenths"]), "state": state(learner)}
    ratios = found["last_to_first"]
    print(
        f"last tenth / first: step {ratios['ms']:.3f}, its processor time {ratios['processor_ms']:.3f}, "
        f"resident memory {ratios['resident_mb']:.3f}; state {found['state'][:16]}"
    )
    if options.output:
        write_json(found, options.output)
    return found


if __name__ == "__main__":
    main()
