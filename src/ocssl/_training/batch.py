"""Batches: checks of the caller's images, and how stream and replayed rows are joined: side by side or mixed (LUMP)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl._core.host_memory import check_memory
from ocssl.errors import DataError
from ocssl.memory import Replay
from ocssl.settings import ScheduleSettings


def as_images(given: Any, size: int) -> Tensor:
    """uint8 [b, 3, size, size] from numpy or torch, channels first or last; an error says what was given instead."""
    wanted = f"uint8 images [b, 3, {size}, {size}] or [b, {size}, {size}, 3]"
    if not isinstance(given, np.ndarray | Tensor):
        raise DataError(f"wanted {wanted} as a numpy array or torch tensor, got {type(given).__name__}.")
    if np.ma.isMaskedArray(given):
        raise DataError(f"wanted {wanted}, got a masked array; fill its gaps first.")
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
    colours = 3 in (shape[1], shape[3])
    fault = f"resize the images to {size} x {size} first" if colours else "no axis with 3 colour channels"
    raise DataError(f"wanted {wanted}, got shape {list(shape)}: {fault}.")


def as_ids(ids: Any, count: int, first: int) -> Tensor:
    """int64 [count]: the given ids, or arrival numbers from `first` where none are given."""
    if ids is None:
        return torch.arange(first, first + count)
    if np.ma.isMaskedArray(ids):
        raise DataError(f"wanted {count} integer ids, one per image, got a masked array; fill its gaps first.")
    try:
        given = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        check_memory(error)
        raise DataError(f"wanted {count} integer ids, one per image, got {ids!r:.80}.") from None
    if given.shape != (count,) or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise DataError(f"wanted {count} integer ids, one per image, got {given.dtype} {list(given.shape)}.")
    found = given.to("cpu", torch.int64)
    if given.dtype == torch.uint64 and bool((found < 0).any()):
        raise DataError("ids are int64: one of those given is larger than 9223372036854775807.")
    return found


@dataclass(eq=False)
class Join:
    """Stream and replayed rows side by side, or, with `schedule.mix`, each stream row mixed with a replayed one."""

    schedule: ScheduleSettings
    generator: torch.Generator

    def wanted(self, fresh: int, stored: int) -> int:
        """How many samples to draw beside `fresh` stream rows from a memory that holds `stored`."""
        if self.schedule.mix:
            return fresh if stored >= fresh else 0
        wanted = self.schedule.batch - fresh
        waits = self.schedule.short == "wait" and fresh > 0 and stored <= wanted
        return 0 if waits else wanted

    def __call__(self, crops: tuple[Tensor, ...], fresh: int, replay: Replay) -> tuple[tuple[Tensor, ...], Replay]:
        """Views [V, B, ...] of the batch, stream rows first, and the replay whose samples have rows of their own.

        A mixed row is neither of its two images, so nothing of it is written back to the replayed one's slot.
        """
        if not self.schedule.mix or not len(replay):
            return crops, replay
        share = self._beta()
        return tuple(torch.lerp(views[:, fresh:], views[:, :fresh], share) for views in crops), replay.none()

    def _beta(self) -> float:
        """One draw from Beta(a, a): X / (X + Y) of two Gamma(a) numbers."""
        concentration = torch.full((2,), self.schedule.mix, dtype=torch.float64)
        first, second = torch._standard_gamma(concentration, generator=self.generator)
        return float(first / (first + second)) if first + second > 0 else 0.5
