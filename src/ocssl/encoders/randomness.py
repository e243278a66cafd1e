"""Dropout and stochastic depth draw from the encoder's seed and number of passes, which are saved with it.

PyTorch's dropout draws from the global generator, which belongs to the caller. Here every pass in train mode gets a
seed made of the encoder's seed and the number of its passes so far; that number is saved with the weights, and the
caller's generator is as it was before. An encoder that does not say whether it draws is tried on blank images.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ocssl._core.host_memory import check_memory
from ocssl._core.random import evaluating
from ocssl.encoders.encoder import blank_pass
from ocssl.errors import SettingError

RATES = ("p", "drop_prob", "drop_rate", "drop_path_rate")
NAME = "_random_passes"


class _Draws(TorchDispatchMode):
    """Sees in a block whether an operation draws from a global generator; on the meta device too, which moves none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags:
            names = (argument.name for argument in function._schema.arguments)
            given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            rate = given.get("dropout_p", 0.0) if "dropout_p" in str(function._schema) else 1.0  # of attention
            self.seen |= given.get("generator") is None and rate > 0
        return function(*args, **(kwargs or {}))


def draws_random(encoder: nn.Module, image_size: int | None = None) -> bool:
    """Whether an encoder draws in training: it says so, has a dropout layer with a rate above 0, or is seen to."""
    says = getattr(encoder, "draws_random", None)
    drops = any(
        isinstance(rate := getattr(layer, key, 0), int | float) and rate > 0
        for layer in encoder.modules()
        if "drop" in type(layer).__name__.lower()
        for key in RATES
    )
    if says or drops:
        return True
    return says is None and image_size is not None and _seen_to_draw(encoder, image_size, train=True)


def own_randomness(encoder: nn.Module, seed: int, image_size: int | None = None) -> None:
    """Give an encoder that draws random numbers in training its own; one that draws in eval mode is refused."""
    if hasattr(encoder, NAME) or not draws_random(encoder, image_size):
        return
    if image_size is not None and _seen_to_draw(encoder, image_size, train=False):
        raise SettingError(
            "the encoder draws random numbers in eval mode too: it must give an image the same features every time."
        )
    passes = RandomPasses(seed)
    encoder.add_module(NAME, passes)
    encoder.register_forward_pre_hook(passes.enter)
    encoder.register_forward_hook(passes.leave, always_call=True)


@torch.no_grad()
def _seen_to_draw(encoder: nn.Module, image_size: int, train: bool) -> bool:
    """Whether a pass of blank images draws; neither buffers nor the caller's generators change."""
    shape = (2, 3, image_size, image_size)
    first = next(iter(encoder.parameters()), None)
    device = torch.device("cpu") if first is None else first.device
    buffers = {name: buffer.clone() for name, buffer in encoder.named_buffers()}
    draws = _Draws()
    with torch.random.fork_rng(devices=_cuda(encoder)), evaluating(encoder):
        encoder.train(train)
        try:
            with draws:
                if device.type == "meta":
                    blank_pass(encoder, shape)
                else:
                    torch.func.functional_call(encoder, buffers, torch.zeros(shape, device=device))
        except Exception as error:  # whatever an encoder of the user's own raises on blank images
            check_memory(error)
    return draws.seen


def _cuda(encoder: nn.Module) -> list[int]:
    """The GPUs that an encoder is on."""
    devices = {parameter.device for parameter in encoder.parameters() if parameter.device.type == "cuda"}
    return sorted(device.index or 0 for device in devices)


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
        devices = _cuda(encoder)
        fork = torch.random.fork_rng(devices=devices)
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
        return torch.tensor(self.count, device="cpu")  # also where the encoder is built on the meta device

    def set_extra_state(self, state: Tensor) -> None:
        if not state.is_meta:
            self.count = int(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomPasses:
        made = RandomPasses(self.seed)
        memo[id(self)] = made
        made.count = self.count
        return made
