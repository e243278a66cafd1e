"""How far the unit views of a sample lie apart: what Deviation and alignment are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.evaluate.arrays import blocks, check_finite, float32_products, unit_rows

_NEAR = 1e-3  # below this, 1 - |mean|^2 in float32 has fewer than four digits
_RANGE = 1e15  # lengths beyond this, or below its inverse, have squares that float32 cannot hold


def unit_spread(views: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared distance of each sample's unit views from their mean, and its share of zero views, of [n, v, d].

    float32 views go through float32 first; what is in doubt there, and float64 views, through float64.
    """
    empty = torch.zeros(len(views), dtype=torch.float64, device=views.device)
    if views.dtype != torch.float64 and float32_products(views.device):
        spread, unsure = _rough(views)
    else:
        spread, unsure = torch.zeros_like(empty), torch.ones_like(empty, dtype=torch.bool)
    for part, block in blocks(views) if unsure.any() else ():
        which = unsure[part]
        if which.any():
            spread[part][which], empty[part][which] = _exact(block if which.all() else block[which])
    return spread, empty


def _rough(views: Tensor) -> tuple[Tensor, Tensor]:
    """The spread [n] of float32 views as 1 - |mean of unit views|^2, and where it is in doubt [n].

    Two passes over a block, the second from the cache. Good to 1e-6; in doubt near 0 and for extreme lengths, that is
    also for zero views and values that are not finite.
    """
    n, v, _ = views.shape
    lengths, sums = (torch.empty(size, device=views.device) for size in ((n, v), (n, 1)))
    for part, block in blocks(views):
        torch.linalg.vector_norm(block, dim=2, out=lengths[part])
        unit_sum = lengths[part].reciprocal()[:, None] @ block  # [b, 1, d]
        torch.linalg.vector_norm(unit_sum, dim=2, out=sums[part])
    spread = 1 - (sums[:, 0].double() / v).square()
    least, most = torch.aminmax(lengths, dim=1)
    return spread, ~((spread > _NEAR) & (least > 1 / _RANGE) & (most < _RANGE))


def _exact(views: Tensor) -> tuple[Tensor, Tensor]:
    """The same of views [b, v, d] as the unit views' variance in float64, which keeps its digits near 0."""
    unit = unit_rows(views)
    empty = torch.linalg.vector_norm(unit, dim=2) == 0
    spread = unit.sub_(unit.mean(1, keepdim=True)).square_().sum(2).mean(1)
    if not spread.isfinite().all():
        check_finite("views", views, "[n, v, d]")
    return spread, empty.double().mean(1)
