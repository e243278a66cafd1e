"""The smallest numbers of a column, found without making anything as large as a large column."""

from __future__ import annotations

import torch
from torch import Tensor

RUN = 64  # numbers of which only the smallest is looked at first
WHOLE = 2**16  # columns up to this length are looked at as a whole, which takes less time


def smallest(values: Tensor, n: int, whole: int = WHOLE) -> Tensor:
    """Places of the n smallest of values [m], smallest first, 0 <= n <= m; which of equal ones is not said."""
    if n == 0 or len(values) <= whole:
        return values.topk(n, largest=False).indices
    pool = up_to_nth(values, n, whole)
    return pool[values[pool].topk(n, largest=False).indices]


def up_to_nth(values: Tensor, n: int, whole: int = WHOLE) -> Tensor:
    """Places, ascending, of all values [m] that are not above the n-th smallest, 1 <= n <= m: n, or more by ties.

    Where the minima of n runs are up to some number, n values are up to it. So the n-th smallest value is not above the
    n-th smallest minimum, and runs whose minimum is above that hold no value that is wanted.
    """
    runs = len(values) // RUN
    if len(values) <= whole or runs < 2 * n:
        return _not_above(values, n)
    near = _not_above(values[: runs * RUN].view(runs, RUN).amin(1), n)
    if 2 * len(near) > runs:  # many ties
        return _not_above(values, n)
    inside = near[:, None] * RUN + torch.arange(RUN, device=near.device)
    places = torch.cat([inside.flatten(), torch.arange(runs * RUN, len(values), device=near.device)])
    return places[_not_above(values[places], n)]


def _not_above(values: Tensor, n: int) -> Tensor:
    """The same of values as a whole. NaN is not above anything here: runs that hold one are never passed over."""
    threshold = values.topk(n, largest=False, sorted=False).values.max()
    return (values > threshold).logical_not_().nonzero()[:, 0]
