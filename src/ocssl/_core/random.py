"""Random generators, initial weights drawn from them, and temporary modes of a network, without global state."""

import hashlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def generator_for(seed: int, part: str) -> torch.Generator:
    """The generator of a named part: parts that share a seed do not share numbers."""
    digest = hashlib.sha256(f"{seed}/{part}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Kaiming normal (fan out) for convolutions, PyTorch's default for linear layers."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight.is_meta:
            continue  # has no numbers, and asking for random ones imports a compiler, which takes seconds
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


def single_sample(module: nn.Module, alone: bool = True) -> AbstractContextManager[None]:
    """Batch norm by running statistics for a while, if `alone`: one sample alone has no batch statistics."""
    return _off(batch_norms(module) if alone else [], "training")


def frozen_statistics(module: nn.Module) -> AbstractContextManager[None]:
    """Batch norm in train mode uses the statistics of the batch for a while, but remembers none of them."""
    return _off(batch_norms(module), "track_running_stats")


@contextmanager
def _off(layers: list[_BatchNorm], switch: str) -> Iterator[None]:
    """A switch is off for a while in those layers where it is on."""
    switched = [layer for layer in layers if getattr(layer, switch)]
    for layer in switched:
        setattr(layer, switch, False)
    try:
        yield
    finally:
        for layer in switched:
            setattr(layer, switch, True)


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """All batch norm layers of a network."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]
