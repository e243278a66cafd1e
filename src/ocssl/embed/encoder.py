"""The encoder as a module that is ready to use: images of any size in, features out, with a fingerprint."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ocssl._core.torch_state import own_torch_state
from ocssl.data.decode.decoder import VERSION, Fit, resize_array
from ocssl.data.decode.pixels import pixels_of
from ocssl.errors import DataError
from ocssl.learner import BLOCK, Learner

SHOWN = 32  # letters of a fingerprint


class ImageEncoder(nn.Module):
    """Images to features, resize and normalisation inside. `fingerprint` changes when a feature could change."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, image_size: int, fit: Fit, mean: Any, std: Any) -> None:
        super().__init__()
        self.network = network
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

    def encode(self, pixels: Tensor) -> Tensor:
        """Features of uint8 [b, 3, size, size]: the part that is exported."""
        scaled = pixels.to(torch.float32) * (1 / (255 * self.std)) - self.mean / self.std
        if not torch.compiler.is_exporting():
            scaled = scaled.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.network(scaled)
        return features.float()

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

    @property
    def fingerprint(self) -> str:
        """A checksum of weights and preprocessing: vectors of equal fingerprints may be compared, others may not."""
        whole = hashlib.sha256(json.dumps(self.preprocessing, sort_keys=True).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            if not name.endswith("num_batches_tracked"):  # counts batches, and changes no feature
                whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
                whole.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return whole.hexdigest()[:SHOWN]


def of_learner(learner: Learner) -> ImageEncoder:
    """A copy of a learner's encoder as it is now."""
    settings = learner.settings
    network = copy.deepcopy(learner.encoder)
    return ImageEncoder(network, learner.image_size, learner.fit, settings.views.mean, settings.views.std)


def load_encoder(
    source: Learner | str | Path, *, encoder: nn.Module | None = None, device: str = "cpu"
) -> ImageEncoder:
    """The encoder of a learner, a run folder (its newest state) or a saved learner, ready to use.

    `encoder` is the module of a learner that was saved with a custom one.
    """
    from ocssl.runs.folder import SETTINGS
    from ocssl.runs.snapshots import load_network, select_states

    if isinstance(source, Learner):
        return of_learner(source).to(device)
    folder = Path(source)
    if (folder / SETTINGS).is_file():
        from ocssl.runs.config import read_settings

        (path,) = select_states(folder, "last").values()
        learner = load_network(path, device)[0]
        learner.fit = read_settings(folder / SETTINGS).stream.fit
        return of_learner(learner)
    return of_learner(load_network(folder, device, encoder)[0])
