"""Walk over images in a process of its own and tell by how many MiB its resident memory has grown at most.

python walker.py FOLDER    prints a JSON table: what was walked over, and the growth
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from image_files import Repeated, noise
from torch import Tensor

from ocssl.data.decode import cache
from ocssl.data.decode.cache import CachedImages, build
from ocssl.data.decode.decode_processes import rows_at_once
from ocssl.data.decode.image_set import LiveImages

FEW, MANY, CUT = 1_000, 10_000, 100


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def growth(walk: Iterator[tuple[Tensor, Tensor]], keep: bool = False) -> float:
    """The most that is resident in a walk beyond what is after its fifth cut."""
    kept, before, most = [], 0.0, 0.0
    for number, (images, _) in enumerate(walk):
        assert len(images) == CUT
        if keep:
            kept.append(images)
        if number == 5:
            before = most = resident()
        most = max(most, resident())
    return round(most - before, 1)


def cuts(count: int) -> tuple[Tensor, ...]:
    rows = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return tuple(rows[first : first + CUT] for first in range(0, count, CUT))


def written(folder: Path, count: int) -> Path:
    """A cache of 64 px, as fast as the disk allows."""
    piece = noise(0, rows_at_once(64), 3 * 64 * 64, None).reshape(-1, 3, 64, 64)

    def decoded(_: Any, pieces: Any, *__: Any) -> Iterator[Any]:
        return ((piece[: len(rows)], [], []) for rows in pieces)

    cache.decoded = decoded  # type: ignore[attr-defined, assignment]
    path = folder / f"{count}.pixels"
    build(path, Repeated(count, 8), 64, "squash")
    return path


def mapped(path: Path, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As it would be with a map whose pages are not given back."""
    with open(path, "rb") as file:
        pixels = np.memmap(file, np.uint8, "r", cache.HEADER, (count, 3, 64, 64))
    return ((torch.from_numpy(np.asarray(pixels[rows.numpy()])), rows) for rows in cuts(count))


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    for name, count in (("few", FEW), ("many", MANY)):
        found[f"live, {name}"] = growth(LiveImages(Repeated(count, 32), 32, "squash", 2).walk(cuts(count)))
        found[f"cache, {name}"] = growth(CachedImages(written(folder, count)).walk(cuts(count)))
    found["live, kept"] = growth(LiveImages(Repeated(MANY, 32), 32, "squash").walk(cuts(MANY)), keep=True)
    found["cache, mapped"] = growth(mapped(folder / f"{MANY}.pixels", MANY))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
