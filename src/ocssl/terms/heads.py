"""How terms use their heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ocssl._core.random import single_sample


def by_view(head: nn.Module, views: Tensor) -> Tensor:
    """Each view through the head in a pass of its own, one row by running statistics: [V, B, D] -> [V, B, D']."""
    with single_sample(head, alone=views.shape[1] == 1):
        return torch.stack([head(view) for view in views])
