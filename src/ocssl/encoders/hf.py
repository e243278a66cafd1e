"""Vision models of the library transformers: from a local folder, or from the Hugging Face hub.

Only `config.json`, `preprocessor_config.json` and `model.safetensors` are read: no code of the folder runs, no pickle.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core.host_memory import check_memory
from ocssl._files.untrusted import read_json, reading
from ocssl.encoders.encoder import ENCODERS, IMAGENET_MEAN, IMAGENET_STD, Preprocessing, first_line
from ocssl.encoders.weights import load_weights
from ocssl.errors import SettingError, install

CONFIG, PROCESSOR, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
MOST = 2**20  # bytes of a config


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise SettingError(f"encoders of hf: need the library transformers: {install('hf')}") from None
    return transformers


def _broken_vision() -> bool:
    """Whether a torchvision is installed that cannot be imported, which transformers does not survive."""
    if find_spec("torchvision") is None:
        return False
    try:
        import torchvision  # noqa: F401
    except Exception:  # torch and the loader of libraries raise several kinds
        return True
    return False


def _file(place: str, name: str, *, needed: bool = True) -> Path | None:
    """A file of a folder or of the hub."""
    folder = Path(place).expanduser()
    if folder.is_dir():
        if (path := folder / name).is_file():
            return path
        lack = f"the folder has no {name}"
    else:
        _transformers()
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

        try:
            return Path(hf_hub_download(place, name))
        except EntryNotFoundError:
            lack = f"it has no {name} on the hub"
        except Exception as error:  # a dozen kinds: no network, no such repository, a bad name
            why = f"no such folder, and the hub does not give it ({first_line(error)})"
            raise SettingError(f"encoder hf:{place}: {why}.") from None
    if needed:
        raise SettingError(f"encoder hf:{place}: {lack}.")
    return None


def _json(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    with reading(path, SettingError):
        content = read_json(path, MOST)
        if not isinstance(content, dict):
            raise ValueError("it is no table")
    return content


def _size(table: Mapping[str, Any], *keys: str) -> int | None:
    """The first of the sizes that a table has: a number, or a table of sides."""
    for key in keys:
        value = table.get(key)
        if isinstance(value, Mapping):
            value = value.get("height", value.get("shortest_edge"))
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and 4 <= value <= 1024:
            return value
    return None


def _triple(value: Any, place: str, usual: tuple[float, float, float]) -> tuple[float, float, float]:
    if value is None:
        return usual
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(v, int | float) for v in value):
        raise SettingError(f"encoder hf:{place}: {PROCESSOR} has {value!r} where three numbers are wanted.")
    first, second, third = map(float, value)
    return first, second, third


@ENCODERS.add("hf")
class HuggingFace(nn.Module):
    """A vision model of transformers (ResNet, ConvNeXt, ViT, DINOv2, ...): a folder, or a name on the hub.

    `pretrained`: start from its model.safetensors. Features are the pooled output: the class token of transformers, the
    mean over the image of convolutional networks.
    """

    place = "FOLDER"
    draws_weights = True

    def __init__(self, image_size: int, place: str, *, pretrained: bool = True) -> None:
        super().__init__()
        library = _transformers()
        table = _json(_file(place, CONFIG))
        kind = table.get("model_type")
        if "auto_map" in table or not isinstance(kind, str) or kind not in library.CONFIG_MAPPING:
            raise SettingError(f"encoder hf:{place}: model type {kind!r} is none that transformers itself has.")
        self._place = place
        try:
            config = library.CONFIG_MAPPING[kind].from_dict(table)
            self.model = library.AutoModel.from_config(config, trust_remote_code=False)
        except Exception as error:  # what a wrong config raises is of many kinds
            check_memory(error)
            more = "; the installed torchvision does not fit torch: pip uninstall torchvision"
            why = f"({first_line(error)}){more if _broken_vision() else ''}"
            raise SettingError(f"encoder hf:{place}: transformers cannot make it {why}.") from None
        self.model.float()
        if hasattr(getattr(self.model, "pooler", None), "dense"):
            self.model.pooler = None  # a layer that features do not pass through would never be trained
        patch = _size(table, "patch_size") or getattr(config, "patch_size", None)
        self.padding = -image_size % patch if isinstance(patch, int) and not hasattr(config, "num_stages") else 0
        self._interpolates = {"interpolate_pos_encoding": True} if kind in ("vit", "deit", "vit_mae", "beit") else {}
        self.draws_random = any(
            isinstance(value, float) and value > 0 for key, value in config.to_dict().items() if "drop" in key
        )

    @classmethod
    def preprocessing(cls, place: str, options: Mapping[str, Any]) -> Preprocessing:
        """Of the folder's preprocessor, or ImageNet's."""
        table = _json(_file(place, PROCESSOR, needed=False))
        config = _json(_file(place, CONFIG))
        size = _size(table, "crop_size", "size") or _size(config, "image_size")
        mean = _triple(table.get("image_mean"), place, IMAGENET_MEAN)
        return Preprocessing(mean, _triple(table.get("image_std"), place, IMAGENET_STD), size)

    def load_pretrained(self) -> None:
        """Start from the weights beside the config."""
        path = _file(self._place, WEIGHTS)
        assert path is not None
        load_weights(self, path)

    def load_tensors(self, tensors: dict[str, Tensor], path: str | Path) -> None:
        """Take these weights; transformers knows the names that they had in its earlier versions."""
        library = _transformers()
        quiet = library.utils.logging.get_verbosity()
        library.utils.logging.set_verbosity_error()
        shown = library.utils.logging.is_progress_bar_enabled()
        library.utils.logging.disable_progress_bar()
        try:
            given, report = type(self.model).from_pretrained(
                None, config=self.model.config, state_dict=tensors, output_loading_info=True, dtype=torch.float32
            )
        except (RuntimeError, ValueError, TypeError, OSError) as error:
            check_memory(error)
            raise SettingError(f"encoder.weights {path} does not fit the encoder ({first_line(error)}).") from None
        finally:
            library.utils.logging.set_verbosity(quiet)
            if shown:
                library.utils.logging.enable_progress_bar()
        own = self.model.state_dict()
        missing = sorted(name for name in report["missing_keys"] if name in own)
        if missing:
            few = ", ".join(missing[:3])
            raise SettingError(
                f"encoder.weights {path} does not fit the encoder: {len(missing)} names are missing ({few}), and "
                f"{len(report['unexpected_keys'])} are unexpected ({', '.join(sorted(report['unexpected_keys'])[:3])})."
            )
        self.model.load_state_dict({name: tensor for name, tensor in given.state_dict().items() if name in own})

    def forward(self, x: Tensor) -> Tensor:
        if self.padding:
            x = nn.functional.pad(x, (0, self.padding, 0, self.padding))
        out = self.model(pixel_values=x, **self._interpolates)
        pooled = getattr(out, "pooler_output", None)
        if pooled is None:
            hidden: Tensor = out.last_hidden_state
            pooled = hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden[:, 0]
        features: Tensor = torch.flatten(pooled, 1)
        return features
