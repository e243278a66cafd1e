"""One of several ranks: does what test_ranks.py asks for and leaves what came out beside the others'."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ocssl
import ocssl.runs.run  # so that a rank need not
from conftest import random_images, small_settings
from ocssl._distributed.ranks import DistributedRanks, Ranks, Rows, joined
from ocssl._distributed.shards import Shard
from ocssl._distributed.sync_batch_norm import synchronise
from ocssl._training.optimizer import SGD
from ocssl.cli import main
from ocssl.errors import NonFiniteLoss
from ocssl.memory import DRAWS, KEEPS, Draw, Memory, Store

SHARES = ((5, 2), (4, 4), (3, 0))  # rows of a batch on two ranks
BROKEN = ("norm", "gradients", "top")
STEPS = {"solar": 4, "centred": 4, "er-fifo": 5, "byol": 3, "dino": 3}  # minibatches, each with its settings below
MORE: dict[str, dict[str, Any]] = {
    "solar": {"memory.capacity": 60, "schedule.passes": 2, "terms.overlap.weight": 3.0},  # it never fills up
    "centred": {"memory.capacity": 60, "schedule.passes": 2, "memory.center": "running", "terms.overlap.weight": 3.0},
    "er-fifo": {"memory.capacity": 24, "schedule.passes": 1},  # it does
    "byol": {"memory.capacity": 24, "schedule.passes": 1, "objective.name": "byol"},
    "dino": {"memory.capacity": 24, "schedule.passes": 1, "objective.name": "dino", "views.local": 2}
    | {"views.local_size": 8},
}
CASES = [(seed, k) for seed in range(12) for k in (1, 4, 9, 30)]


class Turns(Draw):
    """No chance: the least drawn, then the oldest, so many of each rank's samples as the rank would draw itself."""

    def __init__(self, groups: int) -> None:
        self.groups = groups  # ranks whose samples lie in this memory

    def pick(self, store: Store, n: int, generator: torch.Generator, context: object) -> Tensor:
        order = (store["draws"] * 10**6 + store["born"]).argsort()
        shares = [n // self.groups + (r < n % self.groups) for r in range(self.groups)]
        return torch.cat([order[store["born"][order] % self.groups == r][:m] for r, m in enumerate(shares)])


def an_encoder() -> nn.Module:
    """Small, with batch norm, and the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        conv, linear = nn.Conv2d(3, 4, 3, 2), nn.Linear(36, 8)
    return nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), linear, nn.BatchNorm1d(8))


def learner(case: str, ranks: Ranks) -> ocssl.Learner:
    """A learner without chance: its views are the image and its mirror image, in other colours. Its network computes in
    float64, since rounding grows from step to step.
    """
    method = {"byol": "er-fifo", "dino": "er-fifo", "centred": "solar"}.get(case, case)
    settings = small_settings(method) | MORE[case] | {"compute.ranks": ranks.size}
    made = ocssl.Learner(method, image_size=8, settings=settings, encoder=an_encoder(), ranks=ranks)
    made.network.double()
    made._optimizer = SGD(made._optimizer.parameters, made.settings.optimizer, made._guard)  # momenta in float64

    def see(images: Tensor) -> tuple[Tensor, ...]:
        views = torch.stack([made.views.plain(images), -made.views.plain(images.flip(3)) * 0.7 + 0.1]).double()
        return (views, 0.9 * views) if made.settings.views.local else (views,)

    made._see = see
    made.memory.draw_rule = Turns(1 if ranks.size > 1 else 2)
    return made


def minibatches(count: int) -> Iterator[Tensor]:
    sizes = (7, 5, 8, 6, 7)
    yield from (random_images(sizes[i], seed=i) for i in range(count))


def state(made: ocssl.Learner) -> dict[str, Tensor]:
    """Network, momentum and the whole memory by arrival number."""
    with made.gathered_memory():
        found = {name: tensor.clone() for name, tensor in made.tensors().items() if "generator" not in name}
    if "memory.column.born" in found:
        order = found["memory.column.born"].argsort()
        found |= {name: t[order] for name, t in found.items() if name.startswith("memory.column.")}
    return found


def trained(case: str, ranks: Ranks, broken: str = "") -> dict[str, Tensor]:
    """What a learner has become, and what it told on the way."""
    with spoiled(broken):
        made = learner(case, ranks)
        told = [made.partial_fit(images) for images in minibatches(STEPS[case])]
    keys = ("loss", "ssl", "steps", "seen", "spread", "participation_ratio")
    info = [[float(getattr(i, key)) for key in keys] + list(i.terms.values()) for i in told]
    return {**state(made), "info": torch.tensor(info, dtype=torch.float64)}


@contextmanager
def spoiled(how: str) -> Iterator[None]:
    """Ranks with a mistake in them, which tests must notice."""
    right = (DistributedRanks.synchronise, Rows.part, Shard.highest)
    if how == "norm":
        DistributedRanks.synchronise = Ranks.synchronise
    elif how == "gradients":
        Rows.part = lambda self, mean: mean / 2
    elif how == "top":
        Shard.highest = Memory.highest
    try:
        yield
    finally:
        DistributedRanks.synchronise, Rows.part, Shard.highest = right


def a_norm(kind: str) -> nn.Module:
    made = {"1d": nn.BatchNorm1d(3), "2d": nn.BatchNorm2d(3), "plain": nn.BatchNorm1d(3, affine=False)}[kind]
    if kind != "plain":
        with torch.no_grad():
            made.weight.copy_(torch.tensor([0.5, 2.0, -1.0]))
            made.bias.copy_(torch.tensor([0.1, 0.0, 3.0]))
    return nn.Sequential(made).double()


def a_batch(kind: str, rows: int) -> tuple[Tensor, Tensor]:
    """Values far from zero, and the slopes of what comes out."""
    generator = torch.Generator().manual_seed(rows)
    shape = (rows, 3, 2, 2) if kind == "2d" else (rows, 3)
    values, slopes = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    return values * 2 + 50, slopes


def normed(norm: nn.Module, values: Tensor, slopes: Tensor) -> dict[str, Tensor]:
    """Two passes, so that running statistics move twice; the slopes of the second."""
    norm(values)
    values.requires_grad_()
    for parameter in norm.parameters():
        parameter.grad = None
    out = norm(values)
    out.backward(slopes)
    gradients = {f"by {name}": p.grad for name, p in norm.named_parameters()}
    return {"out": out.detach(), "by x": values.grad, **gradients, **dict(norm.named_buffers())}


def norms(ranks: Ranks) -> dict[str, Tensor]:
    found = {}
    for kind in ("1d", "2d", "plain"):
        for shares in SHARES:
            norm = a_norm(kind)
            synchronise(norm, ranks.sum)
            values, slopes = (t.split(shares)[ranks.rank].clone() for t in a_batch(kind, sum(shares)))
            for name, tensor in normed(norm, values, slopes).items():
                found[f"{kind} {shares} {name}"] = tensor
    return found


def shard_rows(seed: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Losses with many ties, features, and the places that each rank is to leave out: of 15 arrivals."""
    generator = torch.Generator().manual_seed(seed)
    losses = torch.randint(0, 4, (15,), generator=generator).float()
    features = torch.randn(15, 2, generator=generator)
    outside = [torch.randperm(7, generator=generator)[: seed % 4 + 4 * (seed == 11 - r)] for r in range(2)]
    return losses, features, outside


def tops(ranks: Ranks) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for seed, k in CASES:
        losses, features, outside = shard_rows(seed)
        losses, features, outside = losses[ranks.rank :: 2], features[ranks.rank :: 2], outside[ranks.rank :: 2]
        store = Store(8, (3, 1, 1), {"feature": 2})
        memory = Memory(store, KEEPS.build("fifo"), DRAWS.build("uniform"), torch.Generator())
        images = torch.zeros(len(losses), 3, 1, 1, dtype=torch.uint8)
        memory.insert(images, torch.arange(len(losses)), {"loss": losses, "feature": features, "angle": losses * 2})
        chosen = Shard(memory, ranks, 15).highest(k, "loss", outside[0], ("loss", "feature", "angle"))
        found |= {f"{seed} {k} {name}": t for name, t in zip(("loss", "feature", "angle"), chosen, strict=True)}
    return found


def resumed(ranks: Ranks, folder: Path) -> dict[str, Tensor]:
    """The same learner, once in one go and once saved and loaded in the middle; chance and all."""
    settings = small_settings("solar") | {"compute.ranks": 2, "memory.capacity": 9, "schedule.passes": 1}
    made = ocssl.Learner("solar", image_size=8, settings=settings, encoder=an_encoder(), ranks=ranks)
    for i in range(3):
        made.partial_fit(random_images(5, seed=i))
    made.save(folder / "learner")
    ranks.barrier()
    again = ocssl.Learner.load(folder / "learner", encoder=an_encoder(), ranks=ranks)
    for i in range(3, 6):
        made.partial_fit(random_images(5, seed=i))
        again.partial_fit(random_images(5, seed=i))
    found = {f"one {name}": tensor for name, tensor in made.tensors().items()}
    return found | {f"other {name}": tensor for name, tensor in again.tensors().items()}


def few(ranks: Ranks) -> dict[str, Tensor]:
    """Minibatches of one image: at first a rank has no row at all."""
    settings = small_settings("solar") | {"compute.ranks": 2}
    made = ocssl.Learner("solar", image_size=8, settings=settings, encoder=an_encoder(), ranks=ranks)
    losses = [made.partial_fit(random_images(1, seed=i)).loss for i in range(3)]
    return {**made.tensors(), "told": torch.tensor(losses)}


def refused(ranks: Ranks) -> dict[str, Tensor]:
    """A loss that is not finite for one sample, which is on the second rank."""
    made = learner("er-fifo", ranks)
    forward = made.objective.forward

    def spoil(views: Tensor) -> Any:
        out = forward(views)
        if not ranks.first:
            out.loss.data[1] = torch.nan
        return out

    made.objective.forward = spoil
    before = made.network.state_dict()["objective.encoder.0.weight"].clone()
    try:
        made.partial_fit(random_images(6), ids=torch.arange(100, 106))
    except NonFiniteLoss as error:
        changed = before != made.network.state_dict()["objective.encoder.0.weight"]
        return {"ids": torch.tensor(error.ids), "changed": changed.any()}
    return {}


def as_rank(rank: int, size: int, port: int, log: Path, words: Sequence[str]) -> None:
    """Be a rank, told what torchrun tells: of the command line, or of what stands here."""
    told = {"WORLD_SIZE": size, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in told.items()} | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    if words[0] == "worker":
        everything(Path(words[1]))
    else:
        main(words)


def everything(folder: Path) -> None:
    with joined("cpu") as ranks:
        found = {"norms": norms(ranks), "tops": tops(ranks), "few": few(ranks), "refused": refused(ranks)}
        found |= {case: trained(case, ranks) for case in STEPS}
        found |= {f"without {how}": trained("solar", ranks, how) for how in BROKEN}
        found["resumed"] = resumed(ranks, folder)
        torch.save(found, folder / f"rank{ranks.rank}.pt")


def digest(tensors: dict[str, Tensor]) -> str:
    whole = hashlib.sha256()
    for name in sorted(tensors):
        whole.update(name.encode() + tensors[name].contiguous().numpy().tobytes())
    return whole.hexdigest()
