"""Images that are decoded each time they are asked for: nothing is kept on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ocssl.data.decode.decoder import Fit
from ocssl.data.decode.encoded import Files, Rows
from ocssl.data.decode.images import Fault
from ocssl.data.decode.workers import Decoded, decoded, rows_at_once, unusable


class LivePictures:
    """Images decoded on the way, by processes that work a few cuts ahead and end with the walk they work for.

    A fault is known once the cut that holds it has been handed out: what was decoded ahead of time shows nowhere.
    """

    def __init__(
        self, files: Files, size: int, fit: Fit, workers: int = 0, bad_images: Literal["skip", "stop"] = "skip"
    ) -> None:
        self.files = files
        self.size = size
        self.fit = fit
        self.workers = workers  # 0: this process
        self.bad_images = bad_images
        self._faults: dict[int, Fault] = {}

    def __len__(self) -> int:
        return len(self.files)

    @property
    def faults(self) -> Mapping[int, Fault]:
        return self._faults

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        ahead: deque[Rows] = deque()  # cuts that were asked for and not yet handed out
        with closing(decoded(self.files, self._pieces(cuts, ahead), self.size, self.fit, self.workers)) as pieces:
            for first in pieces:
                yield self._whole(ahead.popleft(), chain([first], pieces))

    def _whole(self, rows: Rows, pieces: Iterator[Decoded]) -> tuple[Tensor, Tensor]:
        """A cut out of its pieces."""
        images = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        usable = torch.ones(len(rows), dtype=torch.bool)
        done = 0
        for part, faults in pieces:
            images.numpy()[done : done + len(part)] = part
            for place, reason in faults:
                usable[done + place] = False
                self._note(int(rows[done + place]), reason)
            done += len(part)
            if done == len(rows):
                break
        return (images if usable.all() else images[usable]), usable

    def _pieces(self, cuts: Iterable[Tensor], ahead: deque[Rows]) -> Iterator[Rows]:
        """The cuts in pieces that are decoded at a time; an empty cut is one empty piece."""
        step = rows_at_once(self.size)
        for cut in cuts:
            rows = np.array(cut.numpy(), np.int64)
            ahead.append(rows)
            for start in range(0, max(1, len(rows)), step):
                yield rows[start : start + step]

    def _note(self, row: int, reason: str) -> None:
        fault = Fault(self.files.name(row), reason)
        if self.bad_images == "stop":
            raise unusable(fault.name, fault.reason)
        self._faults[row] = fault
