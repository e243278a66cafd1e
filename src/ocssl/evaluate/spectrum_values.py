"""Singular values of features, and the two numbers read from them: how many directions a representation uses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ocssl.evaluate import arrays
from ocssl.evaluate.arrays import FloatArray, Floats, check_finite, shared_tensor, unit_rows

_WIDTHS = 4  # rows of a block, in numbers of features: each block is factorised together with one more width


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of a feature matrix and what is read from them."""

    values: FloatArray  # [min(n, d)] singular values, largest first
    normalised: FloatArray  # values / values[0]
    cev: FloatArray  # cumulative explained variance as the paper has it: cumsum(values) / sum(values), not squared
    auc: float  # mean of cev: near 1 when few directions carry everything
    effective_rank: float  # exp of the entropy of values / sum(values)


def spectrum(features: Floats) -> Spectrum:
    """Spectrum of features [n, d]: rows divided by (norm + 1e-6), not centred, then singular values.

    Dimensional collapse shows as a fast decay. Features that are all zero give zeros throughout. It holds blocks of
    4 d rows or arrays.BLOCK values in float64, whichever is more, and the triangle [d, d], however many rows there are.
    """
    given = shared_tensor("features", features, "[n, d]")
    first, *others = torch.split(given, max(_WIDTHS * given.shape[1], arrays.BLOCK // given.shape[1]))
    triangle = _normalised(first)
    for block in others:  # R of Q R has the singular values of all rows so far
        triangle = torch.linalg.qr(torch.cat([triangle, _normalised(block)]), mode="r").R
    values = torch.linalg.svdvals(triangle).cpu().numpy()
    if values[0] == 0:
        return Spectrum(values, values.copy(), values.copy(), auc=0.0, effective_rank=0.0)
    share = values / values.sum()
    cev = share.cumsum()
    present = share[share > 0]
    entropy = -float((present * np.log(present)).sum())
    return Spectrum(values, values / values[0], cev, auc=float(cev.mean()), effective_rank=math.exp(entropy))


def _normalised(rows: Tensor) -> Tensor:
    """Rows divided by (norm + 1e-6), in float64."""
    wide = rows.double()
    length: Tensor = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    if length.isfinite().all():
        return wide / (length + 1e-6)
    check_finite("features", wide, "[n, d]")
    return torch.where(length.isfinite(), wide / (length + 1e-6), unit_rows(wide))  # squares too large for float64
