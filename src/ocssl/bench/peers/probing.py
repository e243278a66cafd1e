"""Probing the plain way: an optimizer and autograd for one linear layer, and images encoded anew for every probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ocssl.data import Benchmark
from ocssl.evaluate.evaluation import probe
from ocssl.evaluate.features import encode_benchmark
from ocssl.evaluate.linear import Task
from ocssl.evaluate.probe_data import ProbeResult
from ocssl.learner import Learner

Pair = tuple[Tensor, Tensor]  # features and labels

RATE, LEAST, PATIENCE = 0.05, 1e-4, 5  # as in `linear_probe`


def autograd_probe(task: Task, epochs: int = 100, batch: int = 256, seed: int = 0) -> Tensor:
    """What `linear_probe` answers on the test features, by `nn.Linear`, `torch.optim.Adam` and autograd.

    Labels are 0, 1, 2 and so on, and there is a validation set. On one thread, as `linear_probe`.
    """
    x, val_x, test_x = (unit(part) for part in (task.train_x, task.val_x, task.test_x))
    y, val_y = torch.as_tensor(task.train_y), torch.as_tensor(task.val_y)
    layer = nn.utils.skip_init(nn.Linear, x.shape[1], int(y.max()) + 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    with one_thread():
        train(layer, (x, y), (val_x, val_y), epochs, batch, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        answers: Tensor = layer(test_x).argmax(1)
    return answers


def train(layer: nn.Module, data: Pair, val: Pair, epochs: int, batch: int, generator: torch.Generator) -> None:
    """Until the rate is spent; the layer ends with its best weights on the validation set."""
    x, y = data
    optimizer, loss = torch.optim.Adam(layer.parameters(), lr=RATE), nn.CrossEntropyLoss()
    best, most, stale = copied(layer), -1, 0
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            optimizer.zero_grad()
            loss(layer(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            correct = int((layer(val[0]).argmax(1) == val[1]).sum())
        stale += 1
        if correct > most:
            best, most, stale = copied(layer), correct, 0
        elif stale == PATIENCE:
            optimizer.param_groups[0]["lr"] /= 3
            if optimizer.param_groups[0]["lr"] < LEAST:
                break
            layer.load_state_dict(best)
            stale = 0
    layer.load_state_dict(best)


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def unit(features: object) -> Tensor:
    return nn.functional.normalize(torch.as_tensor(features).float())


def copied(layer: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in layer.state_dict().items()}


def encoded_for_each(learner: Learner, benchmark: Benchmark, names: Sequence[str], seed: int) -> list[ProbeResult]:
    """Several probes, each of which encodes the images of the benchmark for itself."""
    return [probe(encode_benchmark(learner, benchmark), name, "none", seed) for name in names]
