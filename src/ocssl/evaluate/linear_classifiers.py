"""The linear probe of the paper's Final and Average accuracy, and many of them side by side, one per task."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ocssl.errors import DataError, SettingError
from ocssl.evaluate.feature_arrays import Floats, unit_rows
from ocssl.evaluate.probes import Data, Labels, ProbeResult, Task, best_class, with_bias

Compat = Literal["none", "authors"]

_PATIENCE = 5  # epochs without a better validation accuracy before the rate falls


def linear_probe(
    train_x: Floats,
    train_y: Labels,
    test_x: Floats,
    test_y: Labels,
    *,
    val_x: Floats | None = None,
    val_y: Labels | None = None,
    seed: int = 0,
    epochs: int = 100,
    lr: float = 0.05,
    batch: int = 256,
    compat: Compat = "none",
) -> ProbeResult:
    """Accuracy of a linear classifier trained on L2-normalised features: the paper's Final and Average accuracy.

    One linear layer with bias from zero weights, cross-entropy, Adam without weight decay, all samples reshuffled
    each epoch. Five epochs without a better validation accuracy: the rate falls to a third and the best weights come
    back, while Adam keeps its moments and step count (as the authors' code does). It ends when the rate falls below
    1e-4 or after ``epochs``; the best weights are scored. Without ``val_x``, ``seed`` holds a tenth of each class
    (rounded: none under 5 samples) out of the training features; where that is nothing, all of them validate.

    ``compat="authors"`` leaves out what the authors' code leaves out, to compare with its numbers: the training
    samples are shuffled once, those after the last whole batch are never trained on, and a validation or test set of
    more than one batch is scored, in the order given, without its last batch, be it whole or not: 9,984 of 10,000
    samples, 256 of 500 or of 512, all of 256. The weights begin at zero here too; the authors' begin at random.

    >>> x, y = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]] * 20, [0, 0, 1, 1] * 20
    >>> linear_probe(x, y, x, y).accuracy
    100.0
    """
    probe = _Probe(seed, epochs, lr, batch, compat)
    data = probe.prepare(Task(train_x, train_y, test_x, test_y, val_x, val_y))
    with _one_thread():
        return probe.run(*data)


def linear_probes(tasks: Sequence[Task], **options: Any) -> list[ProbeResult]:
    """``linear_probe`` of each task with the same options, side by side: each result is that of the task alone.

    As many tasks at a time as torch has threads, each on one of them. Sizes and classes may differ; a task that stops
    early makes room for the next.
    """
    probe = _Probe(**options)
    data = []
    for number, task in enumerate(tasks):
        try:
            data.append(probe.prepare(task))
        except DataError as error:
            raise DataError(f"task {number}: {error}") from error
    with _one_thread() as threads, ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda each: probe.run(*each), data))


def cross_entropy_gradient(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradient [C, d] of the mean cross-entropy of x [b, d] with classes y [b] by the weights: no graph is needed."""
    excess = torch.softmax(x @ weight.T, dim=1)  # [b, C]
    excess.scatter_add_(1, y[:, None], excess.new_full((len(y), 1), -1.0))
    return (excess.T @ x).div_(len(x))


class Adam:
    """Adam on one tensor, in place, with its usual constants: torch.optim.Adam without its cost per step."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.mean, self.square, self.scale = (torch.zeros_like(weight) for _ in range(3))
        self.steps = 0

    def step(self, gradient: Tensor, rate: float) -> None:
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = torch.sqrt(self.square, out=self.scale).div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
        self.weight.addcdiv_(self.mean, scale, value=-rate / (1 - 0.9**self.steps))


@dataclass(frozen=True)
class _Probe:
    """A linear probe with its options."""

    seed: int = 0
    epochs: int = 100
    lr: float = 0.05
    batch: int = 256
    compat: Compat = "none"

    def __post_init__(self) -> None:
        epochs, batch, lr = self.epochs, self.batch, self.lr
        if epochs < 1 or batch < 1 or not (math.isfinite(lr) and lr > 0):
            raise DataError(f"epochs is {epochs}, batch {batch} and lr {lr}: wanted epochs and batch >= 1 and lr > 0.")
        if self.compat not in ("none", "authors"):
            raise SettingError(f'compat is {self.compat!r}: wanted "none" or "authors".')

    def prepare(self, task: Task) -> tuple[Data, torch.Generator]:
        """A task's checked arrays, cut as wanted, and the generator of its shuffles."""
        data = Data(task)
        generator = torch.Generator().manual_seed(self.seed)
        val = data.val or data.hold_out(generator)
        if self.compat == "authors":
            n = len(data.train_x)
            if n < self.batch:
                raise DataError(
                    f'there are {n} samples to train on: compat="authors" trains on whole batches only and needs at '
                    f"least {self.batch}."
                )
            if task.val_x is None:  # held out class by class: the cut must not take whole classes
                shuffle = torch.randperm(len(val[1]), generator=generator).to(val[1].device)
                val = val[0][shuffle], val[1][shuffle]
            data.val = self._without_last_batch(*val)
            data.test_x, data.test_y = self._without_last_batch(data.test_x, data.test_y)
        return data, generator

    def run(self, data: Data, generator: torch.Generator) -> ProbeResult:
        """Train, and score the weights [C, d + 1] with the best validation accuracy. The caller sets the threads."""
        assert data.val is not None
        x, y = _unit_with_bias(data.train_x), data.train_y  # [n, d + 1], [n]
        held_x, held_y = _unit_with_bias(data.val[0]), data.val[1]
        weight = x.new_zeros(len(data.classes), x.shape[1])
        adam = Adam(weight)
        rows_x = x.new_empty(min(self.batch, len(x)), x.shape[1])  # used again: new memory costs more than the copying
        best, best_correct, stale, rate, rates = weight.clone(), -1, 0, self.lr, []
        orders = self._orders(len(x), generator)
        for _ in range(self.epochs):
            rates.append(rate)
            for rows in torch.split(next(orders).to(x.device), self.batch):
                torch.index_select(x, 0, rows, out=rows_x[: len(rows)])
                adam.step(cross_entropy_gradient(weight, rows_x[: len(rows)], y[rows]), rate)
            correct = int((best_class(held_x, weight) == held_y).sum())
            stale += 1
            if correct > best_correct:
                best, best_correct, stale = weight.clone(), correct, 0
            elif stale == _PATIENCE:
                rate /= 3
                if rate < 1e-4:
                    break
                weight.copy_(best)
                stale = 0
        return data.result(lambda features: best_class(_unit_with_bias(features), best), tuple(rates))

    def _orders(self, n: int, generator: torch.Generator) -> Iterator[Tensor]:
        """The order of the n training samples in each epoch."""
        if self.compat == "authors":
            order = torch.randperm(n, generator=generator)[: n - n % self.batch]
            while True:
                yield order
        while True:
            yield torch.randperm(n, generator=generator)

    def _without_last_batch(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the authors' code scores: their loop runs while index + batch < n, and once in any case."""
        n = len(x)
        kept = n if n <= self.batch else (n - 1) // self.batch * self.batch
        return x[:kept], y[:kept]


@contextmanager
def _one_thread() -> Iterator[int]:
    """Let every operation run on one thread, and give how many there were: a batch is too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def _unit_with_bias(x: Tensor) -> Tensor:
    """What the linear layer sees: unit features in float32, and the bias."""
    return with_bias(unit_rows(x).float())
