"""Which rows pass through which layer: counted on a trial, one stream minibatch of the real learner made small.

How many rows a method sends through a layer, forwards and backwards, depends on its recipe and neither on the width of
the encoder nor on the size of images. So the trial has a narrow encoder and 8 px images and takes a fraction of a
second; teachers, candidates, gradients that a rule asks for, and methods yet to come count without being named here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ocssl._core.random import generator_for
from ocssl._training.rule_context import LearnerContext
from ocssl.cost.shapes import without_rates
from ocssl.learner import Learner
from ocssl.settings import LearnerSettings

WIDTH, SIZE = 8, 8  # of the trial: channels, pixels
SLOTS = 2000  # of the trial at most


@dataclass
class Passes:
    """One stream minibatch with a full memory."""

    forward: Counter[str] = field(default_factory=Counter)  # layer -> rows
    backward: Counter[str] = field(default_factory=Counter)  # layer -> rows, once for weights and once for inputs
    kept: Counter[str] = field(default_factory=Counter)  # layer -> rows whose outputs wait for the backward pass
    calls: int = 0  # of layers, both ways
    steps: int = 0  # of the optimizer
    views: int = 0  # rows that views were made of
    inside: float = 0.0  # floating-point operations of layers, at the trial's size
    other: float = 0.0  # those of matrix products outside layers

    @contextmanager
    def counting(self, network: nn.Module) -> Iterator[None]:
        """Count all that passes through the layers of a network for a while."""
        handles = [
            layer.register_forward_hook(self._hook(name))
            for name, layer in network.named_modules()
            if isinstance(layer, nn.Conv2d | nn.Linear)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def forwards(layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
            rows = len(out) if isinstance(layer, nn.Conv2d) else out.numel() // out.shape[-1]
            weight = layer.weight
            assert isinstance(weight, Tensor)
            flops = 2.0 * weight.numel() * out.numel() / len(weight)
            self.forward[name] += rows
            self.calls += 1
            self.inside += flops
            if not out.requires_grad:
                return
            self.kept[name] += rows
            halves = int(weight.requires_grad) + int(inputs[0].requires_grad)

            def backwards(_: Tensor) -> None:
                self.backward[name] += halves * rows
                self.calls += halves
                self.inside += halves * flops

            out.register_hook(backwards)

        return forwards


def passes_of(settings: LearnerSettings) -> Passes:
    """The passes of one stream minibatch of `schedule.stream_batch` images under these settings.

    All passes over a minibatch after the first are alike, so two trials, of one pass and of two, tell of any number.
    """
    wanted = settings.schedule.passes
    if wanted == 1:
        return _trial(_small(settings, 1))
    one, two = _trial(_small(settings, 1)), _trial(_small(settings, 2))

    def more(first: float, second: float) -> float:
        return first + (wanted - 1) * (second - first)

    def rows(first: Counter[str], second: Counter[str]) -> Counter[str]:
        return Counter({name: round(more(first[name], second[name])) for name in first | second})

    return Passes(
        forward=rows(one.forward, two.forward),
        backward=rows(one.backward, two.backward),
        kept=rows(one.kept, two.kept),
        calls=round(more(one.calls, two.calls)),
        steps=round(more(one.steps, two.steps)),
        views=round(more(one.views, two.views)),
        inside=more(one.inside, two.inside),
        other=more(one.other, two.other),
    )


def _small(settings: LearnerSettings, passes: int) -> str:
    """The settings of a trial, as text."""
    changed: dict[str, dict[str, Any]] = {
        "encoder": {"width": min(settings.encoder.width, WIDTH)},
        "memory": {"capacity": min(settings.memory.capacity, SLOTS)},
        "schedule": {"passes": passes},
        "compute": {"precision": "float32", "compile": False},
    }
    parts = {name: getattr(settings, name).model_copy(update=update) for name, update in changed.items()}
    return without_rates(settings).model_copy(update=parts).model_dump_json()


@lru_cache(maxsize=256)
def _trial(written: str) -> Passes:
    learner = Learner(image_size=SIZE, settings=LearnerSettings.model_validate_json(written))
    fill(learner)
    if learner.settings.schedule.boundaries:
        learner.boundary()
    passes, counter = Passes(), FlopCounterMode(display=False)
    with passes.counting(learner.network), counter:
        learner.partial_fit(noise(learner.settings.schedule.stream_batch, SIZE))
    passes.steps = learner.steps
    passes.views = max(rows for name, rows in passes.forward.items() if name.startswith("objective.encoder."))
    passes.other = max(0.0, counter.get_total_flops() - passes.inside)
    return passes


def noise(n: int, size: int) -> Tensor:
    """Images that stand for any others: uint8 [n, 3, size, size]."""
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator_for(0, "images"))


def fill(learner: Learner) -> None:
    """Fill a learner's memory with noise, without training on it."""
    memory, objective, generator = learner.memory, learner.objective, generator_for(0, "fill")
    n = memory.store.capacity
    if not n:
        return
    rows = {
        "loss": torch.rand(n, generator=generator) - 1,
        "angle": torch.rand(n, generator=generator),
        "feature": torch.randn(n, objective.dimension, generator=generator),
        "projected": torch.randn(n, objective.projection, generator=generator),
    }
    images = noise(n, learner.image_size)
    context = LearnerContext(objective, learner.views, generator, images[:1], learner.lr)
    memory.insert(images, torch.arange(n), rows, context)
