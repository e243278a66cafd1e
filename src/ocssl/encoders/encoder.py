"""The registry of encoders, the images that they were made for, and their features and stages."""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core.host_memory import check_memory
from ocssl._core.random import evaluating
from ocssl._core.registry import Registry
from ocssl.errors import SettingError

Triple = tuple[float, float, float]
IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
STAGE = re.compile(r"(?:^|\.)(?:layers?\.|layer|stages\.|blocks\.)(\d+)\.")
SMALL = 2**24  # weights of an encoder that is tried on the CPU although it is on the meta device
SMALL_IMAGES = 2 * 3 * 256 * 256


@dataclass(frozen=True)
class Preprocessing:
    """The images that an encoder was made for: what is subtracted from and divides colours in [0, 1], and the size."""

    mean: Triple
    std: Triple
    size: int | None = None  # pixels of a side; None: any
    guessed: str = ""  # why mean and std are a guess, which trained weights must not get; empty: they are known


class EncoderRegistry(Registry[nn.Module]):
    """Encoders by name. `KIND:PLACE` names one of many that a library or a folder has; the class has a `place` then.

    A class may have `preprocessing(place, options)`, a classmethod that gives a `Preprocessing`; `draws_weights = True`
    where its constructor draws good weights from PyTorch's generator, which the learner seeds; and `load_pretrained`,
    which is called if its option `pretrained` is true and `encoder.weights` names no file.
    """

    def __getitem__(self, name: str) -> type[nn.Module]:
        kind, colon, _ = name.partition(":")
        found = super().__getitem__(kind)
        if colon and not hasattr(found, "place"):
            raise SettingError(f"encoder {name!r} is not a name: use encoder.name={kind}.")
        return found

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name.partition(":")[0] if isinstance(name, str) else name)

    def label(self, name: str) -> str:
        """How a setting names it, such as `timm:NAME`."""
        return name if (place := getattr(self._parts[name], "place", None)) is None else f"{name}:{place}"

    def __iter__(self) -> Any:
        return iter(sorted(self.label(name) for name in self._parts))

    def build(self, name: str, options: Mapping[str, Any] | None = None, *wiring: Any) -> nn.Module:
        place = self._place(name)
        return super().build(name, options, *wiring, *([place] if place else []))

    def _place(self, name: str) -> str:
        """What follows the colon; a SettingError where it is needed and missing."""
        found, (kind, _, place) = self[name], name.partition(":")
        if hasattr(found, "place") and not place:
            raise SettingError(f"encoder {name!r} is not a name: as in encoder.name={kind}:{found.place}.")
        return place

    def preprocessing(self, name: str, options: Mapping[str, Any] | None = None) -> Preprocessing | None:
        """What a named encoder says of its images, or None."""
        own = getattr(self[name], "preprocessing", None)
        known = self.options(name)
        given = {key: value for key, value in (options or {}).items() if key in known}
        return None if own is None else own(self._place(name), self.check(name, given))


ENCODERS = EncoderRegistry("encoder")


def first_line(error: Exception) -> str:
    """What a library's error says, without the rest of it."""
    return str(error).strip().partition("\n")[0][:200].rstrip(".")


def check_module(encoder: object) -> None:
    """Refuse what is no network, such as a name."""
    if not isinstance(encoder, nn.Module):
        raise SettingError(f"an encoder must be an nn.Module, not {encoder!r}; encoder.name names a built-in one.")


def feature_dimension(encoder: nn.Module, image_size: int) -> int:
    """The length of an encoder's feature vectors, seen by trying it on two blank images."""
    check_module(encoder)
    parameter = next(iter(encoder.parameters()), None)
    device = parameter.device if parameter is not None else torch.device("cpu")
    try:
        with torch.no_grad(), evaluating(encoder):
            shape = (2, 3, image_size, image_size)
            features = (
                blank_pass(encoder, shape) if device.type == "meta" else encoder(torch.zeros(shape, device=device))
            )
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        check_memory(error)
        reason = str(error).partition("\n")[0]
        raise SettingError(f"the encoder fails on float32 [2, 3, {image_size}, {image_size}]: {reason}.") from None
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        given = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        wanted = f"images [2, 3, {image_size}, {image_size}] into features [2, D]"
        raise SettingError(f"the encoder must turn {wanted}; it gave {given}.")
    return features.shape[1]


def blank_pass(encoder: nn.Module, shape: tuple[int, ...]) -> Any:
    """What an encoder on the meta device makes of blank images.

    A small one passes them on the CPU with all weights zero: on the meta device PyTorch imports a compiler, which takes
    seconds. A large one stays there, where it needs no memory, since a checkpoint may ask for any size.
    """
    tensors = dict(itertools.chain(encoder.named_parameters(), encoder.named_buffers()))
    if sum(tensor.numel() for tensor in tensors.values()) > SMALL or math.prod(shape) > SMALL_IMAGES:
        return encoder(torch.zeros(shape, device="meta"))
    zeros = {name: torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu") for name, tensor in tensors.items()}
    with torch.device("cpu"):
        return torch.func.functional_call(encoder, zeros, torch.zeros(shape))


def pad_to_patches(x: Tensor, patch: int) -> Tensor:
    """Images with zeros at the right and at the bottom where patches of this size do not divide them."""
    right, bottom = -x.shape[3] % patch, -x.shape[2] % patch
    return nn.functional.pad(x, (0, right, 0, bottom)) if right or bottom else x


def stages(encoder: nn.Module) -> dict[str, int]:
    """The stage of every parameter: 0 is what comes before the first block, then a stage a block, then the rest.

    Blocks are the numbered parts that nearly all libraries call `layer`, `layers`, `stages` or `blocks`.
    """
    found: dict[str, int] = {}
    names = [name for name, _ in encoder.named_parameters()]
    numbers = [int(match[1]) if (match := STAGE.search(name)) else None for name in names]
    known = [number for number in numbers if number is not None]
    first, last = (min(known), max(known)) if known else (0, -1)
    met = False
    for name, number in zip(names, numbers, strict=True):
        met |= number is not None
        found[name] = number - first + 1 if number is not None else last - first + 2 if met else 0
    return found
