"""Overlap: samples as hyperballs around their mean feature, with the mean angle between their views as radius."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate import feature_arrays
from ocssl.evaluate.feature_arrays import FloatArray, Floats

_PARALLEL = 1 - 5e-5  # cosines beyond this, angles below 0.01 or so, lose digits: they come from differences instead
_TIE = 1e-14  # cosines closer than this are equal but for rounding: hyperballs that only touch do not overlap
_ROUNDING = 2.0**-24  # of a float32 operation
_CERTAIN = 4.0  # stands for a pair that is decided without its product, which is at most 2
_RUN = 64  # products whose smallest is looked at first, to find those in doubt
_RANGE = 1e30  # lengths beyond this, or below its inverse, are not divided by in float32


def overlap(views_a: Floats, views_b: Floats) -> float:
    """Overlap Ov of two samples, in radians, from their views [v, d]: positive when their hyperballs intersect.

    theta_a + theta_b - angle(mean view of a, mean view of b); the mean is that of the raw views.

    >>> round(overlap([[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]), 3)  # points, a right angle apart
    -1.571
    """
    a = feature_arrays.float_tensor("views_a", views_a, "[v, d]").double()
    b = feature_arrays.float_tensor("views_b", views_b, "[v, d]").double()
    if a.shape[1] != b.shape[1]:
        raise DataError(f"views_a has {a.shape[1]} features and views_b {b.shape[1]}: wanted the same number.")
    b = b.to(a.device)
    between = angles_between(feature_arrays.unit_rows(torch.stack([a.mean(0), b.mean(0)]))[None])[0, 0, 1]
    return float(mean_angle(a[None]) + mean_angle(b[None]) - between)


def overlap_count(views: Floats, include_diagonal: bool = False) -> float:
    """Share of ordered pairs of samples i != j with Ov > 0, from the samples' views [n, v, d].

    ``include_diagonal`` gives the paper's literal 1/n^2 sum, whose pairs i = i count too: see overlap_count_from, whose
    memory it needs besides the mean views [n, d] in float64.

    >>> alike, other = [[1.0, 0.2], [1.0, -0.2]], [[0.0, 1.0], [0.0, 1.0]]
    >>> overlap_count([alike, alike, other]) == 1 / 3  # one pair of three
    True
    """
    given = feature_arrays.shared_tensor("views", views, "[n, v, d]")
    means = given.new_empty(len(given), given.shape[2], dtype=torch.float64)
    angles = given.new_empty(len(given), dtype=torch.float64)
    for part, block in feature_arrays.blocks(given, made=given.shape[1] ** 2):
        wide = block.double()
        torch.mean(wide, 1, out=means[part])
        angles[part] = mean_angle(wide)
    return overlap_count_from(means, angles, include_diagonal)


def overlap_count_from(means: Floats, angles: Floats, include_diagonal: bool = False) -> float:
    """Share of ordered pairs i != j with Ov > 0, from mean features [n, d] and angles theta [n].

    Ov > 0 is u_a.u_b - cos a cos b + sin a sin b > 0 with u the unit means: one product of vectors longer by two
    coordinates, in blocks of the upper triangle, in float32; what its rounding may have decided is decided in float64.
    Where theta_a + theta_b > pi, Ov is positive whatever the means. ``include_diagonal`` divides by n^2 and counts
    i = i where its Ov = 2 theta is positive, that is theta > 0. One sample has no pair: 0.0 without the diagonal.

    With the memory's stored mean features and angles it is the online Overlap. It holds a few blocks of ROWS
    means and of feature_arrays.ROWS^2 pairs, and a few numbers per sample.
    """
    balls = _Balls.of(means, angles)
    n, d = balls.centres.shape
    rows = feature_arrays.rows_at_once(d)
    pairs = _Pairs(balls, min(rows, n))
    upper = 0
    for i in range(0, n, rows):
        pairs.turn_to(slice(i, min(i + rows, n)))
        upper += sum(pairs.count(slice(j, min(j + rows, n))) for j in range(i, n, rows))
    if include_diagonal:
        return (2 * upper + int(torch.count_nonzero(balls.theta))) / n**2
    return 2 * upper / (n * (n - 1)) if n > 1 else 0.0


def sample_angles(views: Floats) -> FloatArray:
    """Mean angle theta [n], in radians, of samples given by their views [n, v, d]: the radius of a hyperball.

    The literal mean over all v^2 ordered pairs: the v self pairs add exactly 0, so two views give half their angle,
    one view gives 0, and identical views give 0. Beside the n angles it holds a few blocks of BLOCK values.

    >>> sample_angles([[[1.0, 0.0], [0.0, 1.0]]]).round(3).tolist()  # half of a right angle
    [0.785]
    """
    given = feature_arrays.shared_tensor("views", views, "[n, v, d]")
    angles = given.new_empty(len(given), dtype=torch.float64)
    for part, block in feature_arrays.blocks(given, made=given.shape[1] ** 2):
        angles[part] = mean_angle(block)
    return angles.to(feature_arrays.floating(given[:1]).dtype).cpu().numpy()


def mean_angle(views: Tensor) -> Tensor:
    """Mean over all ordered pairs of views [b, v, d] of their angle -> theta [b], in float64.

    The cosines of a sample are one product of its views with themselves; their lengths stand on its diagonal.
    """
    rows = views.double()
    product = rows @ rows.mT  # [b, v, v]
    squared = product.diagonal(dim1=1, dim2=2)
    if not squared.isfinite().all():
        feature_arrays.check_finite("views", views, "[n, v, d]")
    if views.dtype == torch.float64 and feature_arrays.extreme(squared.sqrt()):
        return angles_between(feature_arrays.unit_rows(views)).mean((1, 2))
    inverse = torch.where(squared > 0, squared, torch.inf).rsqrt()  # 0 for a zero view: a right angle with all others
    cosines = product.mul_(inverse[:, :, None]).mul_(inverse[:, None, :])
    cosines.diagonal(dim1=1, dim2=2).zero_()
    near = cosines.abs().amax((1, 2)) > _PARALLEL
    cosines.diagonal(dim1=1, dim2=2).fill_(1.0)
    theta = cosines.clamp_(-1, 1).acos_().mean((1, 2))
    if near.any():
        theta[near] = angles_between(feature_arrays.unit_rows(views[near])).mean((1, 2))
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


@dataclass(frozen=True, eq=False)
class _Balls:
    """Hyperballs: centres as they were given, and of each its length, its angle and the angle's cosine and sine."""

    centres: Tensor  # [n, d]
    length: Tensor  # [n], float64 like all below; 1 for a zero centre in float32
    theta: Tensor
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, means: Floats, angles: Floats) -> _Balls:
        centres = feature_arrays.shared_tensor("means", means, "[n, d]")
        theta = feature_arrays.float_tensor("angles", angles, "[n]").to(centres.device).double()
        if len(theta) != len(centres):
            raise DataError(f"angles has {len(theta)} values for {len(centres)} means: wanted one angle per mean.")
        if theta.min() < 0:
            raise DataError(f"angles holds {float(theta.min())}: wanted angles of at least 0 radians.")
        length = torch.empty_like(theta)
        for part, block in feature_arrays.blocks(centres):
            torch.linalg.vector_norm(block.double(), dim=1, out=length[part])
            if not length[part].isfinite().all():
                feature_arrays.check_finite("means", block, "[n, d]")
            if block.dtype == torch.float32:  # a float64 row of length 0 may have squares that vanished
                length[part].masked_fill_(length[part] == 0, 1.0)
        return cls(centres, length, theta, theta.cos(), theta.sin())

    def rough(self, part: slice, into: Tensor) -> Tensor:
        """Unit centres, cosines and sines of a part in float32, [b, d + 2], written to the start of ``into``."""
        block, length = self.centres[part], self.length[part]
        out = into[: len(block)]
        least, most = torch.aminmax(length)
        if least > 1 / _RANGE and most < _RANGE:
            scale = length.reciprocal() if block.dtype == torch.float64 else length.reciprocal().float()
            torch.mul(block, scale[:, None], out=out[:, :-2])
        else:
            out[:, :-2] = feature_arrays.unit_rows(block)
        out[:, -2], out[:, -1] = self.cos[part], self.sin[part]
        return out

    def exact(self, part: slice | Tensor) -> Tensor:
        """The same in float64 and newly allocated."""
        return torch.cat(
            [feature_arrays.unit_rows(self.centres[part]), self.cos[part, None], self.sin[part, None]], dim=1
        )


class _Pairs:
    """Counts pairs of hyperballs that overlap, block by block, in preallocated memory."""

    def __init__(self, balls: _Balls, rows: int) -> None:
        d = balls.centres.shape[1]
        self.balls, self.part = balls, slice(0, 0)
        empty = partial(torch.empty, dtype=torch.float32, device=balls.centres.device)
        self.rows, self.columns = empty(rows, d + 2), empty(rows, d + 2)
        self.products, self.sizes = empty(rows * rows + _RUN), empty(rows * rows + _RUN)
        self.below = torch.ones(rows, rows, dtype=torch.bool, device=balls.centres.device).tril_()
        # Sums of d + 2 products of numbers rounded twice, the products at most 2 in sum: no error is larger.
        self.doubt = 2 * (d + 8) * _ROUNDING if feature_arrays.float32_products(balls.centres.device) else _CERTAIN / 2

    def turn_to(self, part: slice) -> None:
        """Take these as the rows of the blocks to come."""
        self.part = part
        self.balls.rough(part, self.rows)[:, -2].neg_()

    def count(self, other: slice) -> int:
        """How many pairs of a row and one of ``other`` overlap; of a block with itself, those above the diagonal."""
        a, b = self.part.stop - self.part.start, other.stop - other.start
        product = self.products[: a * b].view(a, b)
        torch.mm(self.rows[:a], self.balls.rough(other, self.columns).T, out=product)
        theta_a, theta_b = self.balls.theta[self.part], self.balls.theta[other]
        if theta_a.max() + theta_b.max() > math.pi:
            product.masked_fill_(theta_a[:, None] + theta_b > math.pi, _CERTAIN)
        if self.part == other:
            product.masked_fill_(self.below[:a, :a], -_CERTAIN)
        runs = -(-a * b // _RUN)
        flat = self.products[: runs * _RUN]
        flat[a * b :] = -_CERTAIN
        sizes = torch.abs(flat, out=self.sizes[: runs * _RUN]).view(runs, _RUN)
        hits = int(flat.gt_(self.doubt).sum())  # a million ones: exact in float32
        unsure = (sizes.amin(1) <= self.doubt).nonzero()[:, 0]
        if len(unsure):
            run, place = (sizes[unsure] <= self.doubt).nonzero(as_tuple=True)
            hits += self.decide(unsure[run] * _RUN + place, other)
        return hits

    def decide(self, places: Tensor, other: slice) -> int:
        """How many of the pairs in doubt, given by their places in the block, overlap: by products in float64."""
        b = other.stop - other.start
        if len(places) > (self.part.stop - self.part.start) * b // _RUN:
            rows = self.balls.exact(self.part)
            rows[:, -2].neg_()
            products = (rows @ self.balls.exact(other).T).flatten()[places]
            return int(torch.count_nonzero(products > _TIE))
        hits = 0
        for some in places.split(max(1, feature_arrays.BLOCK // self.rows.shape[1])):
            rows = self.balls.exact(self.part.start + some // b)
            rows[:, -2].neg_()
            products = torch.linalg.vecdot(rows, self.balls.exact(other.start + some % b))
            hits += int(torch.count_nonzero(products > _TIE))
        return hits
