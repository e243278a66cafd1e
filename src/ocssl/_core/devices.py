"""Moving tensors to the device that computes, without anyone waiting."""

from __future__ import annotations

import torch
from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device. To a GPU it goes through pinned memory while the program runs on."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
