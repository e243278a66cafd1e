"""MinRed as it is written down: for every sample that has to go, all similarities anew."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl._core.angles import unit


def matrix_per_victim(vectors: Tensor, born: Tensor, n: int) -> Tensor:
    """n slots, one after another the older of the two closest vectors that are left."""
    left = torch.arange(len(vectors))
    victims = []
    for _ in range(n):
        rows = unit(vectors[left])
        cosines = (rows @ rows.T).fill_diagonal_(-torch.inf)
        pair = torch.stack(torch.unravel_index(cosines.argmax(), cosines.shape))
        older = pair[born[left[pair]].argmin()]
        victims.append(left[older])
        left = left[left != left[older]]
    return torch.stack(victims)
