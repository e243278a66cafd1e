"""Images as callers hand them in, checked before anything else sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl.errors import DataError


def as_images(given: Any, size: int) -> Tensor:
    """uint8 [b, 3, size, size] from numpy or torch, channels first or last; an error says what was given instead."""
    wanted = f"uint8 images [b, 3, {size}, {size}] or [b, {size}, {size}, 3]"
    if not isinstance(given, np.ndarray | Tensor):
        raise DataError(f"wanted {wanted} as a numpy array or torch tensor, got {type(given).__name__}.")
    if isinstance(given, Tensor) and (given.is_meta or given.layout != torch.strided):
        raise DataError(f"wanted {wanted}, got a {given.device.type} tensor of layout {given.layout}.")
    if given.dtype not in (np.uint8, torch.uint8):
        kind = str(given.dtype).removeprefix("torch.")
        floats = np.asarray(given) if kind in ("float16", "float32", "float64") else np.zeros(0)
        nan = " with NaN" if np.isnan(floats).any() else ""
        raise DataError(f"wanted {wanted}, got {kind} {list(given.shape)}{nan}.")
    images = given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    shape = tuple(images.shape)
    if len(shape) == 3:
        raise DataError(f"wanted {wanted}, got a single image {list(shape)}; pass images[None] for a batch of one.")
    if len(shape) != 4:
        raise DataError(f"wanted {wanted}, got shape {list(shape)}.")
    if shape[0] == 0:
        raise DataError(f"wanted {wanted} with at least one image, got an empty batch {list(shape)}.")
    if shape[1:] == (3, size, size):
        return images
    if shape[1:] == (size, size, 3):
        return images.permute(0, 3, 1, 2)
    if 3 not in (shape[1], shape[3]):
        raise DataError(f"wanted {wanted}, got shape {list(shape)}: no axis with 3 colour channels.")
    raise DataError(f"wanted {wanted}, got shape {list(shape)}: resize the images to {size} x {size} first.")


def as_ids(ids: Any, count: int, first: int) -> Tensor:
    """int64 [count]: the given ids, or arrival numbers from `first` where none are given."""
    if ids is None:
        return torch.arange(first, first + count)
    try:
        given = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"wanted {count} integer ids, one an image, got {ids!r:.80}.") from None
    if given.shape != (count,) or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise DataError(f"wanted {count} integer ids, one an image, got {given.dtype} {list(given.shape)}.")
    return given.to("cpu", torch.int64)
