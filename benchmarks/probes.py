"""What the linear probes cost at the paper's size, in seconds and beside plainer ways, interleaved in one process.

    python benchmarks/probes.py --rounds 5 --threads 2
    python benchmarks/probes.py --rounds 0 --sklearn

Joint: 100 classes, 45,000 training, 5,000 validation and 10,000 test features of 512-d. Tasks: 20 of 5 classes with
2,250, 250 and 500. Features are overlapping classes behind a ReLU, so that training goes on for many epochs; `worst`
lets the rate never fall, so that all 100 epochs run. The peers: the same tasks one after the other; all tasks as one
batched problem (a bmm over tasks); torch.optim.Adam with autograd. --sklearn compares the joint accuracy with
scikit-learn's logistic regression, its penalty tuned on the same validation set, which takes several minutes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ocssl.evaluate import linear
from ocssl.evaluate.linear import Task, linear_probe, linear_probes

JOINT, TASK = (45_000, 5_000, 10_000), (2_250, 250, 500)  # training, validation and test samples
BATCH, WIDTH = 256, 512


def overlapping(classes: int, sizes: Sequence[int], noise: float, seed: int) -> Task:
    """Classes of equal size: a centre each, 32 directions of variation that all share, noise, and a ReLU."""
    generator = torch.Generator().manual_seed(seed)
    centres, shared = torch.randn(classes, WIDTH, generator=generator), torch.randn(32, WIDTH, generator=generator)
    parts = []
    for n in sizes:
        y = (torch.arange(n) % classes)[torch.randperm(n, generator=generator)]
        x = 0.5 * centres[y] + 0.3 * torch.randn(n, 32, generator=generator) @ shared
        parts.append(((x + noise * torch.randn(n, WIDTH, generator=generator)).relu_(), y))
    train, val, test = parts
    return Task(*train, *test, *val)


def alone(task: Task, epochs: int = 100) -> Tensor:
    result = linear_probe(
        task.train_x, task.train_y, task.test_x, task.test_y, val_x=task.val_x, val_y=task.val_y, epochs=epochs
    )
    return torch.from_numpy(result.predictions)


def one_by_one(tasks: Sequence[Task], epochs: int = 100) -> list[Tensor]:
    return [alone(task, epochs) for task in tasks]


def side_by_side(tasks: Sequence[Task], epochs: int = 100) -> list[Tensor]:
    return [torch.from_numpy(result.predictions) for result in linear_probes(tasks, epochs=epochs)]


class Schedule:
    """Best weights, patience and rate of one probe: what the plainer ways share."""

    def __init__(self) -> None:
        self.rate, self.best, self.correct, self.stale = 0.05, torch.zeros(0), -1, 0

    def end(self, weight: Tensor, correct: int) -> bool:
        """Take note of an epoch, put the best weights back if the rate falls; False: it is over."""
        self.stale += 1
        if correct > self.correct:
            self.best, self.correct, self.stale = weight.detach().clone(), correct, 0
        elif self.stale == linear._PATIENCE:
            self.rate, self.stale = self.rate / 3, 0
            weight.data.copy_(self.best)
        return self.rate >= 1e-4


def autograd(tasks: Sequence[Task], epochs: int = 100) -> list[Tensor]:
    """torch.optim.Adam and autograd, one task after the other."""
    answers = []
    for task in tasks:
        x, val_x, test_x = (linear._unit_with_bias(torch.as_tensor(p)) for p in (task.train_x, task.val_x, task.test_x))
        y, val_y = torch.as_tensor(task.train_y), torch.as_tensor(task.val_y)
        weight = torch.nn.Parameter(torch.zeros(int(y.max()) + 1, x.shape[1]))
        optimizer, generator, schedule = torch.optim.Adam([weight]), torch.Generator().manual_seed(0), Schedule()
        for _ in range(epochs):
            optimizer.param_groups[0]["lr"] = schedule.rate
            for rows in torch.randperm(len(x), generator=generator).split(BATCH):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(x[rows] @ weight.T, y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                if not schedule.end(weight, int(((val_x @ weight.T).argmax(1) == val_y).sum())):
                    break
        answers.append((test_x @ schedule.best.T).argmax(1))
    return answers


def batched(tasks: Sequence[Task], epochs: int = 100) -> list[Tensor]:
    """All tasks, of equal sizes, as one problem with a leading axis; tasks that are done leave it."""
    parts = [[linear._unit_with_bias(torch.as_tensor(p)) for p in (t.train_x, t.val_x, t.test_x)] for t in tasks]
    every, val_x = torch.cat([part[0] for part in parts]), torch.stack([part[1] for part in parts])
    labels = torch.cat([torch.as_tensor(t.train_y) for t in tasks])
    val_y = torch.stack([torch.as_tensor(t.val_y) for t in tasks])
    n, d, classes = len(parts[0][0]), every.shape[1], int(labels.max()) + 1
    generators, schedules = [torch.Generator().manual_seed(0) for _ in tasks], [Schedule() for _ in tasks]
    active, steps = list(range(len(tasks))), 0
    weight, mean, square, scale = (torch.zeros(len(tasks), classes, d) for _ in range(4))
    buffer = torch.empty(len(tasks) * BATCH, d)
    for _ in range(epochs):
        order = torch.stack([torch.randperm(n, generator=generators[t]) + n * t for t in active])
        rates = torch.tensor([schedules[t].rate for t in active])[:, None, None]
        for rows in order.split(BATCH, dim=1):
            t, b = rows.shape
            x = torch.index_select(every, 0, rows.flatten(), out=buffer[: t * b]).view(t, b, d)
            excess = torch.softmax(torch.bmm(x, weight.mT), dim=2)
            excess.scatter_add_(2, labels[rows][:, :, None], torch.full((t, b, 1), -1.0))
            gradient = torch.bmm(excess.mT, x).div_(b)
            steps += 1
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            torch.sqrt(square, out=scale).div_(math.sqrt(1 - 0.999**steps)).add_(1e-8)
            weight.addcdiv_(mean * rates, scale, value=-1 / (1 - 0.9**steps))
        correct = (torch.bmm(val_x[active], weight.mT).argmax(2) == val_y[active]).sum(1).tolist()
        goes_on = [schedules[t].end(weight[i], correct[i]) for i, t in enumerate(active)]
        if not all(goes_on):
            weight, mean, square, scale = (state[goes_on] for state in (weight, mean, square, scale))
            active = [t for t, more in zip(active, goes_on, strict=True) if more]
            if not active:
                break
    return [(part[2] @ schedule.best.T).argmax(1) for part, schedule in zip(parts, schedules, strict=True)]


@contextmanager
def endless() -> Iterator[None]:
    """Let the rate never fall, so that every probe runs all its epochs."""
    patience, linear._PATIENCE = linear._PATIENCE, 10**9
    try:
        yield
    finally:
        linear._PATIENCE = patience


def told(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return f"{middle:7.2f} (quartiles {low:.2f} to {high:.2f}, {len(values)} rounds)"


def race(title: str, ways: dict[str, Callable[[], list[Tensor]]], rounds: int) -> None:
    """Time the ways in turn, the order reversed each round; "same" are the answers equal to the first way's."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    worked: dict[str, list[float]] = {name: [] for name in ways}
    answers: dict[str, list[Tensor]] = {}
    for number in range(rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            start, processor = time.perf_counter(), time.process_time()
            answers[name] = ways[name]()
            seconds[name].append(time.perf_counter() - start)
            worked[name].append(time.process_time() - processor)
    print(title)
    first = next(iter(ways))
    for name, times in seconds.items():
        same = statistics.mean(
            float((a == b).float().mean()) for a, b in zip(answers[name], answers[first], strict=True)
        )
        print(
            f"  {name:<42} {told(times)} s, processor {statistics.median(worked[name]):.2f} s, same {100 * same:.2f} %"
        )
    for name, times in list(seconds.items())[1:]:
        ratios = [theirs / ours for theirs, ours in zip(times, seconds[first], strict=True)]
        print(f"  {name + ' / first way':<42} {told(ratios)}")


def scikit_learn(task: Task) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import normalize

    result = linear_probe(task.train_x, task.train_y, task.test_x, task.test_y, val_x=task.val_x, val_y=task.val_y)
    print(f"joint probe: test {result.accuracy:.2f}, validation {result.val_accuracy:.2f}")
    for strength in (1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=200).fit(normalize(task.train_x), task.train_y)
        test, val = (
            100 * model.score(normalize(x), y) for x, y in ((task.test_x, task.test_y), (task.val_x, task.val_y))
        )
        print(f"logistic regression, C {strength:g}: test {test:.2f}, validation {val:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is timed; 0: not at all")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sklearn", action="store_true", help="compare the joint accuracy with scikit-learn's")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    joint = overlapping(100, JOINT, noise=3.0, seed=0)
    if args.sklearn:
        scikit_learn(joint)
    if not args.rounds:
        return
    tasks = [overlapping(5, TASK, noise=6.0, seed=seed) for seed in range(20)]
    ways = {
        "linear_probes": lambda: side_by_side(tasks),
        "one after the other": lambda: one_by_one(tasks),
        "one batched problem": lambda: batched(tasks),
        "torch.optim.Adam and autograd": lambda: autograd(tasks),
    }
    print(f"{args.threads} threads")
    race("20 tasks of 5 classes", ways, args.rounds)
    with endless():
        race("20 tasks, worst: 100 epochs each", {"linear_probes": ways["linear_probes"]}, args.rounds)
    race("joint, 100 classes", {"linear_probe": lambda: one_by_one([joint])}, args.rounds)
    with endless():
        race("joint, worst: 100 epochs", {"linear_probe": lambda: one_by_one([joint])}, args.rounds)
    few = {
        "linear_probe": lambda: one_by_one([joint], 5),
        "torch.optim.Adam and autograd": lambda: autograd([joint], 5),
    }
    race("joint, 5 epochs", few, args.rounds)


if __name__ == "__main__":
    main()
