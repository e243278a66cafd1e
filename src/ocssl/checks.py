"""Contract checks for parts of your own: each runs a part as the learner would and says what it does wrong.

>>> from ocssl.checks import check_keep
>>> check_keep("fifo")

A part is given as a registered name, a class, or any function that makes one. Every part is made anew several times,
because a learner that is loaded from disk makes its parts anew too: what a part needs to remember belongs in the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ocssl.memory import DRAWS, KEEPS, Draw, Keep, Memory, Store
from ocssl.memory.keep import REFUSED
from ocssl.objectives import OBJECTIVES, Objective, Output
from ocssl.registry import Registry
from ocssl.streams import Batch, Stream

T = TypeVar("T")
SCALARS = ("image", "id", "born", "draws", "loss", "angle")
DIMENSION = 6


class ContractError(AssertionError):
    """A part breaks its contract."""


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise ContractError(complaint)


def _maker(part: Any, registry: Registry[T], *wiring: Any) -> Callable[[], T]:
    if isinstance(part, str):
        registry[part]  # an unknown name is an error of its own
        return lambda: registry.build(part, None, *wiring)
    _require(callable(part), f"give a name, a class or a function that makes the part, not {part!r}")
    return lambda: part(*wiring)


@contextmanager
def _global_randomness_untouched(what: str) -> Iterator[None]:
    before = _global_states()
    yield
    _require(
        before == _global_states(), f"{what} draws from global random state instead of the generator that it is given"
    )


def _global_states() -> list[str]:
    numpy_state = np.random.get_state()  # noqa: NPY002
    return [str(torch.get_rng_state().tolist()), str(random.getstate()), repr([str(part) for part in numpy_state])]


def _statistics(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Statistics with ties in them."""
    losses = (torch.rand(n, generator=generator) * 20).round() / 10 - 1
    vectors = torch.randn(n, DIMENSION, generator=generator)
    return {"loss": losses, "angle": torch.rand(n, generator=generator), "feature": vectors}


def _memory(keep: Keep, draw: Draw, capacity: int, seed: int) -> Memory:
    vectors = {name: DIMENSION for name in keep.needs | draw.needs if name not in SCALARS}
    return Memory(Store(capacity, (3, 4, 4), vectors), keep, draw, torch.Generator().manual_seed(seed))


def _snapshot(store: Store) -> dict[str, Tensor]:
    return {name: store[name].clone() for name in store}


def _same(store: Store, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(store[name], before[name]) for name in store)


def check_keep(part: Any) -> None:
    """Slots in range, none twice; nothing written; a rule made anew decides the same; no pixels, no global state."""
    make = _maker(part, KEEPS)
    data = torch.Generator().manual_seed(7)
    for capacity, batch in ((1, 1), (1, 5), (7, 3), (20, 10), (10, 25)):
        memory = _memory(make(), DRAWS.build("uniform"), capacity, seed=capacity)
        for number in range(8):
            _check_placement(make, memory, batch, data)
            n = len(memory)
            images = torch.randint(0, 256, (batch, 3, 4, 4), generator=data, dtype=torch.uint8)
            memory.insert(images, torch.arange(batch) + batch * number, _statistics(batch, data))
            _require(
                len(memory) == min(capacity, n + batch), f"a memory of {capacity} slots holds {len(memory)} samples"
            )
            born = memory.store["born"]
            _require(len(born.unique()) == len(born), "a sample is in two slots")


def _check_placement(make: Callable[[], Keep], memory: Memory, batch: int, data: torch.Generator) -> None:
    store, state = memory.store, memory.generator.get_state()
    if len(memory) < store.capacity:
        return
    arriving = {**_statistics(batch, data), "id": torch.arange(batch), "born": memory.seen + torch.arange(batch)}
    given, before = {name: column.clone() for name, column in arriving.items()}, _snapshot(store)
    with _global_randomness_untouched("place"):
        slots = memory.keep_rule.place(store, arriving, memory.generator)
    _require(
        isinstance(slots, Tensor) and slots.shape == (batch,) and slots.dtype == torch.int64,
        f"place must return int64 slots [{batch}], one an arriving sample",
    )
    taken = slots[slots != REFUSED]
    _require(bool(((taken >= 0) & (taken < store.capacity)).all()), f"slots {taken.tolist()} lie outside the store")
    _require(len(taken.unique()) == len(taken), f"slots {taken.tolist()}: one slot is given to two samples")
    _require(_same(store, before), "place writes to the store")
    _require(all(torch.equal(arriving[n], given[n]) for n in given), "place changes the statistics that it is given")
    pixels = store["image"].clone()
    store["image"].random_(0, 256, generator=data)
    again = make().place(store, arriving, torch.Generator().set_state(state))
    store["image"].copy_(pixels)
    memory.generator.set_state(state)
    _require(
        torch.equal(slots, again),
        "a rule made anew decides otherwise for the same store and generator: it remembers something of its own, "
        "looks at pixels, or draws from elsewhere",
    )


def check_draw(part: Any) -> None:
    """Distinct filled slots, as many as asked for; nothing written; same answer from a rule made anew."""
    make = _maker(part, DRAWS)
    data = torch.Generator().manual_seed(8)
    rule = make()
    memory = _memory(KEEPS.build("fifo"), rule, 12, seed=3)
    met: set[int] = set()
    for round_ in range(60):
        n = 5 if round_ < 2 else 1
        memory.insert(torch.zeros(n, 3, 4, 4, dtype=torch.uint8), torch.arange(n), _statistics(n, data))
        for wanted in (0, 1, len(memory) // 2, len(memory)):
            store, before, state = memory.store, _snapshot(memory.store), memory.generator.get_state()
            with _global_randomness_untouched("pick"):
                slots = rule.pick(store, wanted, memory.generator)
            _require(
                isinstance(slots, Tensor) and slots.shape == (wanted,) and slots.dtype == torch.int64,
                f"pick must return int64 slots [{wanted}] when {wanted} are asked for",
            )
            inside = bool(((slots >= 0) & (slots < len(store))).all())
            _require(inside, f"slots {slots.tolist()} are not all among the {len(store)} filled ones")
            _require(len(slots.unique()) == len(slots), f"slots {slots.tolist()}: one is drawn twice")
            _require(_same(store, before), "pick writes to the store")
            again = make().pick(store, wanted, torch.Generator().set_state(state))
            _require(torch.equal(slots, again), "a rule made anew draws otherwise for the same store and generator")
            if wanted == 1:
                met.update(slots.tolist())
        memory.draw(3)
    _require(len(met) > 6, f"only slots {sorted(met)} of 12 were ever drawn first in 60 draws")


class _TinyEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(48, 8, bias=False), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layers(x)
        return features


def check_objective(part: Any) -> None:
    """A finite loss a sample that follows the samples' order, gradients into the encoder, an exact state round trip."""
    generator = torch.Generator().manual_seed(9)

    def make() -> Objective:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _maker(part, OBJECTIVES, _TinyEncoder(), 8)()

    for batch in (2, 5, 16):
        objective = make()
        views = torch.randn(2, batch, 3, 4, 4, generator=generator)
        kept = views.clone()
        with _global_randomness_untouched("the objective"):
            out = objective(views)
        _require(isinstance(out, Output), f"forward must return Output, not {type(out).__name__}")
        _require(out.loss.shape == (batch,), f"loss must be [{batch}], one a sample, not {list(out.loss.shape)}")
        _require(
            out.features.shape == (2, batch, 8), f"features must be [2, {batch}, 8], not {list(out.features.shape)}"
        )
        _require(out.projected.shape[:2] == (2, batch), f"projected must be [2, {batch}, P]")
        _require(out.projected.shape[2:] == (objective.projection,), "projected must be as wide as `projection` says")
        _require(bool(torch.isfinite(out.loss).all()), "the loss is not finite")
        _require(torch.equal(views, kept), "the objective changes its input")
        out.loss.mean().backward()
        gradients = [p.grad for p in objective.encoder.parameters()]
        reached = any(g is not None and bool(g.abs().sum() > 0) for g in gradients)
        _require(reached, "no gradient reaches the encoder")
        for name, parameter in objective.named_parameters():
            finite = parameter.grad is None or bool(torch.isfinite(parameter.grad).all())
            _require(finite, f"the gradient of {name} is not finite")
    order = torch.randperm(16, generator=generator)
    straight, permuted = make()(views).loss, make()(views[:, order]).loss
    _require(
        torch.allclose(straight[order], permuted, atol=1e-5),
        "the loss of a sample depends on its place in the batch: values are not one a sample",
    )
    constant = make()(torch.zeros(2, 4, 3, 4, 4))
    constant.loss.mean().backward()
    _require(bool(torch.isfinite(constant.loss).all()), "the loss of constant images is not finite")
    first, second = make(), make()
    first(views)
    second.load_state_dict(first.state_dict())
    _require(torch.equal(first(views).loss, second(views).loss), "state_dict does not hold the whole state")


def check_stream(stream: Stream) -> None:
    """The same batches every time and from any start; uint8 images, ids once, nothing shared, no global randomness."""
    with _global_randomness_untouched("the stream"):
        batches = list(stream.batches())
        again = list(stream.batches())
    _require(len(batches) == len(stream), f"len says {len(stream)} minibatches, but {len(batches)} came")
    _require(len(batches) > 0, "the stream is empty")
    for number, batch in enumerate(batches):
        b = len(batch.images)
        _require(b > 0, f"minibatch {number} is empty")
        good = batch.images.dtype == torch.uint8 and batch.images.ndim == 4 and batch.images.shape[1] == 3
        _require(
            good,
            f"minibatch {number}: images must be uint8 [b, 3, H, W], not {batch.images.dtype} {[*batch.images.shape]}",
        )
        _require(
            batch.ids.shape == (b,) and batch.ids.dtype == torch.int64, f"minibatch {number}: ids must be int64 [{b}]"
        )
        _require(batch.labels.shape == (b,), f"minibatch {number}: labels must be [{b}]")
        _require(_equal(batch, again[number]), f"minibatch {number} differs the second time")
    ids = torch.cat([batch.ids for batch in batches])
    _require(len(ids.unique()) == len(ids), "an image comes twice")
    for start in {0, 1, len(batches) // 2, len(batches) - 1, len(batches)}:
        later = list(stream.batches(start))
        _require(len(later) == len(batches[start:]), f"from minibatch {start} on, {len(later)} minibatches come")
        same = all(_equal(a, b) for a, b in zip(later, batches[start:], strict=True))
        _require(same, f"a stream started at minibatch {start} differs from the whole stream")
    pixels = batches[0].images.clone()
    batches[0].images.add_(1)
    shared = not torch.equal(next(iter(stream.batches())).images, pixels)
    _require(not shared, "changing a batch changes the stream: images are shared")


def _equal(a: Batch, b: Batch) -> bool:
    tensors = ((a.images, b.images), (a.ids, b.ids), (a.labels, b.labels))
    return a.task == b.task and all(torch.equal(x, y) for x, y in tensors)
