"""Deviation, Overlap, uniformity and spectrum of features: the paper's signs of Latent Rehearsal Decay.

Every metric is computed in float64, block by block, whatever the input; arrays come back in the input's precision.
A zero vector has no direction: its unit vector is zero, so its cosine with every other vector is 0 (a right angle).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.errors import DataError

Floats = npt.ArrayLike | Tensor
FloatArray = npt.NDArray[np.floating[Any]]

_VALUES = 2**20  # values of the views that are worked on at once
_ROWS = 2048  # samples on each side of a block of a pairwise matrix
_TIE = 1e-14  # cosines closer than this are equal but for rounding: hyperballs that only touch do not overlap
_DOUBT = 1e-5  # beyond float32's error of a product of unit vectors: closer to 0 than this, float64 decides the sign


def float_tensor(name: str, values: Floats, shape: str) -> Tensor:
    """Finite numbers as a floating tensor of the wanted shape, or a ValueError that says what was given.

    float64 stays float64 and all else becomes float32. ``shape`` reads like "[n, d]"; no axis may be empty.
    """
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name} has type {array.dtype}: wanted real numbers of shape {shape}.")
        wanted = np.float64 if array.dtype == np.float64 else np.float32
        array = np.require(array, wanted, ["C", "W"])
        values = torch.from_numpy(array.copy() if min(array.strides, default=0) < 0 else array)
    if values.is_complex():
        raise DataError(f"{name} has type {values.dtype}: wanted real numbers of shape {shape}.")
    if values.ndim != shape.count(",") + 1 or values.numel() == 0:
        raise DataError(f"{name} has shape {tuple(values.shape)}: wanted {shape}, with no empty axis.")
    device = "cpu" if values.device.type == "mps" else values.device  # mps has no float64
    tensor = values.detach().to(device, torch.float64 if values.dtype == torch.float64 else torch.float32)
    if not all(torch.isfinite(end) for end in torch.aminmax(tensor)):
        raise DataError(f"{name} holds NaN or infinite values: wanted finite numbers of shape {shape}.")
    return tensor


def unit_rows(vectors: Tensor) -> Tensor:
    """Vectors of the last axis at length 1, in float64; a zero vector stays zero."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=torch.float64)
    return vectors / torch.where(length > 0, length, 1.0)


@overload
def deviation(views: Floats, per_sample: Literal[False] = False) -> float: ...


@overload
def deviation(views: Floats, per_sample: Literal[True]) -> FloatArray: ...


def deviation(views: Floats, per_sample: bool = False) -> float | FloatArray:
    """Mean Deviation of samples given by their views [n, v, d]; with ``per_sample`` the n values.

    The mean of 1 - cos over all v^2 ordered pairs of a sample's views, self pairs included, is 1 - |mean of unit
    views|^2, computed as the unit views' variance so that it keeps its digits near 0. A zero view counts as cos = 0,
    also with itself: all views zero give 1.
    """
    given = float_tensor("views", views, "[n, v, d]")
    values = []
    for block in _blocks(given):
        unit = unit_rows(block)  # [b, v, d]
        spread = (unit - unit.mean(1, keepdim=True)).square().sum(2)  # [b, v]
        values.append((spread + _is_zero(unit)).mean(1))
    each = torch.cat(values)  # [n]
    return each.to(given.dtype).cpu().numpy() if per_sample else float(each.mean())


def sample_angles(views: Floats) -> FloatArray:
    """Mean angle theta [n], in radians, of samples given by their views [n, v, d]: the radius of a hyperball.

    The literal mean over all v^2 ordered pairs: the v self pairs add exactly 0, so two views give half their angle,
    one view gives 0, and identical views give 0.
    """
    given = float_tensor("views", views, "[n, v, d]")
    angles = torch.cat([_mean_angle(block) for block in _blocks(given)])
    return angles.to(given.dtype).cpu().numpy()


def overlap(views_a: Floats, views_b: Floats) -> float:
    """Overlap Ov of two samples, in radians, from their views [v, d]: positive when their hyperballs intersect.

    theta_a + theta_b - angle(mean view of a, mean view of b); the mean is that of the raw views.
    """
    a = float_tensor("views_a", views_a, "[v, d]").double()
    b = float_tensor("views_b", views_b, "[v, d]").double()
    if a.shape[1] != b.shape[1]:
        raise DataError(f"views_a has {a.shape[1]} features and views_b {b.shape[1]}: wanted the same number.")
    b = b.to(a.device)
    between = _angles(unit_rows(torch.stack([a.mean(0), b.mean(0)]))[None])[0, 0, 1]
    return float(_mean_angle(a[None]) + _mean_angle(b[None]) - between)


def overlap_count(views: Floats, include_diagonal: bool = False) -> float:
    """Share of ordered pairs of samples i != j with Ov > 0, from the samples' views [n, v, d].

    ``include_diagonal`` gives the paper's literal 1/n^2 sum, whose pairs i = i count too: see overlap_count_from.
    """
    given = float_tensor("views", views, "[n, v, d]")
    means, angles = [], []
    for block in _blocks(given):
        means.append(block.mean(1))
        angles.append(_mean_angle(block))
    return overlap_count_from(torch.cat(means), torch.cat(angles), include_diagonal)


def overlap_count_from(means: Floats, angles: Floats, include_diagonal: bool = False) -> float:
    """Share of ordered pairs i != j with Ov > 0, from mean features [n, d] and angles theta [n].

    Ov > 0 is u_a.u_b - cos a cos b + sin a sin b > 0 with u the unit means: one product of vectors longer by two
    coordinates, in blocks of the upper triangle. Where theta_a + theta_b > pi, Ov is positive whatever the means.
    ``include_diagonal`` divides by n^2 and counts i = i where its Ov = 2 theta is positive, that is theta > 0.
    One sample has no pair: 0.0 without the diagonal.
    """
    centres = float_tensor("means", means, "[n, d]")
    theta = float_tensor("angles", angles, "[n]").to(centres.device).double()
    n = len(centres)
    if len(theta) != n:
        raise DataError(f"angles has {len(theta)} values for {n} means: wanted one angle per mean.")
    if theta.min() < 0:
        raise DataError(f"angles holds {float(theta.min())}: wanted angles of at least 0 radians.")
    longer = torch.cat([unit_rows(centres), theta.cos()[:, None], theta.sin()[:, None]], dim=1)  # [n, d + 2]
    rough = longer.float()
    upper = 0
    for i in range(0, n, _ROWS):
        rows, row_theta = longer[i : i + _ROWS].clone(), theta[i : i + _ROWS]
        rows[:, -2].neg_()
        rough_rows = rows.float()
        for j in range(i, n, _ROWS):
            column_theta = theta[j : j + _ROWS]
            hit = _positive(rough_rows @ rough[j : j + _ROWS].T, rows, longer[j : j + _ROWS])
            if row_theta.max() + column_theta.max() > math.pi:
                hit |= row_theta[:, None] + column_theta > math.pi
            if i == j:
                hit.triu_(1)
            upper += int(torch.count_nonzero(hit))
    if include_diagonal:
        return (2 * upper + int(torch.count_nonzero(theta))) / n**2
    return 2 * upper / (n * (n - 1)) if n > 1 else 0.0


def uniformity(features: Floats, t: float = 2.0, max_samples: int = 5000, seed: int = 0) -> float:
    """Uniformity of features [n, d] on the sphere: log of the mean over i != j of exp(-t |u_i - u_j|^2).

    Wang and Isola's measure; lower is more uniform, 0 is a collapse to one point. More than ``max_samples`` rows are
    subsampled by ``seed``.
    """
    given = float_tensor("features", features, "[n, d]")
    if not (math.isfinite(t) and t > 0):
        raise DataError(f"t is {t}: wanted a finite number above 0.")
    if min(len(given), max_samples) < 2:
        raise DataError(f"features has {len(given)} rows and max_samples is {max_samples}: wanted at least 2 of each.")
    if len(given) > max_samples:
        generator = torch.Generator().manual_seed(seed)
        given = given[torch.randperm(len(given), generator=generator)[:max_samples].to(given.device)]
    unit = unit_rows(given)  # [n, d]
    squared = unit.square().sum(1)
    sums = []
    for i in range(0, len(unit), _ROWS):
        product = unit[i : i + _ROWS] @ unit.T
        distance = (squared[i : i + _ROWS, None] + squared - 2 * product).clamp_min_(0)  # [b, n]
        distance.diagonal(i).fill_(math.inf)
        sums.append(distance.mul_(-t).logsumexp(1))
    return float(torch.cat(sums).logsumexp(0)) - math.log(len(unit) * (len(unit) - 1))


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

    Dimensional collapse shows as a fast decay. Features that are all zero give zeros throughout.
    """
    rows = float_tensor("features", features, "[n, d]").double()
    rows = rows / (torch.linalg.vector_norm(rows, dim=1, keepdim=True) + 1e-6)
    values = torch.linalg.svdvals(rows).cpu().numpy()
    if values[0] == 0:
        return Spectrum(values, values.copy(), values.copy(), auc=0.0, effective_rank=0.0)
    share = values / values.sum()
    cev = share.cumsum()
    present = share[share > 0]
    entropy = -float((present * np.log(present)).sum())
    return Spectrum(values, values / values[0], cev, auc=float(cev.mean()), effective_rank=math.exp(entropy))


def _blocks(views: Tensor) -> Iterator[Tensor]:
    """Views [n, v, d] as float64 in blocks of samples, so that no second copy of all views is made."""
    for block in torch.split(views, max(1, _VALUES // views[0].numel())):
        yield block.double()


def _positive(rough: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Where rows [a, e] times columns [b, e] is positive: by the float32 product [a, b], float64 where in doubt."""
    hit = rough > _DOUBT
    a, b = (hit ^ (rough > -_DOUBT)).nonzero(as_tuple=True)
    if len(a) > rough.numel() // 256:
        return rows @ columns.T > _TIE
    hit[a, b] = (rows[a] * columns[b]).sum(1) > _TIE
    return hit


def _is_zero(vectors: Tensor) -> Tensor:
    """Which vectors of the last axis are zero."""
    return (vectors == 0).all(-1)


def _mean_angle(views: Tensor) -> Tensor:
    """Mean over all ordered pairs of views [b, v, d] of their angle -> theta [b]."""
    return _angles(unit_rows(views)).mean((1, 2))


def _angles(unit: Tensor) -> Tensor:
    """Angles of all pairs of unit vectors [b, v, d] -> [b, v, v], self pairs exactly 0.

    2 atan2(|u - v|, |u + v|), good to about 1e-8 at any angle. The chords come from one product of the differences
    to the first view, which keeps their digits when the views are nearly parallel, where an arccos would lose them.
    """
    difference = unit - unit[:, :1]
    product = difference @ difference.mT  # [b, v, v]
    squared = product.diagonal(dim1=1, dim2=2)
    chord = (squared[:, :, None] + squared[:, None, :] - 2 * product).clamp_(0, 4)  # |u - v|^2; |u + v|^2 is 4 less it
    angles = 2 * torch.atan2(chord.sqrt(), (4 - chord).sqrt())
    zero = _is_zero(unit)
    angles.masked_fill_(zero[:, :, None] | zero[:, None, :], math.pi / 2)
    angles.diagonal(dim1=1, dim2=2).zero_()
    return angles
