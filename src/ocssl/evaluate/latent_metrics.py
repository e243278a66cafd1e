"""Metrics of a latent space: the paper's signs of Latent Rehearsal Decay, and alignment and uniformity.

Every metric is that of float64 arithmetic, block by block, whatever the input; arrays come back in the input's
precision. float32 is used where it cannot change a result by more than a millionth, and what it leaves in doubt is done
again. A zero vector has no direction: its unit vector is zero, so its cosine with every other vector is 0.
"""

import math
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate import feature_arrays
from ocssl.evaluate.feature_arrays import FloatArray, Floats
from ocssl.evaluate.overlap_metric import squared_chords

_VIEWS, _FEATURES = "[n, v, d]", "[n, d]"
_NEAR = 1e-3  # below this, 1 - |mean|^2 in float32 has fewer than four digits
_RANGE = 1e15  # lengths beyond this, or below its inverse, have squares that float32 cannot hold
_WIDTHS = 4  # rows of a block of a spectrum, in numbers of features: it is factorised together with one more width


@overload
def deviation(views: Floats, per_sample: Literal[False] = False) -> float: ...


@overload
def deviation(views: Floats, per_sample: Literal[True]) -> FloatArray: ...


def deviation(views: Floats, per_sample: bool = False) -> float | FloatArray:
    """Mean Deviation of samples given by their views [n, v, d]; with ``per_sample`` the n values.

    The mean of 1 - cos over all v^2 ordered pairs of a sample's views, self pairs included, is 1 - |mean of unit
    views|^2. A zero view counts as cos = 0, also with itself: all views zero give 1. Beside the n values it holds a few
    blocks of feature_arrays.BLOCK values, or of one sample.

    >>> deviation([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]], per_sample=True).round(3).tolist()
    [0.0, 0.5]
    """
    given = feature_arrays.shared_tensor("views", views, _VIEWS)
    spread, empty = unit_spread(given)
    each = spread + empty
    return each.to(feature_arrays.floating(given[:1]).dtype).cpu().numpy() if per_sample else float(each.mean())


def alignment(views: Floats, alpha: float = 2.0) -> float:
    """Alignment of views [n, v, d], v >= 2: mean over samples and pairs i < j of their views of |u_i - u_j|^alpha.

    Wang and Isola's measure with unit features u; lower is better aligned, 0 where all views agree. A larger ``alpha``
    weighs pairs far apart more. For alpha = 2 it is 2 v / (v - 1) times the Deviation where no view is zero. Memory as
    for deviation.

    >>> round(alignment([[[1.0, 0.0], [0.0, 1.0]]]), 3)
    2.0
    """
    given = feature_arrays.shared_tensor("views", views, _VIEWS)
    v = given.shape[1]
    if v < 2:
        raise DataError(f"views has {v} view of each sample: wanted at least 2, as alignment compares views.")
    if not (math.isfinite(alpha) and alpha > 0):
        raise DataError(f"alpha is {alpha}: wanted a finite number above 0.")
    if alpha == 2:
        return float(unit_spread(given)[0].mean()) * 2 * v / (v - 1)
    total = 0.0
    for _, block in feature_arrays.blocks(given, made=v**2):
        feature_arrays.check_finite("views", block, _VIEWS)
        total += float(squared_chords(feature_arrays.unit_rows(block)).pow_(alpha / 2).triu_(1).sum())
    return total / len(given) / (v * (v - 1) / 2)


def uniformity(features: Floats, t: float = 2.0, max_samples: int | None = 5000, seed: int = 0) -> float:
    """Uniformity of features [n, d] on the sphere: log of the mean over i != j of exp(-t |u_i - u_j|^2).

    Wang and Isola's measure; lower is more uniform, 0 is a collapse to one point. More than ``max_samples`` rows are
    subsampled by ``seed``; None or 0 takes all rows, in time that grows with their square. It holds a few blocks of
    feature_arrays.ROWS rows and of feature_arrays.ROWS^2 pairs, besides the rows of a subsample.

    >>> uniformity([[1.0, 0.0], [1.0, 0.0]]), round(uniformity([[1.0, 0.0], [-1.0, 0.0]]), 3)
    (0.0, -8.0)
    """
    given = feature_arrays.shared_tensor("features", features, _FEATURES)
    most = max_samples or len(given)
    if not (math.isfinite(t) and t > 0):
        raise DataError(f"t is {t}: wanted a finite number above 0.")
    if min(len(given), most) < 2:
        raise DataError(f"features has {len(given)} rows and max_samples is {max_samples}: wanted at least 2 of each.")
    for _, block in feature_arrays.blocks(given):
        feature_arrays.check_finite("features", block, _FEATURES)
    if len(given) > most:
        generator = torch.Generator().manual_seed(seed)
        given = given[torch.randperm(len(given), generator=generator)[:most].to(given.device)]
    n = len(given)
    parts = given.split(feature_arrays.rows_at_once(given.shape[1]))
    room = torch.empty(len(parts[0]) ** 2, dtype=torch.float64, device=given.device)
    sums = []
    for i, part in enumerate(parts):
        rows = feature_arrays.unit_rows(part)
        sums.append(_log_sum(rows, None, t, room))
        sums += [_log_sum(rows, feature_arrays.unit_rows(other), t, room) for other in parts[i + 1 :]]
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
    4 d rows or BLOCK values in float64, whichever is more, and the triangle [d, d], however many rows there are.

    >>> round(spectrum([[1.0, 0.0], [0.0, 1.0]]).effective_rank, 3)
    2.0
    """
    given = feature_arrays.shared_tensor("features", features, "[n, d]")
    first, *others = torch.split(given, max(_WIDTHS * given.shape[1], feature_arrays.BLOCK // given.shape[1]))
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
    feature_arrays.check_finite("features", wide, "[n, d]")
    return torch.where(
        length.isfinite(), wide / (length + 1e-6), feature_arrays.unit_rows(wide)
    )  # squares too large for float64


def unit_spread(views: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared distance of each sample's unit views from their mean, and its share of zero views, of [n, v, d].

    float32 views go through float32 first; what is in doubt there, and float64 views, through float64.
    """
    empty = torch.zeros(len(views), dtype=torch.float64, device=views.device)
    if views.dtype != torch.float64 and feature_arrays.float32_products(views.device):
        spread, unsure = _rough(views)
    else:
        spread, unsure = torch.zeros_like(empty), torch.ones_like(empty, dtype=torch.bool)
    for part, block in feature_arrays.blocks(views) if unsure.any() else ():
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
    for part, block in feature_arrays.blocks(views):
        torch.linalg.vector_norm(block, dim=2, out=lengths[part])
        unit_sum = lengths[part].reciprocal()[:, None] @ block  # [b, 1, d]
        torch.linalg.vector_norm(unit_sum, dim=2, out=sums[part])
    spread = 1 - (sums[:, 0].double() / v).square()
    least, most = torch.aminmax(lengths, dim=1)
    return spread, ~((spread > _NEAR) & (least > 1 / _RANGE) & (most < _RANGE))


def _exact(views: Tensor) -> tuple[Tensor, Tensor]:
    """The same of views [b, v, d] as the unit views' variance in float64, which keeps its digits near 0."""
    unit = feature_arrays.unit_rows(views)
    empty = torch.linalg.vector_norm(unit, dim=2) == 0
    spread = unit.sub_(unit.mean(1, keepdim=True)).square_().sum(2).mean(1)
    if not spread.isfinite().all():
        feature_arrays.check_finite("views", views, "[n, v, d]")
    return spread, empty.double().mean(1)
