"""Angles between the views of a sample, in float64: theta, the radius of the sample's hyperball."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ocssl.evaluate.arrays import FloatArray, Floats, blocks, check_finite, extreme, floating, shared_tensor, unit_rows

_VIEWS = "[n, v, d]"
_PARALLEL = 1 - 5e-5  # cosines beyond this, angles below 0.01 or so, lose digits: they come from differences instead


def sample_angles(views: Floats) -> FloatArray:
    """Mean angle theta [n], in radians, of samples given by their views [n, v, d]: the radius of a hyperball.

    The literal mean over all v^2 ordered pairs: the v self pairs add exactly 0, so two views give half their angle,
    one view gives 0, and identical views give 0. Beside the n angles it holds a few blocks of arrays.BLOCK values.
    """
    given = shared_tensor("views", views, _VIEWS)
    angles = given.new_empty(len(given), dtype=torch.float64)
    for part, block in blocks(given, made=given.shape[1] ** 2):
        angles[part] = mean_angle(block)
    return angles.to(floating(given[:1]).dtype).cpu().numpy()


def mean_angle(views: Tensor) -> Tensor:
    """Mean over all ordered pairs of views [b, v, d] of their angle -> theta [b], in float64.

    The cosines of a sample are one product of its views with themselves; their lengths stand on its diagonal.
    """
    rows = views.double()
    product = rows @ rows.mT  # [b, v, v]
    squared = product.diagonal(dim1=1, dim2=2)
    if not squared.isfinite().all():
        check_finite("views", views, _VIEWS)
    if views.dtype == torch.float64 and extreme(squared.sqrt()):
        return angles_between(unit_rows(views)).mean((1, 2))
    inverse = torch.where(squared > 0, squared, torch.inf).rsqrt()  # 0 for a zero view: a right angle with all others
    cosines = product.mul_(inverse[:, :, None]).mul_(inverse[:, None, :])
    cosines.diagonal(dim1=1, dim2=2).zero_()
    near = cosines.abs().amax((1, 2)) > _PARALLEL
    cosines.diagonal(dim1=1, dim2=2).fill_(1.0)
    theta = cosines.clamp_(-1, 1).acos_().mean((1, 2))
    if near.any():
        theta[near] = angles_between(unit_rows(views[near])).mean((1, 2))
    return theta


def angles_between(unit: Tensor) -> Tensor:
    """Angles of all pairs of unit vectors [b, v, d] -> [b, v, v], self pairs exactly 0.

    2 atan2(|u - v|, |u + v|), good to about 1e-8 at any angle.
    """
    chord = squared_chords(unit)  # |u + v|^2 is 4 less it
    angles = 2 * torch.atan2(chord.sqrt(), (4 - chord).sqrt())
    zero = (unit == 0).all(-1)
    angles.masked_fill_(zero[:, :, None] | zero[:, None, :], math.pi / 2)
    angles.diagonal(dim1=1, dim2=2).zero_()
    return angles


def squared_chords(unit: Tensor) -> Tensor:
    """|u - v|^2 of all pairs of unit vectors [b, v, d] -> [b, v, v].

    From one product of the differences to the first vector, which keeps their digits when the vectors are nearly
    parallel, where a cosine would lose them.
    """
    difference = unit - unit[:, :1]
    product = difference @ difference.mT  # [b, v, v]
    squared = product.diagonal(dim1=1, dim2=2)
    return (squared[:, :, None] + squared[:, None, :] - 2 * product).clamp_(0, 4)
