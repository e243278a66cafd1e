"""Ranks: processes that train one learner together, each on its rows of every minibatch and its shard of the memory.

`ALONE` stands for a single process: it answers every question by itself, and costs nothing. `DistributedRanks` asks
the other processes. What is asked must be asked by all ranks, in the same order.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ocssl._core.registry import Registry
from ocssl._distributed.sync_batch_norm import synchronise
from ocssl.errors import OcsslError, SettingError
from ocssl.settings import LearnerSettings

PATIENCE = timedelta(days=1)  # how long ranks wait for one that evaluates; one that has ended is noticed at once

Value = TypeVar("Value")


class RankLost(OcsslError):
    """Another rank has ended, so that this one cannot continue."""


@dataclass(frozen=True)
class Rows:
    """How many rows of a batch are this rank's, and how many there are."""

    own: int
    total: int

    def part(self, mean: Tensor) -> Tensor:
        """What a mean over this rank's rows adds to the mean over all rows."""
        if self.own == self.total:
            return mean
        return mean * (self.own / self.total) if self.own else mean.nan_to_num() * 0  # the mean of no rows is NaN


class Ranks:
    """One process alone."""

    rank = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes, evaluates and prints."""
        return self.rank == 0

    def share(self, n: int) -> int:
        """How many of n things are this rank's; the first ranks have one more where it does not come out even."""
        return n // self.size + (self.rank < n % self.size)

    def mine(self, seen: int) -> slice:
        """This rank's rows of a minibatch, before which `seen` images arrived: every size-th arrival."""
        return slice((self.rank - seen) % self.size, None, self.size)

    def device(self, name: str) -> str:
        """The device of this rank, where all were given the same name."""
        return name

    def named(self, part: str) -> str:
        """The name under which this rank's own version of a part is seeded and saved."""
        return part if self.first else f"rank{self.rank}.{part}"

    def saved(self, tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
        """Saved tensors, some of them this rank's own versions."""
        return {**tensors, **{name: tensors[self.named(name)] for name in names}}

    def require(self, settings: LearnerSettings, parts: Iterable[tuple[str, Registry[Any], str]]) -> None:
        """Check that these ranks can train a learner of these settings; its parts are kind, registry and name."""
        if settings.compute.ranks != self.size:
            raise SettingError(other_ranks("compute.ranks", settings.compute.ranks, self.size))

    # ---- asked of all ranks -----------------------------------------------------------------------------------------

    def total(self, n: int) -> int:
        """The sum of an integer over all ranks."""
        return n

    def largest(self, n: int) -> int:
        """The largest of an integer over all ranks."""
        return n

    def count(self, rows: int) -> Rows:
        """This rank's rows among those of all."""
        return Rows(rows, self.total(rows))

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a detached tensor over all ranks."""
        return tensor

    def gather(self, rows: Tensor) -> Tensor:
        """The detached rows of all ranks, rank by rank: [n, ...] -> [N, ...]."""
        return rows

    def others(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of the other ranks, as large as here, under the names that they are saved by."""
        return {}

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Make every gradient the sum of all ranks'."""

    def synchronise(self, network: nn.Module) -> None:
        """Let batch norm see the rows of all ranks."""

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first rank alone, then the others; nothing may be asked of other ranks inside."""
        yield

    def barrier(self) -> None:
        """Wait until all ranks have come here."""

    def first_to_fail(self) -> bool:
        """Whether this rank is the first to fail, so that its message is the one to show."""
        return True


ALONE = Ranks()


class DistributedRanks(Ranks):
    """One of several processes, which torch.distributed connects."""

    def __init__(self, store: Any, rank: int, size: int, backend: str, local_rank: int = 0) -> None:
        self.rank, self.size, self._local_rank = rank, size, local_rank
        with _connection_errors():
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
            _wait_for_connections(store, rank, size)
        self._failures = dist.PrefixStore("ocssl", store)  # type: ignore[attr-defined]

    def device(self, name: str) -> str:
        return f"cuda:{self._local_rank}" if name == "cuda" else name

    def require(self, settings: LearnerSettings, parts: Iterable[tuple[str, Registry[Any], str]]) -> None:
        super().require(settings, parts)
        for kind, registry, name in parts:
            if not registry[name].shardable:
                able = [other for other in registry if registry[other].shardable]
                raise SettingError(
                    f"{kind} {name!r} needs the whole batch or memory in one place: it does not run on {self.size} "
                    f"ranks, where {kind} can be {' or '.join(able)}."
                )
        for setting, on in (("schedule.mix", settings.schedule.mix), ("compute.compile", settings.compute.compile)):
            if on:
                raise SettingError(f"{setting} does not work on {self.size} ranks; leave it out.")

    def total(self, n: int) -> int:
        return int(self.sum(torch.tensor(n)))

    def largest(self, n: int) -> int:
        found = torch.tensor(n)
        with _connection_errors():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def sum(self, tensor: Tensor) -> Tensor:
        found = tensor.detach().clone(memory_format=torch.contiguous_format)
        with _connection_errors():
            dist.all_reduce(found)
        return found

    def gather(self, rows: Tensor) -> Tensor:
        counts = [int(n) for n in self._all(torch.tensor([len(rows)]))]
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows.detach()
        return torch.cat([part[:n] for part, n in zip(self._all(padded), counts, strict=True)])

    def others(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {name: self._all(tensor) for name, tensor in tensors.items()}
        return {f"rank{r}.{name}": parts[r] for name, parts in found.items() for r in range(1, self.size)}

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        together = self.sum(torch.cat([g.flatten() for g in gradients]))
        for gradient, new in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(new.view_as(gradient))

    def synchronise(self, network: nn.Module) -> None:
        synchronise(network, self.sum)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        if not self.first:
            self.barrier()
        yield
        if self.first:
            self.barrier()

    def barrier(self) -> None:
        self.total(0)

    def first_to_fail(self) -> bool:
        try:
            return bool(self._failures.add("failures", 1) == 1)
        except RuntimeError:  # the rank that kept count has ended, and had its say
            return False

    def _all(self, tensor: Tensor) -> list[Tensor]:
        """A tensor that is as large on every rank, of all ranks."""
        found = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        with _connection_errors():
            dist.all_gather(found, tensor.contiguous())
        return found


def _wait_for_connections(store: Any, rank: int, size: int) -> None:
    """Until every rank is connected: one that ends before, with an error, would break the connections of others."""
    store.set(f"ocssl/connected/{rank}", "")
    store.wait([f"ocssl/connected/{other}" for other in range(size)], PATIENCE)


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Turn torch's error about a broken connection into one sentence."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[.*?\] ", "", str(error)).partition(". ")[0].partition("\n")[0]
        raise RankLost(
            f"another rank has ended, and this one cannot continue without it ({reason}); resume the run with as many "
            "ranks."
        ) from None


def command(ranks: int) -> str:
    """How a command for this number of ranks begins."""
    return "ocssl" if ranks == 1 else f"torchrun --nproc-per-node {ranks} -m ocssl"


def other_ranks(what: str, wanted: int, here: int) -> str:
    """The sentence for a number of ranks that is not the one wanted."""
    start = "as one process, without torchrun" if wanted == 1 else f"with: {command(wanted)}"
    ranks, are = ("rank" if wanted == 1 else "ranks"), ("is" if here == 1 else "are")
    return f"{what} is of {wanted} {ranks}, and here {are} {here}; start it {start}."


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """The ranks that torchrun started, by the environment that it sets; without it this process is alone."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in os.environ for name in needed) or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda":
        if local >= torch.cuda.device_count():
            raise SettingError(
                f"rank {os.environ['RANK']} finds no GPU number {local} here; start at most one rank per GPU."
            )
        torch.cuda.set_device(local)
    with _connection_errors():
        store, rank, size = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
    ranks = DistributedRanks(store, rank, size, "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", local)
    try:
        yield ranks
    finally:
        dist.destroy_process_group()
