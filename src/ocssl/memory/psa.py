"""SCALE's selection (Yu et al., 2023): points spread evenly over the space that the features fill."""

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.store import REFUSED, Store

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 1024  # points that are looked at together


@KEEPS.add("psa")
class Psa(Keep):
    """SCALE's subset of stored and new features: space is cut into M boxes, and each box keeps its central point.

    The older of two points stays where a box holds just these two, and the oldest fill up where there are fewer
    different points than slots.
    """

    needs = frozenset({"born", "feature"})

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        by_age = store["born"].argsort()
        kept = psa(torch.cat([store["feature"][by_age], arriving["feature"]]), store.capacity)
        stays = torch.zeros(store.capacity + len(arriving["born"]), dtype=torch.bool, device=kept.device)
        stays[kept] = True
        old, new = stays[: store.capacity], stays[store.capacity :]
        slots = torch.full((len(new),), REFUSED, dtype=torch.int64, device=kept.device)
        slots[new] = by_age[~old]
        return slots


def psa(points: Tensor, keep: int) -> Tensor:
    """Indices, ascending, of the points [n, d] that stay when at most `keep` may.

    Starting from one box, the box with the widest range along any axis is cut there in the middle until there are
    `keep`; each box keeps the point closest to its centre, the first of equally close ones. Of equally wide boxes the
    one with more points is cut first, then the one with the lowest index. Boxes without extent are never cut; places
    that remain for this reason go to the lowest indices.

    How a box is cut depends on the box alone, and its parts are never wider than it is. So all cuts can be made in any
    order, here all boxes of one size together, and the `keep` - 1 widest are those that the greedy order makes.
    """
    n = len(points)
    if n <= keep:
        return torch.arange(n, device=points.device)
    rows: Array = points.float().cpu().numpy()
    order, width, size, first, where = _all_cuts(rows)
    made = np.lexsort((first, -size, -width))[: keep - 1]
    bounds = np.concatenate([[0], np.sort(where[made]), [n]])
    kept = np.zeros(n, dtype=bool)
    alone = np.diff(bounds) == 1
    kept[order[bounds[:-1][alone]]] = True
    for start, end in zip(bounds[:-1][~alone], bounds[1:][~alone], strict=True):
        box = np.sort(order[start:end])
        kept[box[_from_centre(rows[box]).argmin()]] = True
    kept[np.flatnonzero(~kept)[: keep - kept.sum()]] = True
    return torch.from_numpy(np.flatnonzero(kept)).to(points.device)


def _all_cuts(points: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Every cut down to single or equal points.

    Gives an order of the points in which every box is a run, and for each cut the width, size and lowest index of the
    box and the place of the cut in that order.
    """
    n = len(points)
    order = np.arange(n)
    waiting, sizes = {n: [0]}, [-n]  # starts of boxes by size; sizes as a heap, largest first
    cuts: list[tuple[Array, Array, Array, Array]] = []
    while sizes:
        size = -heapq.heappop(sizes)
        starts = np.array(waiting.pop(size))  # complete: parts of larger boxes only
        for part in np.array_split(starts, min(len(starts), 1 + len(starts) * size // BLOCK)):
            places = part[:, None] + np.arange(size)
            boxes = order[places]  # [boxes, size] ascending in each
            width, axis, middle = _widest(points[boxes])
            above = points[boxes, axis[:, None]] >= middle[:, None]
            order[places] = np.take_along_axis(boxes, above.argsort(1, kind="stable"), 1)
            below = size - above.sum(1)
            wide = width > 0
            cuts.append((width[wide], np.full(wide.sum(), size), boxes[wide, 0], (part + below)[wide]))
            for start, cut in zip(part[wide].tolist(), (part + below)[wide].tolist(), strict=True):
                for begin, length in ((start, cut - start), (cut, start + size - cut)):
                    if length > 1 and length not in waiting:
                        waiting[length] = []
                        heapq.heappush(sizes, -length)
                    if length > 1:
                        waiting[length].append(begin)
    width, size_of, first, where = (np.concatenate(column) for column in zip(*cuts, strict=True))
    return order, width, size_of, first, where


def _widest(boxes: Array) -> tuple[Array, Array, Array]:
    """Widest range, its axis and middle, of float32 boxes [b, s, d]; in float64 the middle lies above the lowest."""
    low, high = boxes.min(1).astype(np.float64), boxes.max(1).astype(np.float64)
    axis = (high - low).argmax(1)
    each = np.arange(len(boxes))
    low, high = low[each, axis], high[each, axis]
    return high - low, axis, low + (high - low) / 2


def _from_centre(points: Array) -> Array:
    """(Twice the distance from the centre of the bounding box) squared; exactly equal for two points."""
    points = points.astype(np.float64)
    low, high = points.min(0), points.max(0)
    distances: Array = np.square((points - low) - (high - points)).sum(1)
    return distances
