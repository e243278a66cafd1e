"""Resident memory of a learner along a stream of files, and along one ten times as long.

    python benchmarks/stream_memory.py --images 2000 --size 64

For each way of reading (decoded once into the cache, decoded on the way by two processes) and each length, in a process
of its own: resident memory of that process after the first and after the last tenth of the stream, in MiB. The pixels
of the long stream alone are given beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from ocssl.learner import Learner
from ocssl.settings import DataSettings, StreamSettings
from ocssl.streams import load_benchmark
from ocssl.streams.draw_shapes import render

SETTINGS = {
    "encoder.name": "resnet10",
    "encoder.width": 2,
    "objective.projection": 32,
    "memory.capacity": 200,
    "schedule.passes": 1,
    "schedule.batch": 40,
    "terms.overlap.k": 50,
}


def resident() -> float:
    """MiB of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def walk(folder: str, cache: str, decode: str, size: int) -> None:
    data = DataSettings(path=folder, cache=cache, decode=decode, workers=2)  # type: ignore[arg-type]
    benchmark = load_benchmark("folder", StreamSettings(image_size=size), data)
    learner = Learner("solar", image_size=size, settings=SETTINGS)
    stream = benchmark.stream(20, seed=0)
    marks = []
    for number, batch in enumerate(stream.batches(), 1):
        learner.partial_fit(batch.images, ids=batch.ids)
        if number * 10 // len(stream) > len(marks):
            marks.append(resident())
    print(json.dumps({"images": learner.seen, "first": marks[0], "last": marks[-1]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--walk", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        walk(*options.walk, options.size)
        return
    with tempfile.TemporaryDirectory() as place:
        for times in (1, 10):
            folder = Path(place) / str(times)
            folder.mkdir()
            count = options.images * times
            for start in range(0, count, 1000):
                keys = np.arange(start, min(start + 1000, count))
                for key, image in zip(keys, render(keys % 20, keys, options.size, 0), strict=True):
                    Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{key:07d}.jpg", quality=90)
        for decode in ("cache", "live"):
            found = []
            for times in (1, 10):
                words = [str(Path(place) / str(times)), str(Path(place) / "cache"), decode]
                command = [sys.executable, __file__, "--size", str(options.size), "--walk", *words]
                found.append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
            pixels = options.images * 10 * 3 * options.size**2 / 2**20
            print(f"{decode}: {found[0]} {found[1]}; pixels of the long stream: {pixels:.0f} MiB")


if __name__ == "__main__":
    main()
