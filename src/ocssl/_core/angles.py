"""Angles between feature vectors, with gradients that are finite everywhere.

arccos has an infinite slope at +-1, exactly where two views agree. `2 atan2(|u - v|, |u + v|)` of unit vectors is the
same angle, is accurate to the last bit for nearly equal vectors, and its gradient never exceeds 1.
"""

from typing import Literal

import torch
from torch import Tensor

TINY = 1e-24  # under square roots: keeps the slope finite at 0 and is invisible elsewhere
EDGE = 1e-6  # distance of a cosine from +-1 below which its arccos is held constant


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1 along the last axis; a zero vector stays zero and passes no gradient."""
    length = x.norm(dim=-1, keepdim=True)
    return x / torch.where(length > 1e-12, length, torch.inf)


def angle_between(a: Tensor, b: Tensor) -> Tensor:
    """Angle in radians between vectors along the last axis, row by row."""
    u, v = unit(a), unit(b)
    apart = ((u - v).square().sum(-1) + TINY).sqrt()
    along = ((u + v).square().sum(-1) + TINY).sqrt()
    return 2 * torch.atan2(apart, along)


def view_angle(features: Tensor, pairs: Literal["all", "distinct"] = "all") -> Tensor:
    """Average angle between the views of each sample, equation 2 of the paper: [V, B, D] -> [B].

    `all` is the literal average over all ordered pairs, in which the V self pairs count 0; with two views that is half
    the angle. `distinct` leaves the self pairs out: in the loss it pulls every view of every sample together and
    collapses the encoder, so it is there for that experiment only.
    """
    views = len(features)
    if views < 2:
        return features.new_zeros(features.shape[1], dtype=torch.float32)
    rows = features.float()
    first, second = torch.triu_indices(views, views, offset=1)
    total = angle_between(rows[first], rows[second]).sum(0)
    ordered = views * views if pairs == "all" else views * (views - 1)
    return 2 * total / ordered


def pairwise_angles(a: Tensor, b: Tensor) -> Tensor:
    """Angles of every row of a with every row of b: [B, D], [K, D] -> [B, K]."""
    cosine = unit(a) @ unit(b).T
    return torch.arccos(cosine.clamp(-1 + EDGE, 1 - EDGE))
