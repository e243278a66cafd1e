"""Initial weights from an explicit generator, so that no network depends on global random state."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def generator_for(seed: int, part: str) -> torch.Generator:
    """A generator of its own for a named part: parts that share a seed do not share numbers."""
    digest = hashlib.sha256(f"{seed}/{part}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@contextmanager
def quietly() -> Iterator[None]:
    """Construct layers, which draw throw-away weights from the global generator, and leave that generator as it was."""
    with torch.random.fork_rng(devices=[]):
        yield


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Kaiming normal (fan out) for convolutions, PyTorch's default for linear layers."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        elif isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
            if layer.bias is not None:
                bound = 1 / math.sqrt(layer.in_features)
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode for a while, then every layer's own mode again."""
    modes = {layer: layer.training for layer in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


@contextmanager
def single_sample(module: nn.Module, alone: bool = True) -> Iterator[None]:
    """Batch norm by running statistics for a while: one sample alone has no batch statistics."""
    norms = [m for m in batch_norms(module) if m.training] if alone else []
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Batch norm in train mode uses the statistics of the batch for a while, but remembers none of them."""
    norms = [m for m in batch_norms(module) if m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def batch_norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """All batch norm layers of a network."""
    return [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
