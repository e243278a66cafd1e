"""What a memory holds at a moment, in few numbers: where in the stream it comes from, its losses, its classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ocssl.data import Benchmark
from ocssl.memory import Memory

BINS = 20  # of each histogram
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_CLASSES = 1000  # classes above which they are not counted one by one


def holdings(memory: Memory, benchmark: Benchmark, images: int) -> dict[str, Any]:
    """Histograms of a memory on a stream of so many images; labels only serve to count."""
    if not len(memory):
        return {"stored": 0}
    born, loss = memory.store["born"].cpu().double(), memory.store["loss"].cpu().double()
    loss = loss[loss.isfinite()]
    found: dict[str, Any] = {
        "stored": len(memory),
        "age": _quantiles(memory.seen - born),
        "born": _counts(born, 0.0, float(max(images, memory.seen))),  # of equal parts of the stream
    }
    if len(loss):
        low, high = loss.min().item(), loss.max().item()
        found |= {"loss": _quantiles(loss), "losses": {"low": low, "high": high, "counts": _counts(loss, low, high)}}
    if benchmark.classes and len(benchmark.classes) <= MOST_CLASSES:
        labels = _labels(memory.store["id"].cpu(), benchmark)
        found["classes"] = torch.bincount(labels[labels >= 0], minlength=len(benchmark.classes)).tolist()
    return found


def _quantiles(values: Tensor) -> list[float]:
    return [float(torch.quantile(values, q)) for q in QUANTILES]


def _counts(values: Tensor, low: float, high: float) -> list[int]:
    """How many values lie in each of the equal parts of a range, its end included."""
    place = (values - low) / ((high - low) or 1.0) * BINS
    return torch.bincount(place.long().clamp(0, BINS - 1), minlength=BINS).tolist()


def _labels(ids: Tensor, benchmark: Benchmark) -> Tensor:
    """The labels of stored images, -1 where there is none."""
    part = benchmark.train
    ordered, rows = part.ids.sort()
    place = torch.searchsorted(ordered, ids).clamp(max=len(ordered) - 1)
    return torch.where(ordered[place] == ids, part.labels[rows[place]], -1)
