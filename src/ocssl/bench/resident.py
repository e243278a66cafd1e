"""What a learner holds in memory, beside what it has to hold, and whether that grows as the stream goes on.

Each measurement is made in a process of its own, and only where Linux tells what is resident.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from ocssl.bench.learners import arriving, ready
from ocssl.bench.rows import Effort, Row
from ocssl.bench.start import python
from ocssl.bench.timing import exactly
from ocssl.data import load_benchmark
from ocssl.data.sources.shapes import CLASSES, render
from ocssl.learner import Learner
from ocssl.settings import DataSettings, StreamSettings

STATM = Path("/proc/self/statm")
MB = 2**20
Decode = Literal["cache", "live"]
READING: dict[Decode, str] = {"cache": "from the cache", "live": "decoded on the way"}
BATCH = 20  # images of a minibatch of files
SLIM: dict[str, Any] = {
    "encoder.name": "resnet10",
    "encoder.width": 2,
    "encoder.stem": "large",
    "objective.projection": 32,
    "memory.capacity": 60,
    "schedule.passes": 1,
    "schedule.batch": 30,
    "terms.overlap.k": 50,
}


def rows(effort: Effort) -> Iterator[Row]:
    for width in (16,) if effort.quick else (16, 64):
        yield from held(width, 32, effort.threads)
    if STATM.exists():
        if effort.quick:
            yield from growth(1000, 32, ["cache"], shorter=False)
        else:
            yield from growth(6000, 64, ["cache", "live"], shorter=True)


# ---- one learner ----------------------------------------------------------------------------------------------------


def held(width: int, size: int, threads: int, capacity: int = 2000) -> Iterator[Row]:
    """SOLAR with a full memory, after a step."""
    name = f"solar, width {width}, {size} px, {capacity:,} slots"
    settings = {"encoder.width": width, "memory.capacity": capacity}
    parts = accounts(Learner("solar", image_size=size, settings=settings))
    note = ", ".join(f"{part} {count / MB:.1f}" for part, count in parts.items())
    yield Row("resident", f"{name}, by arithmetic", exactly(sum(parts.values()) / MB), "MB", note=note)
    if not STATM.exists():
        return
    found = child("weigh", width, size, capacity, threads)
    note = "beside Python with torch, once freed memory is given back"
    yield Row("resident", f"{name}, held between steps", exactly(found["held"] - found["before"]), "MB", note=note)
    note = f"Python with torch alone {found['before']:.0f}; the rest is what a step works with"
    yield Row("resident", f"{name}, whole process", exactly(found["whole"]), "MB", note=note)


def accounts(learner: Learner) -> dict[str, int]:
    """Bytes that SOLAR cannot do without, from shapes alone: a full memory, and what SGD keeps of each weight."""
    parameters = [p.nbytes for p in learner.network.parameters() if p.requires_grad]
    network = sum(t.nbytes for t in learner.network.state_dict().values())
    slot = 3 * learner.image_size**2 + 3 * 8 + 2 * 4 + 2 * 8  # image; id, born, draws; loss, angle; working space
    slot += 4 * learner.objective.dimension  # mean feature
    return {
        "weights": network,
        "momentum": sum(parameters),
        "gradients": sum(parameters),
        "memory": learner.memory.store.capacity * slot,
    }


def weigh(width: int, size: int, capacity: int, threads: int) -> None:
    """In a process of its own: what is resident before there is a learner, and with one after a step."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    tiny = ready("solar", 1, 8, **{"memory.capacity": 10})
    tiny.partial_fit(arriving(tiny, generator))  # the first step of a process loads libraries
    give_back()
    before = resident()
    learner = ready("solar", width, size, **{"memory.capacity": capacity})
    learner.partial_fit(arriving(learner, generator))
    whole = resident()
    give_back()
    json.dump({"before": before, "whole": whole, "held": resident()}, sys.stdout)


def give_back() -> None:
    """Let the C library return to the system what has been freed, where it knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


# ---- along a stream of files ----------------------------------------------------------------------------------------


def growth(images: int, size: int, ways: Sequence[Decode], shorter: bool) -> Iterator[Row]:
    """What is resident after the last tenth of a stream of files, beside the first, and beside a shorter stream."""
    with tempfile.TemporaryDirectory() as name:
        drawn(Path(name) / "long", images, size)
        if shorter:
            drawn(Path(name) / "short", images // 10, size)
        for decode in ways:
            what, more = f"stream of files {READING[decode]}", (name, decode, size)
            note = f"{images:,} images; their pixels {images * 3 * size**2 / MB:.0f} MB"
            first, last = child("walk", f"{name}/long", *more)
            grown = exactly(last - first)
            yield Row("resident", f"{what}, grown from the first to the last tenth", grown, "MB", note=note)
            if shorter:
                _, end = child("walk", f"{name}/short", *more)
                yield Row("resident", f"{what}, beyond one a tenth as long", exactly(last - end), "MB", note=note)


def drawn(folder: Path, count: int, size: int) -> None:
    """So many JPEG files of the synthetic benchmark's images."""
    folder.mkdir()
    for keys in torch.arange(count).split(1000):
        for key, image in zip(keys.tolist(), render(keys % CLASSES, keys, size, 0), strict=True):
            pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
            Image.fromarray(pixels).save(folder / f"{key:07d}.jpg", quality=90)


def walk(folder: str, cache: str, decode: Decode, size: int) -> None:
    """In a process of its own: what is resident after the first and after the last tenth of the stream."""
    torch.set_num_threads(1)  # the network is too small to share
    data = DataSettings(path=folder, cache=cache, decode=decode, workers=2)
    benchmark = load_benchmark("folder", StreamSettings(image_size=size, experiences=1), data)
    learner = Learner("solar", image_size=size, settings=SLIM)
    stream = benchmark.stream(BATCH, seed=0)
    marks: list[float] = []
    for number, batch in enumerate(stream.batches(), 1):
        learner.partial_fit(batch.images, ids=batch.ids)
        if number * 10 // len(stream) > len(marks):
            marks.append(resident())
    json.dump([marks[0], marks[-1]], sys.stdout)


# ---- processes ------------------------------------------------------------------------------------------------------


def resident() -> float:
    """MB of this process that are in memory now."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB


def child(work: str, *words: str | int) -> Any:
    """What a function of this module answers in a process of its own."""
    return json.loads(python("-c", f"from ocssl.bench.resident import {work}; {work}{words!r}"))
