"""The latent metrics' literal formulas in plain Python, one float64 number at a time, and samples to try them on.

Angles of self pairs are 0 by definition and never computed. A zero vector stands at a right angle to all others.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Vector = Sequence[float] | npt.NDArray[Any]
Vectors = Sequence[Vector] | npt.NDArray[Any]

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-10}
PRECISIONS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def direction(a: Vector) -> list[float]:
    length = math.hypot(*map(float, a))
    return [float(x) / (length or 1.0) for x in a]


def cosine(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(direction(a), direction(b), strict=True))


def angle(a: Vector, b: Vector) -> float:
    return math.acos(max(-1.0, min(1.0, cosine(a, b))))


def literal_deviation(views: Vectors) -> float:
    return sum(1 - cosine(a, b) for a in views for b in views) / len(views) ** 2


def literal_theta(views: Vectors) -> float:
    v = len(views)
    return sum(angle(views[i], views[j]) for i in range(v) for j in range(v) if i != j) / v**2


def mean_view(views: Vectors) -> list[float]:
    return [math.fsum(float(view[k]) for view in views) / len(views) for k in range(len(views[0]))]


def literal_overlap(a: Vectors, b: Vectors) -> float:
    return literal_theta(a) + literal_theta(b) - angle(mean_view(a), mean_view(b))


def literal_count(samples: Any) -> float:
    n = len(samples)
    hits = sum(literal_overlap(samples[i], samples[j]) > 0 for i in range(n) for j in range(n) if i != j)
    return hits / (n * (n - 1))


def literal_count_from(means: Vectors, angles: Vector, touching: float = 0.0) -> float:
    """Balls whose Ov is at most ``touching`` only touch, but for the rounding of the arccos."""
    n = len(means)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return sum(bool(angles[i] + angles[j] - angle(means[i], means[j]) > touching) for i, j in pairs) / len(pairs)


def literal_uniformity(features: Vectors, t: float) -> float:
    unit = [direction(f) for f in features]
    n = len(unit)
    gaps = [math.dist(unit[i], unit[j]) for i in range(n) for j in range(n) if i != j]
    terms = [math.exp(-t * gap**2) for gap in gaps]
    return math.log(math.fsum(terms) / len(terms))


def literal_alignment(views: Any, alpha: float) -> float:
    each = []
    for sample in views:
        unit = [direction(view) for view in sample]
        gaps = [math.dist(a, b) ** alpha for i, a in enumerate(unit) for b in unit[i + 1 :]]
        each.append(math.fsum(gaps) / len(gaps))
    return math.fsum(each) / len(each)


def cloud(n: int, v: int, d: int, spread: float = 0.4, seed: int = 0, dtype: Any = np.float64) -> npt.NDArray[Any]:
    """Samples around random centres, their views spread around them, at uneven lengths."""
    rng = np.random.default_rng(seed)
    views = rng.normal(size=(n, 1, d)) + 1.0 + spread * rng.normal(size=(n, v, d))
    return (views * rng.uniform(0.2, 5, size=(n, v, 1))).astype(dtype)


def turned(rng: np.random.Generator, d: int) -> npt.NDArray[np.float64]:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]
