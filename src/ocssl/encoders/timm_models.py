"""Models of the library timm, by its names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ocssl.encoders.encoder import ENCODERS, Preprocessing
from ocssl.errors import SettingError, unknown


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        if error.name == "timm":
            raise SettingError("encoders of timm: need the library timm: pip install 'ocssl[timm]'.") from None
        raise _broken(error) from None
    except (RuntimeError, OSError, AttributeError) as error:  # torchvision beside another build of torch
        raise _broken(error) from None
    return timm


def _broken(error: Exception) -> SettingError:
    reason = str(error).strip().partition("\n")[0][:160].rstrip(".")
    return SettingError(f"timm cannot be imported ({reason}): it needs a torchvision that fits the installed torch.")


@ENCODERS.add("timm")
class Timm(nn.Module):
    """A model of timm, without its classifier: see timm.list_models().

    `pretrained`: start from the weights that timm downloads. `drop` and `drop_path` are its dropout and stochastic depth.
    """

    place = "NAME"
    draws_weights, wraps_model = True, True

    def __init__(
        self, image_size: int, place: str, *, pretrained: bool = True, drop: float = 0.0, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        timm = _timm()
        _require(timm, place)
        self._place = place
        given: dict[str, Any] = {"num_classes": 0, "drop_rate": drop}
        if drop_path:
            given["drop_path_rate"] = drop_path
        try:
            self.model = timm.create_model(place, pretrained=False, **given)
            if hasattr(self.model, "set_input_size"):
                patch = _patch(self.model)
                self.padding = -image_size % patch
                self.model.set_input_size(img_size=(image_size + self.padding,) * 2)
            else:
                self.padding = 0
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0][:200].rstrip(".")
            raise SettingError(f"encoder timm:{place} cannot be made for {image_size} px ({reason}).") from None
        self.draws_random = drop > 0 or drop_path > 0

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
            reason = str(error).strip().partition("\n")[0][:160].rstrip(".")
            raise SettingError(
                f"the weights of encoder timm:{self._place} cannot be had ({reason}): name a file with "
                "encoder.weights, or set encoder.pretrained=false for random ones."
            ) from None
        if hasattr(source, "set_input_size") and getattr(self.model.patch_embed, "img_size", None):
            source.set_input_size(img_size=self.model.patch_embed.img_size)
        self.model.load_state_dict(source.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        if self.padding:
            x = nn.functional.pad(x, (0, self.padding, 0, self.padding))
        features: Tensor = self.model(x)
        return features.flatten(1)


def _require(timm: Any, place: str) -> None:
    if not timm.is_model(place):
        raise unknown("model of timm", place, timm.list_models())


def _patch(model: nn.Module) -> int:
    size = getattr(getattr(model, "patch_embed", None), "patch_size", 1)
    return int(size[0] if isinstance(size, tuple) else size)
