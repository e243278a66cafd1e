"""Aligns the vectors of one encoder with those of another by a linear map, with its error on held-out images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

HELD_OUT = 0.2  # of the images: the error is measured on them, and they are used for nothing else
RIDGES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # candidates, as a share of the mean variance
NEIGHBOURS = 10


@dataclass(frozen=True)
class Alignment:
    """A map x -> (x - before) @ weights + after, and how far it is off on held-out images."""

    before: Matrix  # [d]
    weights: Matrix  # [d, e]
    after: Matrix  # [e]
    fitted: int  # images
    held_out: int
    error: float  # |mapped - true| / |true - mean of the true|, over all held-out images: 1 is no better than the mean
    cosine: float  # mean similarity of a mapped vector and the true one
    neighbours: float  # share of the ten nearest of the true vector that are among the ten nearest of the mapped one

    def __call__(self, vectors: Any) -> Any:
        """Vectors of the old encoder in the space of the new one, float32."""
        mapped = (np.asarray(vectors, np.float64) - self.before) @ self.weights + self.after
        return mapped.astype(np.float32)

    def facts(self) -> Mapping[str, float]:
        """The numbers that say how good it is."""
        return {name: getattr(self, name) for name in ("fitted", "held_out", "error", "cosine", "neighbours")}


def fit_alignment(old: Matrix, new: Matrix, seed: int = 0) -> Alignment:
    """Ridge regression from old [n, d] to new [n, e] vectors of the same images; a part of them is held out."""
    order = np.random.default_rng(seed).permutation(len(old))
    count = max(2, round(HELD_OUT * len(old)))
    test, train = order[:count], order[count:]
    inner = max(1, round(HELD_OUT * len(train)))
    choosing, fitting = train[:inner], train[inner:]
    errors = [_error(new[choosing], _apply(_solve(old[fitting], new[fitting], r), old[choosing])) for r in RIDGES]
    fitted = _solve(old[train], new[train], RIDGES[int(np.argmin(errors))])
    mapped = _apply(fitted, old[test])
    cosine = float(np.mean(np.sum(_unit(mapped) * _unit(new[test]), axis=1)))
    found = _error(new[test], mapped)
    return Alignment(*fitted, len(train), len(test), found, cosine, _neighbours(mapped, new[test]))


def _solve(old: Matrix, new: Matrix, ridge: float) -> tuple[Matrix, Matrix, Matrix]:
    before, after = old.mean(axis=0), new.mean(axis=0)
    centred = old - before
    gram = centred.T @ centred
    gram[np.diag_indices_from(gram)] += ridge * (np.trace(gram) / len(gram) + 1e-12)
    return before, np.linalg.solve(gram, centred.T @ (new - after)), after


def _apply(fitted: tuple[Matrix, Matrix, Matrix], vectors: Matrix) -> Matrix:
    before, weights, after = fitted
    return np.asarray((vectors - before) @ weights + after)


def _error(true: Matrix, mapped: Matrix) -> float:
    spread = float(np.linalg.norm(true - true.mean(axis=0)))
    return float(np.linalg.norm(mapped - true)) / max(spread, 1e-12)


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))


def _neighbours(mapped: Matrix, true: Matrix) -> float:
    """How many of the nearest true vectors of a true vector are also the nearest of its mapped one, leaving it out."""
    wanted = min(NEIGHBOURS, len(true) - 1)
    if wanted < 1:
        return float("nan")

    def nearest(queries: Matrix) -> npt.NDArray[np.int64]:
        similar = _unit(queries) @ _unit(true).T
        np.fill_diagonal(similar, -np.inf)
        return np.asarray(np.argpartition(-similar, wanted - 1, axis=1)[:, :wanted])

    pairs = zip(nearest(mapped), nearest(true), strict=True)
    return float(np.mean([len(np.intersect1d(a, b)) / wanted for a, b in pairs]))
