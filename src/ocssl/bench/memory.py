"""The replay memory: how its cost grows with the slots, what it allocates, and its rules beside naive ones."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ocssl import recipes
from ocssl._core.angles import unit
from ocssl.bench.timing import Bar, Effort, Row, Spread, Times, Workload, exact, interleaved, ratio, spread
from ocssl.errors import OcsslError
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.memory.psa import psa

DRAWN, ARRIVING = 128, 10  # samples of a round
TURNS = 4  # rounds timed together: the first after those of another memory finds a cold cache
PREPARED = 16  # rounds whose data are made before, and then come again
FILLING = 10_000  # samples at once
FEATURE, PROJECTION = 512, 2048  # dimensions

FEW, MANY = 2000, 1_000_000  # slots
GROWTH = 100  # times that a round may take longer with many slots
FASTER = 20  # times: what MinRed's kept similarities have to gain
COUNTED = 100_000  # slots where large tensors are counted; rules look at short columns as a whole
LEAN = ("solar", "er-fifo", "er-reservoir")  # methods whose rules need no tensor as large as the memory

ROUND = f"draw {DRAWN}, refresh them, insert {ARRIVING} into a full memory"
STATISTICS = f"{ROUND}; columns: loss, angle, draws, arrival number, id, an image of one pixel"


def memory_rows(effort: Effort) -> Iterator[Row]:
    slots = [1000, FEW, 10_000, 100_000, MANY, *([] if effort.quick else [10_000_000])]
    yield from growth(slots, effort.rounds(20, 8), FEW, MANY)
    yield from with_images([FEW, 20_000, *([] if effort.quick else [200_000])], 32, effort.rounds(40, 15))
    for method in LEAN:
        yield large_tensors(method, COUNTED)
    yield from beside_list(FEW, 32, FEATURE, effort.rounds(20, 5))
    yield from beside_matrices(FEW, PROJECTION, effort.rounds(8, 2))
    yield from spread_out(FEW, FEATURE, effort.rounds(20, 6))


def growth(slots: Sequence[int], rounds: int, few: int, many: int) -> Iterator[Row]:
    """What a round of SOLAR's memory costs by the number of slots, statistics only."""
    times = rounds_of({n: full("solar", n) for n in slots}, rounds)
    name = f"SOLAR's round, {many:,} slots / {few:,}"
    yield Row("memory", name, ratio(times, str(many), str(few)), "x", Bar(GROWTH), note=STATISTICS)
    for n in slots:
        yield Row("memory", f"SOLAR's round, {n:,} slots", spread(times[str(n)], 1e6), "us", note=STATISTICS)
    for part in (slots, slots[-2:]):
        name = f"SOLAR's round, exponent from {part[0]:,} to {part[-1]:,} slots"
        note = "time grows like slots to this power: least squares of logarithms"
        yield Row("memory", name, exponent(times, part), "x", note=note)


def with_images(slots: Sequence[int], size: int, rounds: int) -> Iterator[Row]:
    """The same with images of a size that is trained on."""
    times = rounds_of({n: full("solar", n, size) for n in slots}, rounds)
    for n in slots:
        yield Row("memory", f"SOLAR's round, {n:,} images of {size} px", spread(times[str(n)], 1e6), "us", note=ROUND)


def large_tensors(method: str, slots: int) -> Row:
    """How many tensors with at least one element a slot a round allocates."""
    work = round_of(full(method, slots))
    work()
    with Allocations(slots) as made:
        work()
    note = f"{ROUND} of {slots:,} slots" + "".join(f"; {name}" for name in made.operations)
    name = f"{method}, tensors as large as the memory made in a round"
    return Row("memory", name, exact(len(made.operations)), "count", Bar(0), note=note)


def beside_list(slots: int, size: int, feature: int, rounds: int) -> Iterator[Row]:
    """A round beside that of a list of dictionaries of tensors, which is spared the choice of what to draw."""
    ours, peer = full("solar", slots, size, feature), ListMemory(slots)
    peer.insert(ours.store["image"], ours.store["id"], statistics_of(ours))
    same_rounds(ours, peer, 2)
    times = interleaved({"ours": round_of(ours), "list": list_round(peer, ours)}, rounds)
    note = f"{ROUND}: {slots:,} images of {size} px with features of {feature}; the list gets the indices to draw"
    name = "SOLAR's round, faster than a list of tensors"
    yield Row("memory", name, ratio(times, "list", "ours"), "x", faster=True, note=note)
    for which, seconds in times.items():
        name = f"SOLAR's round, images and features, {'a list' if which == 'list' else 'columns'} of tensors"
        yield Row("memory", name, spread(seconds, 1e6), "us", note=note)


def beside_matrices(slots: int, projection: int, rounds: int) -> Iterator[Row]:
    """MinRed's eviction with the similarities that it keeps, beside computing all of them for every victim."""
    memory = full("minred", slots, projected=projection)
    batches = prepared(memory)

    def kept() -> Tensor:
        batch = next(batches)
        return memory.insert(batch.images, batch.ids, batch.arriving)

    def recomputed() -> Tensor:
        return matrix_per_victim(memory.store["projected"], memory.store["born"], ARRIVING)

    if recomputed().tolist() != kept().tolist():
        raise OcsslError("MinRed and its naive form do not evict the same samples.")
    times = interleaved({"kept": kept, "recomputed": recomputed}, rounds, warmup=0)
    note = f"{ARRIVING} samples into {slots:,} slots, projections of {projection}; the same victims"
    name = "MinRed: kept similarities, faster than recomputed"
    yield Row(
        "memory", name, ratio(times, "recomputed", "kept"), "x", Bar(FASTER, at_least=True), faster=True, note=note
    )
    name = "MinRed: eviction and writing"
    yield Row("memory", name, spread(times["kept"], 1e3), "ms", note=note)


def spread_out(slots: int, feature: int, rounds: int) -> Iterator[Row]:
    """SCALE's selection of points, whose cost depends on how they lie."""
    normal = torch.randn(slots + ARRIVING, feature, generator=torch.Generator().manual_seed(0))
    works: dict[str, Workload] = {"normal": lambda: psa(normal, slots), "ReLU": lambda: psa(normal.relu(), slots)}
    note = f"{slots:,} of {slots + ARRIVING:,} points in {feature} dimensions stay"
    for kind, seconds in interleaved(works, rounds).items():
        yield Row("memory", f"PSA of {kind} features", spread(seconds, 1e3), "ms", note=note)


@dataclass(frozen=True)
class Batch:
    """What a round brings to a memory."""

    refreshed: Mapping[str, Tensor]  # statistics of drawn samples
    images: Tensor
    ids: Tensor
    arriving: Mapping[str, Tensor]  # statistics of new samples


def full(method: str, slots: int, size: int = 1, feature: int = 0, projected: int = 0) -> Memory:
    """The memory of a recipe, filled with random samples; vectors of length 0 are not stored."""
    chosen = recipes.resolve(method, None, {})["memory"]
    rule = KEEPS.build(chosen["keep"])
    vectors = {name: length for name, length in (("feature", feature), ("projected", projected)) if length}
    store = Store(slots, (3, size, size), vectors | rule.columns(slots))
    memory = Memory(store, rule, DRAWS.build(chosen["draw"]), torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    for start in range(0, slots, FILLING):
        batch = random_batch(store, 0, min(FILLING, slots - start), generator)
        memory.insert(batch.images, batch.ids + start, batch.arriving)
    return memory


def random_batch(store: Store, drawn: int, arriving: int, generator: torch.Generator) -> Batch:
    """Random samples with the columns of a store."""
    named = {name: store[name].shape[1:] for name in ("loss", "angle", "feature", "projected") if name in store}
    old, new = (
        {name: torch.rand(n, *shape, generator=generator) for name, shape in named.items()} for n in (drawn, arriving)
    )
    shape = (arriving, *store["image"].shape[1:])
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return Batch(old, images, torch.arange(arriving), new)


def prepared(memory: Memory) -> Iterator[Batch]:
    """Data of one round after another, without end."""
    generator = torch.Generator().manual_seed(2)
    drawn = min(DRAWN, len(memory))
    return itertools.cycle([random_batch(memory.store, drawn, ARRIVING, generator) for _ in range(PREPARED)])


def round_of(memory: Memory) -> Workload:
    """What the learner asks of its memory for one minibatch."""
    batches = prepared(memory)

    def work() -> None:
        batch = next(batches)
        memory.refresh(memory.draw(DRAWN), batch.refreshed)
        memory.insert(batch.images, batch.ids, batch.arriving)

    return work


def rounds_of(memories: Mapping[int, Memory], rounds: int) -> Times:
    """Seconds of one round of memories by their slots."""

    def several(memory: Memory) -> Workload:
        work = round_of(memory)
        return lambda: [work() for _ in range(TURNS)]

    times = interleaved({str(slots): several(memory) for slots, memory in memories.items()}, rounds)
    return {name: [s / TURNS for s in seconds] for name, seconds in times.items()}


def list_round(peer: ListMemory, like: Memory) -> Workload:
    """The same of a list of tensors, in other slots every time."""
    batches, generator = prepared(like), torch.Generator().manual_seed(3)
    drawn = [torch.randperm(len(like), generator=generator)[:DRAWN].tolist() for _ in range(PREPARED)]
    slots = itertools.cycle(drawn)

    def work() -> None:
        batch, chosen = next(batches), next(slots)
        peer.draw(chosen)
        peer.refresh(chosen, batch.refreshed)
        peer.insert(batch.images, batch.ids, batch.arriving)

    return work


def same_rounds(ours: Memory, peer: ListMemory, rounds: int) -> None:
    """An error unless both memories bring the same images and end with the same samples, to the last bit."""
    batches = prepared(ours)
    same = True
    for batch in itertools.islice(batches, rounds):
        replay = ours.draw(DRAWN)
        images, ids = peer.draw(replay.slots.tolist())
        same &= torch.equal(images, replay.images) and torch.equal(ids, replay.ids)
        ours.refresh(replay, batch.refreshed)
        peer.refresh(replay.slots.tolist(), batch.refreshed)
        ours.insert(batch.images, batch.ids, batch.arriving)
        peer.insert(batch.images, batch.ids, batch.arriving)
    if not same or not all(torch.equal(ours.store[name], peer.column(name)) for name in ours.store):
        raise OcsslError("the memory and a list of tensors do not hold the same samples.")


def statistics_of(memory: Memory) -> dict[str, Tensor]:
    """The columns that a caller gives."""
    return {name: memory.store[name] for name in ("loss", "angle", "feature", "projected") if name in memory.store}


def exponent(times: Times, slots: Sequence[int]) -> Spread:
    """The slope of log time on log slots, round by round."""
    logs = [math.log(n) for n in slots]
    together = zip(*(times[str(n)] for n in slots), strict=True)
    return spread([statistics.linear_regression(logs, [math.log(s) for s in seconds]).slope for seconds in together])


# ---- naive forms ----------------------------------------------------------------------------------------------------


def matrix_per_victim(vectors: Tensor, born: Tensor, n: int) -> Tensor:
    """MinRed as it is written down: n slots, one after another the older of the two closest vectors that are left."""
    left = torch.arange(len(vectors))
    victims = []
    for _ in range(n):
        rows = unit(vectors[left])
        cosines = (rows @ rows.T).fill_diagonal_(-torch.inf)
        pair = torch.stack(torch.unravel_index(cosines.argmax(), cosines.shape))
        older = pair[born[left[pair]].argmin()]
        victims.append(left[older])
        left = left[left != left[older]]
    return torch.stack(victims)


class ListMemory:
    """SOLAR's memory as public replay buffers hold it: a list of samples, each a dictionary of tensors.

    The highest losses stay. The caller says which samples are drawn.
    """

    def __init__(self, capacity: int, ema: float = 0.5) -> None:
        self.capacity = capacity
        self.ema = ema
        self.seen = 0
        self.samples: list[dict[str, Any]] = []

    def draw(self, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and ids of the samples in these places, whose draws are counted."""
        drawn = [self.samples[slot] for slot in slots]
        for sample in drawn:
            sample["draws"] += 1
        return torch.stack([sample["image"] for sample in drawn]), torch.tensor([sample["id"] for sample in drawn])

    def refresh(self, slots: Sequence[int], statistics: Mapping[str, Tensor]) -> None:
        """Move the statistics of these samples towards their new values, one by one."""
        for row, slot in enumerate(slots):
            sample = self.samples[slot]
            for name, new in statistics.items():
                sample[name] = torch.lerp(new[row], sample[name], self.ema)

    def insert(self, images: Tensor, ids: Tensor, statistics: Mapping[str, Tensor]) -> None:
        """Sort stored and new samples by loss, of equal ones the older first; the lowest go, and the rest stays put.

        A newcomer takes the place of a stored sample that goes, the newcomers in order and the lowest first.
        """
        new: list[dict[str, Any]] = []
        for row in range(len(images)):
            measured = {name: column[row].clone() for name, column in statistics.items()}
            new.append({**measured, "image": images[row].clone(), "id": int(ids[row]), "born": self.seen, "draws": 0})
            self.seen += 1
        free = self.capacity - len(self.samples)
        self.samples += new[:free]
        late = new[free:]
        if not late:
            return
        everyone = sorted(self.samples + late, key=lambda sample: (sample["loss"].item(), sample["born"]))
        gone = {sample["born"] for sample in everyone[: len(late)]}
        places = {sample["born"]: slot for slot, sample in enumerate(self.samples)}
        freed = [places[sample["born"]] for sample in everyone[: len(late)] if sample["born"] in places]
        stay = [sample for sample in late if sample["born"] not in gone]
        for slot, sample in zip(freed, stay, strict=True):
            self.samples[slot] = sample

    def column(self, name: str) -> Tensor:
        """One statistic of all samples, in their order."""
        return torch.stack([torch.as_tensor(sample[name]) for sample in self.samples])


# ---- allocations ----------------------------------------------------------------------------------------------------


class Allocations(TorchDispatchMode):
    """The operations inside the block that allocate storages of at least `elements` elements.

    A view, an operation in place and one that writes to `out` allocate none. What an operation needs while it runs is
    not seen.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = elements
        self.operations: list[str] = []  # one for each storage

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {_storage(tensor) for tensor in _tensors([*args, *(kwargs or {}).values()])}
        for tensor in _tensors(out):
            if _storage(tensor) not in known:
                known.add(_storage(tensor))
                if tensor.untyped_storage().nbytes() >= self.elements * tensor.element_size():
                    self.operations.append(str(func))
        return out


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(values: Any) -> list[Tensor]:
    """Tensors among arguments or results, also inside lists."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
