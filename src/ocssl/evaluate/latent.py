"""Metrics of a latent space: the paper's signs of Latent Rehearsal Decay, and alignment and uniformity.

Every metric is that of float64 arithmetic, block by block, whatever the input; arrays come back in the input's
precision. float32 is used where it cannot change a result by more than a millionth, and what it leaves in doubt is done
again. A zero vector has no direction: its unit vector is zero, so its cosine with every other vector is 0.
"""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate.arrays import (
    FloatArray,
    Floats,
    blocks,
    check_finite,
    float_tensor,
    floating,
    rows_at_once,
    shared_tensor,
    unit_rows,
)
from ocssl.evaluate.hyperballs import overlap, overlap_count, overlap_count_from
from ocssl.evaluate.spectrum_values import Spectrum, spectrum
from ocssl.evaluate.unit_spread import unit_spread
from ocssl.evaluate.view_angles import sample_angles, squared_chords

__all__ = [
    "FloatArray",
    "Floats",
    "Spectrum",
    "alignment",
    "deviation",
    "float_tensor",
    "overlap",
    "overlap_count",
    "overlap_count_from",
    "sample_angles",
    "spectrum",
    "uniformity",
    "unit_rows",
]

_VIEWS, _FEATURES = "[n, v, d]", "[n, d]"


@overload
def deviation(views: Floats, per_sample: Literal[False] = False) -> float: ...


@overload
def deviation(views: Floats, per_sample: Literal[True]) -> FloatArray: ...


def deviation(views: Floats, per_sample: bool = False) -> float | FloatArray:
    """Mean Deviation of samples given by their views [n, v, d]; with ``per_sample`` the n values.

    The mean of 1 - cos over all v^2 ordered pairs of a sample's views, self pairs included, is 1 - |mean of unit
    views|^2. A zero view counts as cos = 0, also with itself: all views zero give 1. Beside the n values it holds a few
    blocks of arrays.BLOCK values, or of one sample.
    """
    given = shared_tensor("views", views, _VIEWS)
    spread, empty = unit_spread(given)
    each = spread + empty
    return each.to(floating(given[:1]).dtype).cpu().numpy() if per_sample else float(each.mean())


def alignment(views: Floats, alpha: float = 2.0) -> float:
    """Alignment of views [n, v, d], v >= 2: mean over samples and pairs i < j of their views of |u_i - u_j|^alpha.

    Wang and Isola's measure with unit features u; lower is better aligned, 0 where all views agree. A larger ``alpha``
    weighs pairs far apart more. For alpha = 2 it is 2 v / (v - 1) times the Deviation where no view is zero. Memory as
    for deviation.
    """
    given = shared_tensor("views", views, _VIEWS)
    v = given.shape[1]
    if v < 2:
        raise DataError(f"views has {v} view of each sample: wanted at least 2, as alignment compares views.")
    if not (math.isfinite(alpha) and alpha > 0):
        raise DataError(f"alpha is {alpha}: wanted a finite number above 0.")
    if alpha == 2:
        return float(unit_spread(given)[0].mean()) * 2 * v / (v - 1)
    total = 0.0
    for _, block in blocks(given, made=v**2):
        check_finite("views", block, _VIEWS)
        total += float(squared_chords(unit_rows(block)).pow_(alpha / 2).triu_(1).sum())
    return total / len(given) / (v * (v - 1) / 2)


def uniformity(features: Floats, t: float = 2.0, max_samples: int | None = 5000, seed: int = 0) -> float:
    """Uniformity of features [n, d] on the sphere: log of the mean over i != j of exp(-t |u_i - u_j|^2).

    Wang and Isola's measure; lower is more uniform, 0 is a collapse to one point. More than ``max_samples`` rows are
    subsampled by ``seed``; None or 0 takes all rows, in time that grows with their square. It holds a few blocks of
    arrays.ROWS rows and of arrays.ROWS^2 pairs, besides the rows of a subsample.
    """
    given = shared_tensor("features", features, _FEATURES)
    most = max_samples or len(given)
    if not (math.isfinite(t) and t > 0):
        raise DataError(f"t is {t}: wanted a finite number above 0.")
    if min(len(given), most) < 2:
        raise DataError(f"features has {len(given)} rows and max_samples is {max_samples}: wanted at least 2 of each.")
    for _, block in blocks(given):
        check_finite("features", block, _FEATURES)
    if len(given) > most:
        generator = torch.Generator().manual_seed(seed)
        given = given[torch.randperm(len(given), generator=generator)[:most].to(given.device)]
    n = len(given)
    parts = given.split(rows_at_once(given.shape[1]))
    room = torch.empty(len(parts[0]) ** 2, dtype=torch.float64, device=given.device)
    sums = []
    for i, part in enumerate(parts):
        rows = unit_rows(part)
        sums.append(_log_sum(rows, None, t, room))
        sums += [_log_sum(rows, unit_rows(other), t, room) for other in parts[i + 1 :]]
    return float(torch.tensor(sums, dtype=torch.float64).logsumexp(0)) + math.log(2) - math.log(n * (n - 1))


def _log_sum(rows: Tensor, others: Tensor | None, t: float, room: Tensor) -> float:
    """Log of the sum of exp(-t |u - w|^2) over unit rows u and others w; over the pairs of rows if there are none."""
    columns = rows if others is None else others
    squared = [torch.linalg.vector_norm(vectors, dim=1).square() for vectors in (rows, columns)]
    distance = room[: len(rows) * len(columns)].view(len(rows), len(columns))  # squared
    torch.addmm(squared[1][None], rows, columns.T, alpha=-2, out=distance)
    distance.add_(squared[0][:, None]).clamp_min_(0)
    if others is None:
        distance.masked_fill_(torch.ones_like(distance, dtype=torch.bool).tril_(), math.inf)
    least = float(distance.min())
    if least == math.inf:  # a single row has no pair
        return -math.inf
    return math.log(float(distance.sub_(least).mul_(-t).exp_().sum())) - t * least
