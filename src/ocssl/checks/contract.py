"""The error and the seeded block that all contract checks use, and the contract of streams."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ocssl._core.registry import Registry
from ocssl.data import Batch, Stream

T = TypeVar("T")


class ContractError(AssertionError):
    """A part breaks its contract."""


def require(holds: bool | Tensor, complaint: str) -> None:
    if not holds:
        raise ContractError(complaint)


def maker(part: Any, registry: Registry[T], *wiring: Any) -> Callable[[], T]:
    if isinstance(part, str):
        registry[part]  # an unknown name is an error
        return lambda: registry.build(part, None, *wiring)
    require(callable(part), f"give a name, a class or a function that makes the part, not {part!r}")
    return lambda: part(*wiring)


@contextmanager
def seeded() -> Iterator[None]:
    """Parts that are made here have the same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@contextmanager
def global_randomness_untouched(what: str) -> Iterator[None]:
    before = _global_states()
    yield
    require(before == _global_states(), f"{what} draws from global random state, not from the generator it is given")


def _global_states() -> list[str]:
    numpy_state = np.random.get_state()  # noqa: NPY002
    return [str(torch.get_rng_state().tolist()), str(random.getstate()), repr([str(part) for part in numpy_state])]


def check_stream(stream: Stream) -> None:
    """The same batches every time and from any start; uint8 images, ids once, nothing shared, no global randomness."""
    with global_randomness_untouched("the stream"):
        batches = list(stream.batches())
        again = list(stream.batches())
    require(len(batches) == len(stream), f"len says {len(stream)} minibatches, but {len(batches)} came")
    require(len(batches) > 0, "the stream is empty")
    for number, batch in enumerate(batches):
        images, b = batch.images, len(batch.images)
        require(b > 0, f"minibatch {number} is empty")
        good = images.dtype == torch.uint8 and images.ndim == 4 and images.shape[1] == 3
        given = f"{images.dtype} {list(images.shape)}"
        require(good, f"minibatch {number}: images must be uint8 [b, 3, H, W], not {given}")
        good = batch.ids.shape == (b,) and batch.ids.dtype == torch.int64
        require(good, f"minibatch {number}: ids must be int64 [{b}]")
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
