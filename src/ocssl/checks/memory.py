"""Contracts of keep and draw rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def _snapshot(store: Store) -> dict[str, Tensor]:
    return {name: store[name].clone() for name in store}


def _same(store: Store, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(store[name], before[name]) for name in store)


def check_keep(part: Any) -> None:
    """Slots in range, none twice; nothing written; a rule made anew decides the same; no pixels, no global state."""
    make = maker(part, KEEPS)
    data = torch.Generator().manual_seed(7)
    for capacity, batch in ((1, 1), (1, 5), (7, 3), (20, 10), (10, 25)):
        memory = _memory(make(), DRAWS.build("uniform"), capacity, seed=capacity)
        for number in range(8):
            _check_placement(make, memory, batch, data)
            n = len(memory)
            images = torch.randint(0, 256, (batch, 3, 4, 4), generator=data, dtype=torch.uint8)
            ids = torch.arange(batch) + batch * number
            memory.insert(images, ids, _statistics(batch, data), _FakeContext())
            memory.refresh(memory.draw(3), _statistics(min(3, len(memory)), data))
            require(
                len(memory) == min(capacity, n + batch), f"a memory of {capacity} slots holds {len(memory)} samples"
            )
            born = memory.store["born"]
            require(len(born.unique()) == len(born), "a sample is in two slots")


def _check_placement(make: Callable[[], Keep], memory: Memory, batch: int, data: torch.Generator) -> None:
    store, state = memory.store, memory.generator.get_state()
    if len(memory) < store.capacity:
        return
    arriving = {**_statistics(batch, data), "id": torch.arange(batch), "born": memory.seen + torch.arange(batch)}
    images = torch.randint(0, 256, (batch, 3, 4, 4), generator=data, dtype=torch.uint8)
    with global_randomness_untouched("annotate"):
        own = memory.keep_rule.annotate(store, {**arriving, "image": images}, memory.generator, _FakeContext())
    wrong = [name for name, column in own.items() if len(column) != batch]
    require(not wrong, f"annotate must give one row an arriving sample; {wrong} have not")
    arriving |= own
    before_place = memory.generator.get_state()
    given, before = {name: column.clone() for name, column in arriving.items()}, _snapshot(store)
    with global_randomness_untouched("place"):
        slots = memory.keep_rule.place(store, arriving, memory.generator)
    require(
        isinstance(slots, Tensor) and slots.shape == (batch,) and slots.dtype == torch.int64,
        f"place must return int64 slots [{batch}], one an arriving sample",
    )
    taken = slots[slots != REFUSED]
    require(bool(((taken >= 0) & (taken < store.capacity)).all()), f"slots {taken.tolist()} lie outside the store")
    require(len(taken.unique()) == len(taken), f"slots {taken.tolist()}: one slot is given to two samples")
    require(_same(store, before), "place writes to the store")
    require(all(torch.equal(arriving[n], given[n]) for n in given), "place changes the statistics that it is given")
    pixels = store["image"].clone()
    store["image"].random_(0, 256, generator=data)
    again = make().place(store, arriving, torch.Generator().set_state(before_place))
    store["image"].copy_(pixels)
    memory.generator.set_state(state)
    require(
        torch.equal(slots, again),
        "a rule made anew decides otherwise for the same store and generator: it remembers something of its own, "
        "looks at pixels, or draws from elsewhere",
    )


def check_draw(part: Any) -> None:
    """Distinct filled slots, as many as asked for; nothing written; same answer from a rule made anew."""
    make = maker(part, DRAWS)
    data = torch.Generator().manual_seed(8)
    rule = make()
    memory = _memory(KEEPS.build("fifo"), rule, 12, seed=3)
    met: set[int] = set()
    for round_ in range(60):
        n = 5 if round_ < 2 else 1
        images = torch.randint(0, 256, (n, 3, 4, 4), generator=data, dtype=torch.uint8)
        memory.insert(images, torch.arange(n), _statistics(n, data))
        for wanted in (0, 1, len(memory) // 2, len(memory)):
            store, before, state = memory.store, _snapshot(memory.store), memory.generator.get_state()
            with global_randomness_untouched("pick"):
                slots = rule.pick(store, wanted, memory.generator, _FakeContext())
            require(
                isinstance(slots, Tensor) and slots.shape == (wanted,) and slots.dtype == torch.int64,
                f"pick must return int64 slots [{wanted}] when {wanted} are asked for",
            )
            inside = bool(((slots >= 0) & (slots < len(store))).all())
            require(inside, f"slots {slots.tolist()} are not all among the {len(store)} filled ones")
            require(len(slots.unique()) == len(slots), f"slots {slots.tolist()}: one is drawn twice")
            require(_same(store, before), "pick writes to the store")
            again = make().pick(store, wanted, torch.Generator().set_state(state), _FakeContext())
            require(torch.equal(slots, again), "a rule made anew draws otherwise for the same store and generator")
            weight = rule.weigh(store, slots)
            good = weight.shape == (wanted,) and bool((torch.isfinite(weight) & (weight >= 0)).all())
            require(good, f"weigh must give {wanted} finite weights from 0 up")
            if wanted <= len(memory) // 2:
                met.update(slots.tolist())
        memory.draw(3, _FakeContext())
    require(len(met) > 6, f"only slots {sorted(met)} of 12 were ever drawn, at most half of them at a time")
