"""Models of the library timm, by its names."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core.host_memory import check_memory
from ocssl.encoders.encoder import ENCODERS, Preprocessing, first_line, pad_to_patches
from ocssl.encoders.weights import load_tensors
from ocssl.errors import SettingError, install, unknown


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        if error.name == "timm":
            raise SettingError(f"encoders of timm: need the library timm: {install('timm')}") from None
        raise _broken(error) from None
    except (RuntimeError, OSError, AttributeError) as error:  # torchvision beside another build of torch
        raise _broken(error) from None
    return timm


def _broken(error: Exception) -> SettingError:
    wanted = "it needs a torchvision that fits the installed torch"
    return SettingError(f"timm cannot be imported ({first_line(error)}): {wanted}.")


@ENCODERS.add("timm")
class Timm(nn.Module):
    """A model of timm, without its classifier: see timm.list_models().

    `pretrained`: start from the weights that timm downloads. `drop` and `drop_path`: dropout and stochastic depth.
    """

    place = "NAME"
    draws_weights = True

    def __init__(
        self, image_size: int, place: str, *, pretrained: bool = True, drop: float = 0.0, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        timm = _timm()
        _require(timm, place)
        self._place, self._patch, self.padding = place, 1, 0
        given: dict[str, Any] = {"num_classes": 0, "drop_rate": drop}
        if drop_path:
            given["drop_path_rate"] = drop_path
        try:
            self.model: Any = _create(timm, place, given)
            if hasattr(self.model, "set_input_size"):
                self._patch = _patch(self.model)
                self.padding = -image_size % self._patch
                self.model.set_input_size(img_size=(image_size + self.padding,) * 2)
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            check_memory(error)
            raise SettingError(
                f"encoder timm:{place} cannot be made for {image_size} px ({first_line(error)})."
            ) from None
        self.draws_random = True if drop > 0 or drop_path > 0 else None  # None: seen by a trial

    @classmethod
    def preprocessing(cls, place: str, options: Mapping[str, Any]) -> Preprocessing:
        """Those of the pretrained weights that timm has under this name."""
        timm = _timm()
        _require(timm, place)
        config = timm.models.get_pretrained_cfg(place)
        size = config.input_size[1] if config is not None else None
        if config is None:
            return Preprocessing(timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD, None)
        return Preprocessing(tuple(config.mean), tuple(config.std), size if size and size <= 1024 else None)

    def load_pretrained(self) -> None:
        """Download the weights, or take them from timm's cache, fitted to the image size."""
        timm = _timm()
        try:
            source = timm.create_model(self._place, pretrained=True, num_classes=0)
        except Exception as error:  # no network, no such file, no weights: a dozen kinds
            raise SettingError(
                f"the weights of encoder timm:{self._place} cannot be had ({first_line(error)}): name a file with "
                "encoder.weights, or set encoder.pretrained=false for random ones."
            ) from None
        self._take(source)

    def load_tensors(self, tensors: dict[str, Tensor], path: str | Path) -> None:
        """Take these weights; position embeddings of another image size are resampled, as timm does it."""
        if not self._resizable():
            load_tensors(self.model, tensors, path)
            return
        with torch.random.fork_rng(devices=[]):  # it draws weights that are thrown away
            source = _timm().create_model(self._place, pretrained=False, num_classes=0)
        positions = {name: t for name, t in tensors.items() if name.rpartition(".")[2] == "pos_embed" and t.ndim == 3}
        for tensor in positions.values():
            side = math.isqrt(tensor.shape[1])  # also with a class token, and four registers, beside the patches
            if source.pos_embed.ndim == 3 and tensor.shape[1] != source.pos_embed.shape[1]:
                source.set_input_size(img_size=(side * _patch(source),) * 2)
        load_tensors(source, tensors, path)
        self._take(source)

    def _resizable(self) -> bool:
        return hasattr(self.model, "set_input_size") and bool(getattr(self.model.patch_embed, "img_size", None))

    def _take(self, source: nn.Module) -> None:
        """The weights of the same model for another image size."""
        if self._resizable():
            source.set_input_size(img_size=self.model.patch_embed.img_size)  # type: ignore[operator]
        self.model.load_state_dict(source.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.model(pad_to_patches(x, self._patch))
        return features.flatten(1)


def _require(timm: Any, place: str) -> None:
    if not timm.is_model(place):
        raise unknown("model of timm", place, timm.list_models())


def _create(timm: Any, place: str, given: Mapping[str, Any]) -> Any:
    """A model with random weights, for images of several sizes where it can resample its position embeddings."""
    before = torch.get_rng_state()
    try:
        made = timm.create_model(place, pretrained=False, dynamic_img_size=True, **given)
    except TypeError:  # most models do not know the option
        torch.set_rng_state(before)
        made = timm.create_model(place, pretrained=False, **given)
    return made


def _patch(model: nn.Module) -> int:
    size = getattr(getattr(model, "patch_embed", None), "patch_size", 1)
    return int(size[0] if isinstance(size, tuple) else size)
