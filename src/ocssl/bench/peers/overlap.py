"""Overlap by its formula: an arccos for every pair of samples, in a matrix of all angles."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl._core.angles import unit


def arccos_per_pair(means: Tensor, angles: Tensor) -> float:
    """Share of ordered pairs i != j with theta_i + theta_j - angle(mean i, mean j) > 0, of [n, d] and [n].

    In the precision of its input: in float32 pairs that nearly touch may be decided by rounding.
    """
    rows = unit(means)
    between = torch.arccos((rows @ rows.T).clamp(-1, 1))  # [n, n]
    hits = angles[:, None] + angles - between > 0
    return float(hits.fill_diagonal_(False).sum()) / (len(means) * (len(means) - 1))
