"""Contract of streams."""

from __future__ import annotations

import torch

from ocssl.checks.contract import global_randomness_untouched, require
from ocssl.data import Batch, Stream


def check_stream(stream: Stream) -> None:
    """The same batches every time and from any start; uint8 images, ids once, nothing shared, no global randomness."""
    with global_randomness_untouched("the stream"):
        batches = list(stream.batches())
        again = list(stream.batches())
    require(len(batches) == len(stream), f"len says {len(stream)} minibatches, but {len(batches)} came")
    require(len(batches) > 0, "the stream is empty")
    for number, batch in enumerate(batches):
        b = len(batch.images)
        require(b > 0, f"minibatch {number} is empty")
        good = batch.images.dtype == torch.uint8 and batch.images.ndim == 4 and batch.images.shape[1] == 3
        require(
            good,
            f"minibatch {number}: images must be uint8 [b, 3, H, W], not {batch.images.dtype} {[*batch.images.shape]}",
        )
        require(
            batch.ids.shape == (b,) and batch.ids.dtype == torch.int64, f"minibatch {number}: ids must be int64 [{b}]"
        )
        require(batch.labels.shape == (b,), f"minibatch {number}: labels must be [{b}]")
        require(_equal(batch, again[number]), f"minibatch {number} differs the second time")
    ids = torch.cat([batch.ids for batch in batches])
    require(len(ids.unique()) == len(ids), "an image comes twice")
    for start in {0, 1, len(batches) // 2, len(batches) - 1, len(batches)}:
        later = list(stream.batches(start))
        require(len(later) == len(batches[start:]), f"from minibatch {start} on, {len(later)} minibatches come")
        same = all(_equal(a, b) for a, b in zip(later, batches[start:], strict=True))
        require(same, f"a stream started at minibatch {start} differs from the whole stream")
    pixels = batches[0].images.clone()
    batches[0].images.add_(1)
    shared = not torch.equal(next(iter(stream.batches())).images, pixels)
    require(not shared, "changing a batch changes the stream: images are shared")


def _equal(a: Batch, b: Batch) -> bool:
    tensors = ((a.images, b.images), (a.ids, b.ids), (a.labels, b.labels))
    return a.task == b.task and all(torch.equal(x, y) for x, y in tensors)
