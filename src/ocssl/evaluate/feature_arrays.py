"""Arrays of features as tensors, without copying them, and the blocks in which metrics go through them.

A metric holds a few blocks at a time beside its input and a few numbers per sample, however many samples there are:
that is what lets a memory-mapped file of features be larger than the machine's memory.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.errors import DataError

Floats = npt.ArrayLike | Tensor
FloatArray = npt.NDArray[np.floating[Any]]

BLOCK = 2**19  # values worked on at once, 2 MB in float32: they stay in the cache from one operation to the next
ROWS = 1024  # samples on each side of a block of a pairwise matrix: 4 MB in float32, 8 MB in float64
_FAR = 1e140  # lengths beyond this, or below its inverse, have squares that float64 cannot hold
_SHARED = {np.dtype(kind) for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")}  # types both sides know


class _Writeable:
    """A read-only array's memory under a writeable name: torch takes no other without a warning, and only reads it."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array  # keeps the memory alive
        facts = array.__array_interface__
        self.__array_interface__ = {**facts, "data": (facts["data"][0], False)}


def shared_tensor(name: str, values: Floats, shape: str) -> Tensor:
    """Real numbers of the wanted shape as a tensor, or a DataError that says what was given; not checked for NaN.

    The tensor shares its memory with an array or tensor, also a memory-mapped or read-only one, and must not be
    written to. Only arrays that run backwards or have another byte order are copied. ``shape`` reads like "[n, d]"; no
    axis may be empty.
    """
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name} has type {array.dtype}: wanted real numbers of shape {shape}.")
        if array.dtype not in _SHARED or not array.dtype.isnative:
            array = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
        if any(stride < 0 or stride % array.itemsize for stride in array.strides):
            array = array.copy()
        values = torch.from_numpy(array if array.flags.writeable else np.asarray(_Writeable(array)))
    if values.is_complex():
        raise DataError(f"{name} has type {values.dtype}: wanted real numbers of shape {shape}.")
    if values.ndim != shape.count(",") + 1 or values.numel() == 0:
        raise DataError(f"{name} has shape {tuple(values.shape)}: wanted {shape}, with no empty axis.")
    return values.detach().cpu() if values.device.type == "mps" else values.detach()  # mps has no float64


def float_tensor(name: str, values: Floats, shape: str) -> Tensor:
    """Finite numbers as a floating tensor of the wanted shape, or a DataError that says what was given.

    float64 stays float64 and all else becomes float32; what is float32 or float64 already is not copied.
    """
    tensor = floating(shared_tensor(name, values, shape))
    for _, block in blocks(tensor):
        check_finite(name, block, shape)
    return tensor


def floating(values: Tensor) -> Tensor:
    """float64 as it is and all else as float32."""
    return values if values.dtype == torch.float64 else values.float()


def check_finite(name: str, values: Tensor, shape: str) -> None:
    """A DataError where a value is NaN or infinite."""
    if not all(torch.isfinite(end) for end in torch.aminmax(values)):
        raise DataError(f"{name} holds NaN or infinite values: wanted finite numbers of shape {shape}.")


def blocks(values: Tensor, made: int = 0) -> Iterator[tuple[slice, Tensor]]:
    """Values [n, ...] in blocks of samples of at most BLOCK values, or one sample: which, and as float32 or float64.

    ``made`` is how many values are made of each sample, where that may be more than it has.
    What is found of each block belongs in a tensor made before: small tensors kept in a list would lie between the
    large ones that come and go, and the process would grow.
    """
    step = max(1, BLOCK // max(made, values[0].numel()))
    for start in range(0, len(values), step):
        part = slice(start, min(start + step, len(values)))
        yield part, floating(values[part])


def rows_at_once(d: int) -> int:
    """How many rows of d features stand on each side of a block of pairs: ROWS, or fewer beyond 4,096 features."""
    return max(1, min(ROWS, 8 * BLOCK // d))


def unit_rows(vectors: Tensor) -> Tensor:
    """Vectors of the last axis at length 1, in float64 and memory of their own; a zero vector stays zero."""
    rows = vectors.to(torch.float64, copy=True)
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    if vectors.dtype == torch.float64 and extreme(length):  # bring the largest value to 1 first
        largest = rows.abs().amax(-1, keepdim=True)
        rows /= torch.where(largest > 0, largest, 1.0)
        length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows.div_(torch.where(length > 0, length, 1.0))


def extreme(lengths: Tensor) -> bool:
    """Whether a length may be wrong because squares overflow or vanish in float64, or is NaN."""
    least, most = torch.aminmax(lengths)
    return not (least > 1 / _FAR and most < _FAR)


def float32_products(device: torch.device) -> bool:
    """Whether matrix products of float32 are computed in float32: settings of torch allow TF32 or bfloat16 instead.

    Asked of a product, as the settings are several and differ between versions.
    """
    value = 1 + 2.0**-12  # rounds to 1 in both
    factor = torch.full((128, 128), value, device=device)
    return bool(((factor @ factor) / 128 - value**2).abs().max() < 2.0**-16)
