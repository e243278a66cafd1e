"""Probes: how well frozen features tell the classes apart, every test sample scored exactly once.

Features are float arrays [n, d], numpy or torch; labels are any integers [n]. A test or validation label that the
training labels lack counts as wrong. One class is enough: its probe always answers that class.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate.latent import Floats, unit_rows
from ocssl.evaluate.linear import Adam, Task, cross_entropy_gradient, linear_probe, linear_probes
from ocssl.evaluate.probe_data import Data, Labels, ProbeResult, best_class, with_bias

__all__ = [
    "Adam",
    "ProbeResult",
    "Task",
    "cross_entropy_gradient",
    "knn_probe",
    "linear_probe",
    "linear_probes",
    "ridge_probe",
]

_DISTANCES = 2**24  # distances held at once


def ridge_probe(
    train_x: Floats,
    train_y: Labels,
    test_x: Floats,
    test_y: Labels,
    *,
    val_x: Floats | None = None,
    val_y: Labels | None = None,
    seed: int = 0,
    penalty: float = 0.01,
) -> ProbeResult:
    """Accuracy of ridge regression on one-hot labels, in closed form: a fast and exact stand-in for the linear probe.

    Features L2-normalised, then standardised by the training set; the penalty on the squared weights is ``penalty``
    times the number of training samples, and the bias is free. More penalty trusts the training features less.
    Nothing is random or tuned: ``seed`` is taken so that all probes are called alike, a validation set is only scored.
    """
    if not (math.isfinite(penalty) and penalty > 0):
        raise DataError(f"penalty is {penalty}: wanted a finite number above 0.")
    data = Data((train_x, train_y), (test_x, test_y), (val_x, val_y))
    standardise = _standardiser(unit_rows(data.train_x))
    x, y = standardise(unit_rows(data.train_x)), data.train_y  # [n, d]
    gram = x.T @ x
    gram.diagonal().add_(penalty * len(x))
    sums = x.new_zeros(len(data.classes), x.shape[1]).index_add_(0, y, x)  # [C, d] = Y'X, centred as x is
    slopes = torch.cholesky_solve(sums.T, torch.linalg.cholesky(gram)).T
    bias = torch.bincount(y).to(x.dtype) / len(y)
    weight = torch.cat([slopes, bias[:, None]], dim=1)  # [C, d + 1]
    return data.result(lambda features: best_class(with_bias(standardise(unit_rows(features))), weight))


def knn_probe(
    train_x: Floats,
    train_y: Labels,
    test_x: Floats,
    test_y: Labels,
    *,
    val_x: Floats | None = None,
    val_y: Labels | None = None,
    seed: int = 0,
    k: int = 50,
) -> ProbeResult:
    """Accuracy of a vote of the ``k`` nearest training samples: Euclidean distance of standardised features.

    ``k`` above the number of training samples means all. A tied vote goes to the smallest label, as in scikit-learn.
    Nothing is random or tuned: ``seed`` is taken so that all probes are called alike, a validation set is only scored.
    """
    if k < 1:
        raise DataError(f"k is {k}: wanted at least 1.")
    data = Data((train_x, train_y), (test_x, test_y), (val_x, val_y))
    standardise = _standardiser(data.train_x)
    x, y = standardise(data.train_x).float(), data.train_y  # [n, d]
    half_squares, k = x.square().sum(1) / 2, min(k, len(x))

    def answer(features: Tensor) -> Tensor:
        answers = []
        for block in torch.split(features, max(1, _DISTANCES // len(x))):
            closeness = standardise(block).float() @ x.T - half_squares  # [b, n], falls as the distance grows
            voters = y[closeness.topk(k, dim=1).indices]  # [b, k]
            votes = torch.zeros(len(block), len(data.classes), device=x.device)
            answers.append(votes.scatter_add_(1, voters, votes.new_ones(()).expand(voters.shape)).argmax(1))
        return torch.cat(answers)

    return data.result(answer)


def _standardiser(train: Tensor) -> Callable[[Tensor], Tensor]:
    """Maps features to mean 0 and deviation 1 on the training set, in float64; constant features become 0."""
    std, mean = torch.std_mean(train.double(), dim=0, correction=0)
    scale = torch.where(std > 1e-12 * mean.abs(), std, 1.0)
    return lambda features: (features - mean) / scale
