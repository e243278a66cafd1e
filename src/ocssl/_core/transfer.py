"""Copying tensors to a device, and keeping freed memory for the next step. Imports no torch."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor on the device. To a GPU it goes through pinned memory, and the program does not wait."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def keep_freed_memory() -> bool:
    """Keep what tensors give back for those of the next step, instead of returning it to the system.

    glibc returns freed memory of some megabytes at once and requests it again a moment later; the system then hands it
    out page by page, each time zeroed, which can take as long as making the views. The process stays as large as
    its peak. Returns whether it has glibc, which agreed. For programs, not libraries: it holds for the whole process.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, 2**30) and mallopt(TRIM_THRESHOLD, 2**31 - 1))
