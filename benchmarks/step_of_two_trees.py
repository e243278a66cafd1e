"""Whether a change made the training step slower: the steps of two checkouts, in turn, each in a process of its own.

    git worktree add ../before COMMIT && python benchmarks/step_of_two_trees.py ../before .

Each checkout takes part twice: where a checkout differs as much from itself as from the other, there is no difference.
Only names of the public interface are used, so that any two versions can be compared.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

METHODS = ("solar", "er-fifo")
WORKER = """
import sys, time, torch, ocssl
draw = torch.Generator().manual_seed(0)
def images(): return torch.randint(0, 256, (10, 3, 16, 16), dtype=torch.uint8, generator=draw)
settings = {"encoder.width": 16, "schedule.passes": 1, "memory.capacity": 256}
learners = {name: ocssl.Learner(name, image_size=16, settings=settings) for name in sys.argv[1:]}
for _ in range(30):  # until the memory is full
    for learner in learners.values():
        learner.partial_fit(images())
print("ready", flush=True)
for line in sys.stdin:
    batch, start = images(), time.perf_counter()
    learners[line.strip()].partial_fit(batch)
    print(time.perf_counter() - start, flush=True)
"""


def started(tree: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-c", WORKER, *METHODS]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=tree)


def answer(worker: subprocess.Popen[str], line: str = "") -> str:
    assert worker.stdin is not None
    assert worker.stdout is not None
    if line:
        print(line, file=worker.stdin, flush=True)
    return worker.stdout.readline().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=100, help="steps of each kind (default: 100, four minutes)")
    given = parser.parse_args()
    trees = {"before": given.before, "after": given.after, "before again": given.before, "after again": given.after}
    for tree in trees.values():
        if not (tree / "src" / "ocssl").is_dir():
            parser.error(f"{tree} is not a checkout of ocssl.")
    workers = {name: started(tree.resolve()) for name, tree in trees.items()}
    for name, worker in workers.items():
        if answer(worker) != "ready":
            parser.error(f"the checkout {name} did not start.")
    times: dict[tuple[str, str], list[float]] = {(method, name): [] for method in METHODS for name in workers}
    order = random.Random(0)
    for _ in range(given.rounds):
        for method, name in order.sample(sorted(times), len(times)):
            times[method, name].append(float(answer(workers[name], method)))
    for (method, name), seconds in times.items():
        beside = [a / b for a, b in zip(seconds, times[method, "before"], strict=True)]
        low, middle, high = statistics.quantiles(beside, n=4)
        spread = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        print(f"{method:8} {name:13} {1e3 * statistics.median(seconds):7.1f} ms   {spread} of before")
    for worker in workers.values():
        worker.kill()


if __name__ == "__main__":
    main()
