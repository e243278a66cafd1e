"""Contracts of keep and draw rules."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ocssl.checks.contract import global_randomness_untouched, maker, require
from ocssl.memory import DRAWS, KEEPS, Draw, Keep, Memory, Store
from ocssl.memory.store import REFUSED

DIMENSION = 6


def _statistics(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Statistics with ties in them."""
    losses = (torch.rand(n, generator=generator) * 20).round() / 10 - 1
    vectors = torch.randn(n, DIMENSION, generator=generator)
    angles = torch.rand(n, generator=generator)
    return {"loss": losses, "angle": angles, "feature": vectors, "projected": vectors.flip(1)}


def _images(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (n, 3, 4, 4), generator=generator, dtype=torch.uint8)


class _FakeContext:
    """Answers that depend on the images and nothing else."""

    def loss_increase(self, images: Tensor) -> Tensor:
        return images.float().mean((1, 2, 3)).sin()

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        return torch.stack([images.flatten(1)[:, :DIMENSION].float().mean(0) - 128 for images in batches])


def _memory(keep: Keep, draw: Draw, capacity: int, seed: int) -> Memory:
    vectors = {name: DIMENSION for name in keep.needs | draw.needs if name in ("feature", "projected")}
    vectors |= keep.columns(capacity)
    return Memory(Store(capacity, (3, 4, 4), vectors), keep, draw, torch.Generator().manual_seed(seed))


@contextmanager
def _reading_only(store: Store, what: str) -> Iterator[None]:
    """A rule's method neither writes to the store nor draws from global random state."""
    before = {name: store[name].clone() for name in store}
    with global_randomness_untouched(what):
        yield
    require(all(torch.equal(store[name], before[name]) for name in store), f"{what} writes to the store")


def check_keep(part: Any) -> None:
    """Slots in range, none twice; nothing written; a new rule decides the same; no pixels, no global state."""
    make = maker(part, KEEPS)
    data = torch.Generator().manual_seed(7)
    for capacity, batch in ((1, 1), (1, 5), (7, 3), (20, 10), (10, 25)):
        memory = _memory(make(), DRAWS.build("uniform"), capacity, seed=capacity)
        for number in range(8):
            _check_placement(make, memory, batch, data)
            n, images, ids = len(memory), _images(batch, data), torch.arange(batch) + batch * number
            memory.insert(images, ids, _statistics(batch, data), _FakeContext())
            memory.refresh(memory.draw(3), _statistics(min(3, len(memory)), data))
            held = len(memory)
            require(held == min(capacity, n + batch), f"a memory of {capacity} slots holds {held} samples")
            born = memory.store["born"]
            require(len(born.unique()) == len(born), "a sample is in two slots")


def _check_placement(make: Callable[[], Keep], memory: Memory, batch: int, data: torch.Generator) -> None:
    store, state = memory.store, memory.generator.get_state()
    if len(memory) < store.capacity:
        return
    arriving = {**_statistics(batch, data), "id": torch.arange(batch), "born": memory.seen + torch.arange(batch)}
    images = _images(batch, data)
    with global_randomness_untouched("annotate"):
        own = memory.keep_rule.annotate(store, {**arriving, "image": images}, memory.generator, _FakeContext())
    wrong = [name for name, column in own.items() if len(column) != batch]
    require(not wrong, f"annotate must give one row an arriving sample; {wrong} have not")
    arriving |= own
    before_place = memory.generator.get_state()
    given = {name: column.clone() for name, column in arriving.items()}
    with _reading_only(store, "place"):
        slots = memory.keep_rule.place(store, arriving, memory.generator)
    require(_are_slots(slots, batch), f"place must return int64 slots [{batch}], one per arriving sample")
    taken = slots[slots != REFUSED]
    require(((taken >= 0) & (taken < store.capacity)).all(), f"slots {taken.tolist()} lie outside the store")
    require(len(taken.unique()) == len(taken), f"slots {taken.tolist()}: one slot is given to two samples")
    require(all(torch.equal(arriving[n], given[n]) for n in given), "place changes the statistics that it is given")
    pixels = store["image"].clone()
    store["image"].random_(0, 256, generator=data)
    again = make().place(store, arriving, torch.Generator().set_state(before_place))
    store["image"].copy_(pixels)
    memory.generator.set_state(state)
    require(
        torch.equal(slots, again),
        "a new rule decides otherwise for the same store and generator: the rule remembers something, looks at pixels, "
        "or draws from elsewhere",
    )


def _are_slots(slots: object, n: int) -> bool:
    return isinstance(slots, Tensor) and slots.shape == (n,) and slots.dtype == torch.int64


def check_draw(part: Any) -> None:
    """Distinct filled slots, as many as asked for; nothing written; same answer from a new rule."""
    make = maker(part, DRAWS)
    data = torch.Generator().manual_seed(8)
    rule = make()
    memory = _memory(KEEPS.build("fifo"), rule, 12, seed=3)
    met: set[int] = set()
    for round_ in range(60):
        n = 5 if round_ < 2 else 1
        memory.insert(_images(n, data), torch.arange(n), _statistics(n, data))
        for wanted in (0, 1, len(memory) // 2, len(memory)):
            store, state = memory.store, memory.generator.get_state()
            with _reading_only(store, "pick"):
                slots = rule.pick(store, wanted, memory.generator, _FakeContext())
            good = _are_slots(slots, wanted)
            require(good, f"pick must return int64 slots [{wanted}] when {wanted} are asked for")
            inside = (slots >= 0) & (slots < len(store))
            require(inside.all(), f"slots {slots.tolist()} are not all among the {len(store)} filled ones")
            require(len(slots.unique()) == len(slots), f"slots {slots.tolist()}: one is drawn twice")
            again = make().pick(store, wanted, torch.Generator().set_state(state), _FakeContext())
            require(torch.equal(slots, again), "a new rule draws otherwise for the same store and generator")
            weight = rule.weigh(store, slots)
            good = weight.shape == (wanted,) and bool((weight.isfinite() & (weight >= 0)).all())
            require(good, f"weigh must give {wanted} finite weights from 0 up")
            if wanted <= len(memory) // 2:
                met.update(slots.tolist())
        memory.draw(3, _FakeContext())
    require(len(met) > 6, f"only slots {sorted(met)} of 12 were ever drawn, at most half of them at a time")
