"""Measured in other processes: the start of `import ocssl` and `ocssl --help`, and resident memory.

Resident memory: what a learner holds beside what it has to hold, and whether that grows along the stream. It is
measured only where Linux tells it.
"""

import ctypes
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from ocssl.bench.steps import minibatch, ready
from ocssl.bench.timing import Bar, Effort, Row, exact, in_process, interleaved, python, resident_mb, spread
from ocssl.data import load_benchmark
from ocssl.data.sources.shapes import CLASSES, render
from ocssl.learner import Learner
from ocssl.settings import DataSettings, StreamSettings

WAIT = 0.5  # seconds that import and help together may take
IMPORT = "import ocssl"
HELP = """
import contextlib, io
from ocssl.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
"""
_COUNT = "\nimport sys; sys.stdout.write(str(sum(n.split('.')[0].startswith(sys.argv[1]) for n in sys.modules)))"

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


# ---- start-up -------------------------------------------------------------------------------------------------------


def start_rows(effort: Effort) -> Iterator[Row]:
    yield from waits(effort.rounds(15, 7))
    for name, code in {"import ocssl": IMPORT, "ocssl --help": HELP}.items():
        yield Row("start", f"{name}, modules of torch", exact(imported(code, "torch")), "count", Bar(0))


def waits(rounds: int) -> Iterator[Row]:
    """Both, and the interpreter alone, from the start of a process to its end."""
    times = interleaved(
        {
            "python alone": lambda: python("-c", "pass"),
            "import ocssl": lambda: python("-c", IMPORT),
            "ocssl --help": lambda: python("-m", "ocssl", "--help"),
        },
        rounds,
    )
    both = [a + b for a, b in zip(times["import ocssl"], times["ocssl --help"], strict=True)]
    yield Row("start", "import ocssl and ocssl --help", spread(both), "s", Bar(WAIT))
    for name, seconds in times.items():
        yield Row("start", name, spread(seconds), "s")


def imported(code: str, prefix: str) -> int:
    """How many modules whose names begin so are loaded after some code has run in a new interpreter."""
    return int(python("-c", code + _COUNT, prefix))


# ---- resident memory of one learner ---------------------------------------------------------------------------------


def resident_rows(effort: Effort) -> Iterator[Row]:
    for width in (16,) if effort.quick else (16, 64):
        yield from held(width, 32, effort.threads)
    if resident_mb() is not None:
        if effort.quick:
            yield from growth(1000, 32, ["cache"], shorter=False)
        else:
            yield from growth(6000, 64, ["cache", "live"], shorter=True)


def held(width: int, size: int, threads: int, capacity: int = 2000) -> Iterator[Row]:
    """SOLAR with a full memory, after a step."""
    name = f"solar, width {width}, {size} px, {capacity:,} slots"
    settings = {"encoder.width": width, "memory.capacity": capacity}
    needed = needed_bytes(Learner("solar", image_size=size, settings=settings))
    note = ", ".join(f"{part} {count / MB:.1f}" for part, count in needed.items())
    yield Row("resident", f"{name}, by arithmetic", exact(sum(needed.values()) / MB), "MB", note=note)
    if resident_mb() is None:
        return
    found = in_process(measure_learner, width, size, capacity, threads)
    note = "beside Python with torch, once freed memory is given back"
    yield Row("resident", f"{name}, held between steps", exact(found["held"] - found["before"]), "MB", note=note)
    note = f"Python with torch alone {found['before']:.0f}; the rest is what a step works with"
    yield Row("resident", f"{name}, whole process", exact(found["whole"]), "MB", note=note)


def needed_bytes(learner: Learner) -> dict[str, int]:
    """Bytes that SOLAR cannot do without, from shapes alone: a full memory, and what SGD keeps of each weight."""
    parameters = sum(p.nbytes for p in learner.network.parameters() if p.requires_grad)
    slot = 3 * learner.image_size**2 + 3 * 8 + 2 * 4 + 2 * 8  # image; id, born, draws; loss, angle; working space
    slot += 4 * learner.objective.dimension  # mean feature
    return {
        "weights": sum(t.nbytes for t in learner.network.state_dict().values()),
        "momentum": parameters,
        "gradients": parameters,
        "memory": learner.memory.store.capacity * slot,
    }


def measure_learner(width: int, size: int, capacity: int, threads: int) -> None:
    """What is resident before there is a learner, and with one after a step."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    tiny = ready("solar", 1, 8, **{"memory.capacity": 10})
    tiny.partial_fit(minibatch(tiny, generator))  # the first step of a process loads libraries
    trim_heap()
    before = resident_mb()
    learner = ready("solar", width, size, **{"memory.capacity": capacity})
    learner.partial_fit(minibatch(learner, generator))
    whole = resident_mb()
    trim_heap()
    json.dump({"before": before, "whole": whole, "held": resident_mb()}, sys.stdout)


def trim_heap() -> None:
    """Let the C library return freed memory to the system, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


# ---- resident memory along a stream of files ------------------------------------------------------------------------


def growth(images: int, size: int, ways: Sequence[Decode], shorter: bool) -> Iterator[Row]:
    """What is resident after the last tenth of a stream of files, beside the first, and beside a shorter stream."""
    with tempfile.TemporaryDirectory() as name:
        write_jpegs(Path(name) / "long", images, size)
        if shorter:
            write_jpegs(Path(name) / "short", images // 10, size)
        for decode in ways:
            what, more = f"stream of files {READING[decode]}", (name, decode, size)
            note = f"{images:,} images; their pixels {images * 3 * size**2 / MB:.0f} MB"
            first, last = in_process(measure_stream, f"{name}/long", *more)
            grown = exact(last - first)
            yield Row("resident", f"{what}, grown from the first to the last tenth", grown, "MB", note=note)
            if shorter:
                _, end = in_process(measure_stream, f"{name}/short", *more)
                yield Row("resident", f"{what}, beyond one a tenth as long", exact(last - end), "MB", note=note)


def write_jpegs(folder: Path, count: int, size: int) -> None:
    """Images of the synthetic benchmark as JPEG files."""
    folder.mkdir()
    for keys in torch.arange(count).split(1000):
        for key, image in zip(keys.tolist(), render(keys % CLASSES, keys, size, 0), strict=True):
            pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
            Image.fromarray(pixels).save(folder / f"{key:07d}.jpg", quality=90)


def measure_stream(folder: str, cache: str, decode: Decode, size: int) -> None:
    """What is resident after the first and after the last tenth of the stream."""
    torch.set_num_threads(1)  # the network is too small to share
    data = DataSettings(path=folder, cache=cache, decode=decode, workers=2)
    benchmark = load_benchmark("folder", StreamSettings(image_size=size, experiences=1), data)
    learner = Learner("solar", image_size=size, settings=SLIM)
    stream = benchmark.stream(BATCH, seed=0)
    marks: list[float | None] = []
    for number, batch in enumerate(stream.batches(), 1):
        learner.partial_fit(batch.images, ids=batch.ids)
        if number * 10 // len(stream) > len(marks):
            marks.append(resident_mb())
    json.dump([marks[0], marks[-1]], sys.stdout)
