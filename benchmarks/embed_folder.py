"""How fast `ocssl embed` is beside the bare encoder, what memory it takes, and how fast search and update are.

    python benchmarks/embed_folder.py --images 100000 --width 32

The folder of images is drawn (32 px PNG), the encoder is an untrained ResNet-18. The bare encoder gets decoded tensors
that are in memory, before and after. Processor time counts all threads and the processes that decode; on a machine that
others use too it says more than wall time. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import ocssl
from ocssl.embed.embed import embed
from ocssl.embed.image_encoder import ImageEncoder
from ocssl.embed.image_files import open_source

BARE = 4096  # images that the bare encoder is timed on


def draw(folder: Path, count: int, first: int = 0) -> None:
    rng = np.random.default_rng(first)
    for n in range(first, first + count):
        path = folder / f"{n // 1000:04d}" / f"{n:07d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((32, 32), Image.Resampling.BICUBIC).save(path)


def processor() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def memory() -> float:
    """Resident MiB of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def bare(encoder: ImageEncoder) -> tuple[float, float]:
    """Wall and processor seconds an image of the encoder on decoded tensors."""
    images = torch.randint(0, 256, (BARE, 3, 32, 32), dtype=torch.uint8)
    with torch.inference_mode():
        encoder.encode(images[:256])
        wall, used = time.perf_counter(), processor()
        for block in images.split(256):
            encoder.encode(block)
    return (time.perf_counter() - wall) / BARE, (processor() - used) / BARE


def measure(count: int, width: int, workers: int, place: Path) -> dict[str, Any]:
    folder, output = place / "images", place / "vectors.parquet"
    draw(folder, count)
    settings = {"encoder.name": "resnet18", "encoder.width": width}
    encoder = ocssl.load_encoder(ocssl.Learner("er-fifo", image_size=32, settings=settings))
    before, seen = bare(encoder), []

    def report(what: str, done: int, total: int) -> None:
        if what == "embedding":
            seen.append((done, memory()))

    wall, used = time.perf_counter(), processor()
    embed(encoder, open_source(str(folder), lambda *_: None), output, workers=workers, report=report)
    wall, used = time.perf_counter() - wall, processor() - used
    after = bare(encoder)
    fifth, end = next(mib for done, mib in seen if done >= count // 5), seen[-1][1]
    start = time.perf_counter()
    index = ocssl.Index.load(output, encoder=encoder)
    loading = time.perf_counter() - start
    queries, searches, worked = [str(path) for path in sorted(folder.rglob("*.png"))[:50]], [], []
    index.search(queries[:1])
    for query in queries:
        start, busy = time.perf_counter(), time.process_time()
        assert index.search([query], top=20)[0][0].path == query
        searches.append(1000 * (time.perf_counter() - start))
        worked.append(1000 * (time.process_time() - busy))
    draw(folder, 10, first=count)
    start = time.perf_counter()
    updated = embed(encoder, open_source(str(folder), report), output, mode="update", workers=workers, report=report)
    return {
        "images": count,
        "width": width,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "bare_ms": [1000 * before[0], 1000 * after[0]],
        "bare_processor_ms": [1000 * before[1], 1000 * after[1]],
        "embed_ms": 1000 * wall / count,
        "embed_processor_ms": 1000 * used / count,
        "ratio": (before[0] + after[0]) / 2 / (wall / count),
        "ratio_processor": (before[1] + after[1]) / 2 / (used / count),
        "memory_mib": {"after_a_fifth": fifth, "at_the_end": end},
        "load_index_seconds": loading,
        "search_ms": {
            "median": statistics.median(searches),
            "largest": max(searches),
            "processor": statistics.median(worked),
        },
        "update_of_ten": {"embedded": updated.embedded, "seconds": time.perf_counter() - start},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(measure(given.images, given.width, given.workers, Path(temporary)), indent=1))
