"""What MinRed's kept similarities and PSA's grouped cuts cost, beside the plain ways, interleaved in one process.

    python benchmarks/memory_rules.py --rounds 10

MinRed: 10 samples enter a full memory of 2,000 slots with 2,048-d projections, against computing all cosines anew for
every victim; both must name the same victims. PSA: 2,000 of 2,010 features in 512-d stay; normal features, those of a
ReLU, and log-normal ones, of which outliers peel off one by one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ocssl.angles import unit
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.memory.psa import psa

SLOTS, ARRIVING, PROJECTION, FEATURE = 2000, 10, 2048, 512


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def told(seconds: Sequence[float], unit_of: float = 1000.0) -> str:
    low, middle, high = (unit_of * q for q in statistics.quantiles(seconds, n=4))
    return f"{middle:8.1f} (quartiles {low:.1f} to {high:.1f}, {len(seconds)} rounds)"


def full_memory(generator: torch.Generator) -> Memory:
    rule = KEEPS.build("minred")
    store = Store(SLOTS, (3, 1, 1), {"projected": PROJECTION, **rule.columns(SLOTS)})
    memory = Memory(store, rule, DRAWS.build("uniform"), torch.Generator().manual_seed(0))
    insert(memory, torch.randn(SLOTS, PROJECTION, generator=generator))
    return memory


def insert(memory: Memory, vectors: Tensor) -> Tensor:
    images = torch.zeros(len(vectors), 3, 1, 1, dtype=torch.uint8)
    return memory.insert(images, torch.arange(len(vectors)), {"projected": vectors})


def recompute(vectors: Tensor, born: Tensor, n: int) -> Tensor:
    """All cosines anew for every victim."""
    left = torch.arange(len(vectors))
    victims = []
    for _ in range(n):
        rows = unit(vectors[left])
        cosines = (rows @ rows.T).fill_diagonal_(-torch.inf)
        pair = torch.stack([cosines.argmax() // len(left), cosines.argmax() % len(left)])
        older = pair[born[left[pair]].argmin()]
        victims.append(left[older])
        left = left[left != left[older]]
    return torch.stack(victims)


def minred(rounds: int, generator: torch.Generator) -> None:
    memory = full_memory(generator)
    kept, anew = [], []
    for number in range(rounds + 1):
        arriving = torch.randn(ARRIVING, PROJECTION, generator=generator)
        vectors, born = memory.store["projected"].clone(), memory.store["born"].clone()
        both: dict[str, Callable[[], Tensor]] = {
            "kept": lambda new=arriving: insert(memory, new),
            "anew": lambda old=vectors, age=born: recompute(old, age, ARRIVING),
        }
        results = {name: timed(both[name]) for name in (sorted(both) if number % 2 else sorted(both)[::-1])}
        if results["kept"][1].tolist() != results["anew"][1].tolist():
            raise SystemExit("the victims differ")
        if number:  # the first round warms up
            kept.append(results["kept"][0])
            anew.append(results["anew"][0])
    print(f"MinRed, {ARRIVING} samples into {SLOTS} slots, {PROJECTION}-d; the same victims in every round")
    print(f"  similarities kept, ms         {told(kept)}")
    print(f"  all computed per victim, ms   {told(anew)}")
    print(f"  ratio of neighbouring rounds  {told([a / k for a, k in zip(anew, kept, strict=True)], 1.0)}")


def spread_out(rounds: int, generator: torch.Generator) -> None:
    kinds: dict[str, Callable[[Tensor], Tensor]] = {
        "normal": lambda x: x,
        "ReLU": lambda x: x.relu(),
        "log-normal": lambda x: x.exp(),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind, shape in kinds.items():
            points = shape(torch.randn(SLOTS + ARRIVING, FEATURE, generator=generator))
            spent, kept = timed(lambda these=points: psa(these, SLOTS))
            if len(kept) != SLOTS:
                raise SystemExit(f"{len(kept)} points stayed")
            if number:
                seconds[kind].append(spent)
    print(f"PSA, {SLOTS} of {SLOTS + ARRIVING} points, {FEATURE}-d")
    for kind, times in seconds.items():
        print(f"  {kind:<10} features, ms       {told(times)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="times that each is timed, at least 2")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(0)
    minred(max(2, args.rounds), generator)
    spread_out(max(2, args.rounds), generator)


if __name__ == "__main__":
    main()
