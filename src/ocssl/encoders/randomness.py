"""Encoders that draw random numbers in training, by dropout or stochastic depth, from numbers of their own.

PyTorch's dropout draws from the global generator, which belongs to the caller. Here every pass in train mode gets a
seed made of the encoder's seed and the number of its passes so far; that number is saved with the weights, and the
caller's generator is as it was before.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

RATES = ("p", "drop_prob", "drop_rate", "drop_path_rate")
NAME = "_random_passes"


def draws_random(encoder: nn.Module) -> bool:
    """Whether an encoder draws in training: it says so, or has a dropout layer with a rate above 0."""
    return bool(getattr(encoder, "draws_random", False)) or any(
        isinstance(rate := getattr(layer, key, 0), int | float) and rate > 0
        for layer in encoder.modules()
        if "drop" in type(layer).__name__.lower()
        for key in RATES
    )


def own_randomness(encoder: nn.Module, seed: int) -> None:
    """Give an encoder that draws random numbers its own."""
    if not draws_random(encoder) or hasattr(encoder, NAME):
        return
    passes = RandomPasses(seed)
    encoder.add_module(NAME, passes)
    encoder.register_forward_pre_hook(passes.enter)
    encoder.register_forward_hook(passes.leave, always_call=True)


class RandomPasses(nn.Module):
    """How many passes an encoder has made in train mode; a copy of the encoder has a copy."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.count = seed, 0
        self._before: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        """What it is given: an encoder that is an `nn.Sequential` passes its features through."""
        return x

    def enter(self, encoder: nn.Module, _: Any) -> None:
        """Before a pass: seed PyTorch's generators, and remember how they were."""
        if not encoder.training:
            return
        devices = {parameter.device for parameter in encoder.parameters() if parameter.device.type == "cuda"}
        fork = torch.random.fork_rng(devices=sorted(device.index or 0 for device in devices))
        fork.__enter__()
        self._before.append(fork)
        digest = hashlib.sha256(f"{self.seed}/{self.count}".encode()).digest()
        number = int.from_bytes(digest[:8], "little") >> 1
        torch.default_generator.manual_seed(number)
        if devices:
            torch.cuda.manual_seed_all(number)
        self.count += 1

    def leave(self, encoder: nn.Module, *_: Any) -> None:
        """After a pass, even one that failed."""
        if self._before:
            self._before.pop().__exit__(None, None, None)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.count)

    def set_extra_state(self, state: Tensor) -> None:
        self.count = int(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomPasses:
        made = RandomPasses(self.seed)
        memo[id(self)] = made
        made.count = self.count
        return made
