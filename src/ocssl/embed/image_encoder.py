"""The encoder as a module that is ready to use: images of any size in, features out, with a fingerprint."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ocssl._core.exclusive_call import own_torch_state
from ocssl._training.assembly import options_of
from ocssl.data.decode.decoder import VERSION, Fit, resize_array
from ocssl.data.decode.pixels import pixels_of
from ocssl.encoders import ENCODERS
from ocssl.encoders.randomness import NAME
from ocssl.encoders.weights import EXPORT
from ocssl.errors import CheckpointError, DataError
from ocssl.learner import BLOCK, Learner

SHOWN = 32  # letters of a fingerprint
ENCODER, WEIGHTS = EXPORT, "model.safetensors"  # of an export
FORMAT, FORMAT_VERSION = "ocssl-encoder", 1
MOST_JSON = 2**20  # bytes
UNSEEN = {  # keys of a config of transformers that change no feature
    *("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype"),
    *("id2label", "label2id", "problem_type"),
}
TRAINING = {"pretrained", "drop", "drop_path"}  # options of encoders that change no feature of finished weights


class ImageEncoder(nn.Module):
    """Images to features, resize and normalisation inside. `fingerprint` changes when a feature could change."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        image_size: int,
        fit: Fit,
        mean: Any,
        std: Any,
        architecture: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.architecture = dict(architecture or {"name": type(network).__name__})  # the encoder and its options
        self.about = dict(about or {})  # where it comes from: method, steps, images seen, run folder
        self.image_size, self.fit = image_size, fit
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(3, 1, 1))
        self.eval().requires_grad_(False)

    def forward(self, images: Any) -> Tensor:
        """Features float32 [b, d] of uint8 [b, 3, H, W] or [b, H, W, 3], or of a list of PIL images or paths."""
        with own_torch_state():
            pixels = self.pixels(images)
            device = self.mean.device
            blocks = [self.encode(block.to(device)) for block in pixels.split(BLOCK)] if len(pixels) else []
            return torch.cat(blocks) if blocks else torch.empty(0, self.dimension, device=device)

    @own_torch_state()
    def encode(self, pixels: Tensor) -> Tensor:
        """Features of uint8 [b, 3, size, size]."""
        features: Tensor = self.network(self.normalised(pixels).contiguous(memory_format=torch.channels_last))
        return features.float()

    def normalised(self, pixels: Tensor) -> Tensor:
        """What the network is given of uint8 [b, 3, size, size]."""
        return pixels.to(torch.float32) * (1 / (255 * self.std)) - self.mean / self.std

    def pixels(self, images: Any) -> Tensor:
        """uint8 [b, 3, size, size] of whatever was given, resized as a run resizes its images."""
        if isinstance(images, list | tuple):
            return torch.from_numpy(pixels_of(images, self.image_size, self.fit))
        array = images.cpu().numpy() if isinstance(images, Tensor) else images
        right = isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.ndim == 4
        if not right or 3 not in array.shape[1::2]:
            kind = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(images).__name__
            wanted = "uint8 images [b, 3, H, W] or [b, H, W, 3], or a list of PIL images or paths"
            raise DataError(f"wanted {wanted}, got {kind}.")
        if array.shape[1] != 3:
            array = array.transpose(0, 3, 1, 2)
        return torch.from_numpy(np.array(resize_array(array, self.image_size, self.fit)))

    @property
    @own_torch_state()
    def dimension(self) -> int:
        """The length of a feature vector."""
        return self.encode(
            torch.zeros(1, 3, self.image_size, self.image_size, dtype=torch.uint8, device=self.mean.device)
        ).shape[1]

    @property
    def preprocessing(self) -> dict[str, Any]:
        """All that happens to an image before the network."""
        means = {name: [float(x) for x in getattr(self, name).flatten()] for name in ("mean", "std")}
        return {"image_size": self.image_size, "fit": self.fit, **means, "decoder": VERSION}

    def facts(self) -> dict[str, Any]:
        """All that an export says of this encoder beside its weights."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "fingerprint": self.fingerprint,
            "architecture": self.architecture,
            "dimension": self.dimension,
            "preprocessing": self.preprocessing,
            "about": self.about,
        }

    @property
    @own_torch_state()
    def fingerprint(self) -> str:
        """A checksum of architecture, weights and preprocessing: only vectors of equal fingerprints may be compared."""
        made_of = [kept(self.architecture), self.preprocessing, *_config(self.architecture, self.network)]
        whole = hashlib.sha256(json.dumps(made_of, sort_keys=True, default=str).encode())
        for name, tensor in sorted(weights_of(self.network).items()):
            if not name.endswith("num_batches_tracked"):  # counts batches, and changes no feature
                whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
                whole.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return whole.hexdigest()[:SHOWN]


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """The tensors that features depend on: not the count of random passes of an encoder with dropout."""
    every = network.state_dict().items()
    return {name: t for name, t in every if isinstance(t, Tensor) and f"{NAME}." not in name}


def kept(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """What of an architecture decides features: not the folder that its config was read from."""
    kind, _, _ = str(architecture.get("name")).partition(":")
    name = {"name": kind} if kind == "hf" else {}
    return {**architecture, **name}


def _config(architecture: Mapping[str, Any], network: nn.Module) -> list[Any]:
    """What of the config of a model of transformers decides features: activations and the like, which no weight shows.

    Without what has the value that every config of the library has: a newer version may say more of that.
    """
    config = getattr(getattr(network, "model", None), "config", None)
    if config is None or not str(architecture.get("name")).startswith("hf:"):
        return []
    return [_without(config.to_diff_dict())]


def _without(table: Any) -> Any:
    if not isinstance(table, Mapping):
        return table
    return {str(k): _without(v) for k, v in table.items() if k not in UNSEEN and "drop" not in str(k)}


def of_learner(learner: Learner, folder: Path | None = None) -> ImageEncoder:
    """A copy of a learner's encoder as it is now."""
    settings = learner.settings
    network = copy.deepcopy(learner.encoder)
    if learner.own_encoder:
        architecture: dict[str, Any] = {"name": "custom", "class": type(network).__qualname__}
    else:
        chosen = settings.encoder
        options = ENCODERS.complete(chosen.name, options_of("encoder", chosen.model_dump()))
        architecture = {"name": chosen.name, **{k: v for k, v in options.items() if k not in TRAINING}}
    about = {"method": learner.method, "steps": learner.steps, "images": learner.seen}
    if folder is not None:
        about["folder"] = str(folder)
    size, fit, views = learner.image_size, learner.fit, settings.views
    return ImageEncoder(network, size, fit, views.mean, views.std, architecture, about)


@own_torch_state()
def load_encoder(
    source: Learner | str | Path, *, encoder: nn.Module | None = None, device: str = "cpu"
) -> ImageEncoder:
    """The encoder of a learner, a run folder (its newest state), a saved learner or an export, ready to use.

    `encoder` is the module of a learner that was saved with a custom one.

    >>> import numpy as np
    >>> from ocssl import Learner
    >>> encoder = load_encoder(Learner("er-fifo", image_size=16, settings={"encoder.width": 4}))
    >>> encoder(np.zeros((2, 20, 30, 3), np.uint8)).shape
    torch.Size([2, 32])
    """
    from ocssl.runs.folder import SETTINGS
    from ocssl.runs.snapshots import load_network, select_states

    if isinstance(source, Learner):
        return of_learner(source).to(device)
    folder = Path(source)
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}: name a run, a saved learner or an export.")
    if (folder / ENCODER).is_file():
        from ocssl.embed.load_export import load_exported

        return load_exported(folder, encoder).to(device)
    path = folder
    if (folder / SETTINGS).is_file():
        (path,) = select_states(folder, "last").values()
    return of_learner(load_network(path, device, encoder)[0], folder)
