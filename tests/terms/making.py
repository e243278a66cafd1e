"""Shared by tests of terms: small objectives, memories and steps, and literal formulas in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ocssl._core.random import single_sample
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.objectives import OBJECTIVES, Objective
from ocssl.objectives.sample_statistics import MeasureSamples
from ocssl.settings import MemorySettings
from ocssl.terms import TERMS, Step, Term

D, P = 6, 10


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_objective(name: str = "simsiam", **options: object) -> Objective:
    """Around an encoder with batch norm, so that modes and statistics matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, D), nn.BatchNorm1d(D), nn.ReLU())
        objective = OBJECTIVES.build(name, options, encoder, D, P)
    objective.begin()
    return objective.train()


def made(name: str, objective: Objective, **options: object) -> Term:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        term = TERMS.build(name, options, objective)
    term.begin(objective)
    return term.train()


def filled(stored: int = 20, seed: int = 0) -> Memory:
    store = Store(24, (3, 4, 4), {"feature": D, "projected": P})
    memory = Memory(store, KEEPS.build("fifo"), DRAWS.build("uniform"), torch.Generator().manual_seed(seed))
    rows = {"projected": randn(stored, P, seed=seed + 1), "feature": randn(stored, D, seed=seed + 2)}
    memory.insert(torch.zeros(stored, 3, 4, 4, dtype=torch.uint8), torch.arange(stored), rows)
    return memory


def a_step(
    objective: Objective, fresh: int = 3, replayed: int = 5, *, number: int = 0, seed: int = 0, stored: int = 20
) -> Step:
    memory = filled(stored)
    replay = memory.draw(replayed)
    views = randn(objective.views, fresh + len(replay), 3, 4, 4, seed=seed)
    with single_sample(objective, alone=views.shape[1] == 1):
        out = objective(views)
    measure = MeasureSamples(MemorySettings(), objective.dimension, objective.projection)
    return Step(number, fresh, views, replay, out, measure(out), objective, memory)


def train(objective: Objective, *terms: Term) -> None:
    """Stands for an optimizer step: what is trained changes."""
    with torch.no_grad():
        found = [parameter for module in (objective, *terms) for parameter in module.parameters()]
        for number, parameter in enumerate(found):
            if parameter.requires_grad:
                parameter.add_(0.3 * randn(*parameter.shape, seed=number))
    objective.after_step()
    for term in terms:
        term.after_step(objective)


def gradients(module: nn.Module) -> float:
    """How much gradient has arrived at a module."""
    return sum(float(p.grad.abs().sum()) for p in module.parameters() if p.grad is not None)


def cosine(a: Tensor, b: Tensor) -> float:
    x, y = a.detach().double().tolist(), b.detach().double().tolist()
    dot = sum(s * t for s, t in zip(x, y, strict=True))
    lengths = math.sqrt(sum(s * s for s in x) * sum(t * t for t in y))
    return dot / lengths if lengths else 0.0


def surprise(score: float, among: Iterable[float]) -> float:
    """-log of a score's share of the softmax over `among`, which has the score itself too."""
    return -math.log(math.exp(score) / sum(math.exp(other) for other in among))


def average(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
