"""Two views of a batch, beside making them one image at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ocssl.bench.learners import ROWS, noise
from ocssl.bench.peers.views import one_at_a_time
from ocssl.bench.rows import Bar, Effort, Row
from ocssl.bench.timing import interleaved, ratio, spread
from ocssl.settings import ViewSettings
from ocssl.views import Views

FASTER = 20  # times, at 32 px


def rows(effort: Effort) -> Iterator[Row]:
    yield from compared(32, effort.rounds(30, 8), Bar(FASTER, at_least=True))
    if not effort.quick:
        yield from compared(16, 15)
        yield from compared(96, 8)
        yield from compared(224, 3)


def compared(size: int, rounds: int, bar: Bar | None = None, batch: int = ROWS) -> Iterator[Row]:
    """Two views of a batch of images of the views' own size; drawing what is random counts on both sides."""
    settings, generator = ViewSettings(), torch.Generator().manual_seed(0)
    views, images = Views(settings, size), noise(batch, size, generator)
    times = interleaved(
        {
            "batched": lambda: views(images, generator),
            "single": lambda: one_at_a_time(images, settings, size, generator, views=2),
        },
        rounds,
    )
    shape = f"two views of {batch} at {size} px"
    yield Row("views", f"{shape}, faster than one at a time", ratio(times, "single", "batched"), "x", bar, faster=True)
    for name, seconds in times.items():
        yield Row("views", f"{shape}, {name}", spread([1000 * s for s in seconds]), "ms")
