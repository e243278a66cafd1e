"""Decoded images of one size by row number: in memory, from the cache, or decoded whenever they are asked for."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ocssl.data.decode.cache import CachedImages, build, cache_key
from ocssl.data.decode.decode_processes import Decoded, Fault, decoded, rows_at_once
from ocssl.data.decode.decoder import Fit
from ocssl.data.decode.files import Files, Report, Rows, silent

MOST_WORKERS = 8  # where the user sets none: beyond these, disks and pipes are the limit


class ImageSet(Protocol):
    """Images by row number. A row whose image cannot be used is left out wherever it is asked for, and has a fault."""

    def __len__(self) -> int: ...

    @property
    def faults(self) -> Mapping[int, Fault]:
        """The unusable rows that are known so far."""
        ...

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each cut, row numbers [n]: the usable images uint8 [m, 3, S, S], and which of the n they are, bool [n].

        The same images in the same order however they are read. Cuts may be asked for ahead of time.
        """
        ...


def open_images(
    files: Files,
    *,
    size: int,
    fit: Fit,
    decode: Literal["cache", "live"],
    workers: int = 0,
    cache: Path | None = None,
    bad_images: Literal["skip", "stop"] = "skip",
    report: Report = silent,
) -> ImageSet:
    """Images of `size`, the same either way. `workers` is the number of decoding processes; 0: one per core, at most 8.

    The first call for these files, size and fit makes a cache, the next one opens it. With "stop", an image that cannot
    be used is a DataError: here with a cache, when its cut is handed out without.
    """
    workers = workers or min(MOST_WORKERS, os.cpu_count() or 1)
    if decode == "live":
        return LiveImages(files, size, fit, workers, bad_images)
    key = cache_key(files, size, fit)
    path = (cache or cache_folder()) / f"{key[:32]}.pixels"
    build(path, files, size, fit, workers if workers > 1 else 0, report, bad_images)
    cached = CachedImages(path, key)
    if bad_images == "stop" and cached.faults:
        raise cached.faults[min(cached.faults)].error()
    return cached


def cache_folder() -> Path:
    """Where decoded images are kept: $OCSSL_CACHE, or the user's folder for caches."""
    own, shared = os.environ.get("OCSSL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(shared) if shared else Path("~/.cache").expanduser()) / "ocssl"


class Array(Protocol):
    """Images uint8 [n, 3, S, S] by row number: a tensor, or what computes them."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor, /) -> Tensor: ...


class ArrayImages:
    """Images that can always be used."""

    faults: Mapping[int, Fault] = {}

    def __init__(self, images: Array) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in cuts:
            yield self.images[rows], torch.ones(len(rows), dtype=torch.bool)


class LiveImages:
    """Images decoded each time, by processes that work a few cuts ahead and end with the walk; nothing is kept on disk.

    A fault is known once the cut that holds it has been handed out, not when it is decoded ahead of time.
    """

    def __init__(
        self, files: Files, size: int, fit: Fit, workers: int = 0, bad_images: Literal["skip", "stop"] = "skip"
    ) -> None:
        self.files = files
        self.size = size
        self.fit = fit
        self.workers = workers  # 0: this process
        self.bad_images = bad_images
        self.faults: dict[int, Fault] = {}

    def __len__(self) -> int:
        return len(self.files)

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        ahead: deque[Rows] = deque()  # cuts that were asked for and not yet handed out
        with closing(decoded(self.files, self._pieces(cuts, ahead), self.size, self.fit, self.workers)) as pieces:
            for first in pieces:
                yield self._joined(ahead.popleft(), chain([first], pieces))

    def _pieces(self, cuts: Iterable[Tensor], ahead: deque[Rows]) -> Iterator[Rows]:
        """The cuts in pieces that are decoded at a time; an empty cut is one empty piece."""
        step = rows_at_once(self.size)
        for cut in cuts:
            rows = np.array(cut.numpy(), np.int64)
            ahead.append(rows)
            for start in range(0, max(1, len(rows)), step):
                yield rows[start : start + step]

    def _joined(self, rows: Rows, pieces: Iterator[Decoded]) -> tuple[Tensor, Tensor]:
        """A cut out of its pieces."""
        images = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        usable = torch.ones(len(rows), dtype=torch.bool)
        done = 0
        for piece, faults, _ in pieces:
            images.numpy()[done : done + len(piece)] = piece
            for place, reason in faults:
                usable[done + place] = False
                row = int(rows[done + place])
                fault = Fault(self.files.name(row), reason)
                if self.bad_images == "stop":
                    raise fault.error()
                self.faults[row] = fault
            done += len(piece)
            if done == len(rows):
                break
        return (images if usable.all() else images[usable]), usable
