"""Probes: how well frozen features separate the classes, every test sample scored exactly once.

Features are float arrays [n, d], numpy or torch; labels are any integers [n]. A test or validation label that the
training labels lack counts as wrong. One class is enough: its probe always answers that class.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate.feature_arrays import Floats, float_tensor, unit_rows

Labels = npt.ArrayLike | Tensor
LabelArray = npt.NDArray[np.int64]

_SCORES = 2**24  # scores held at once
_DISTANCES = 2**24  # distances held at once


@dataclass(frozen=True, eq=False)
class Task:
    """Features and labels of one task, as probes take them."""

    train_x: Floats
    train_y: Labels
    test_x: Floats
    test_y: Labels
    val_x: Floats | None = None
    val_y: Labels | None = None


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """What a probe found. Accuracies are in per cent."""

    accuracy: float  # on the test set
    scored: int  # test samples scored: all of them, but for linear_probe's compat
    predictions: LabelArray = field(repr=False)  # [scored] the label answered for each test sample
    val_accuracy: float | None  # on the validation set; None without one
    learning_rates: tuple[float, ...] = field(default=(), repr=False)  # the rate of each epoch; empty in closed form


class Data:
    """Checked arrays of a probe: features as tensors, labels as class indices (-1: not among the training labels)."""

    def __init__(self, task: Task) -> None:
        self.train_x, labels = _pair("train", task.train_x, task.train_y)
        self.classes, index = np.unique(labels, return_inverse=True)  # [C], [n]
        self.train_y = torch.from_numpy(index).to(self.train_x.device)
        self.test_x, self.test_y = self._indexed("test", task.test_x, task.test_y)
        held_out = task.val_x is not None or task.val_y is not None
        self.val = self._indexed("val", task.val_x, task.val_y) if held_out else None

    def _indexed(self, part: str, features: Floats | None, labels: Labels | None) -> tuple[Tensor, Tensor]:
        x, y = _pair(part, features, labels)
        if x.shape[1] != self.train_x.shape[1]:
            raise DataError(f"{part}_x has {x.shape[1]} features, train_x {self.train_x.shape[1]}: wanted the same.")
        place = np.searchsorted(self.classes, y).clip(max=len(self.classes) - 1)
        index = torch.from_numpy(np.where(self.classes[place] == y, place, -1))
        return x.to(self.train_x.device), index.to(self.train_x.device)

    def hold_out(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Make the validation set of a tenth of each training class, by chance; of all of them when that is none."""
        y = self.train_y.cpu()
        order = torch.randperm(len(y), generator=generator)
        order = order[y[order].argsort(stable=True)]  # classes one after the other, each in a random order
        sizes = torch.bincount(y)
        rank = torch.arange(len(y)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)  # place within the class
        chosen = rank < ((sizes + 5) // 10).repeat_interleave(sizes)
        kept, held = (order[~chosen], order[chosen]) if chosen.any() else (order, order)
        self.val = self.train_x[held], self.train_y[held]
        self.train_x, self.train_y = self.train_x[kept], self.train_y[kept]
        return self.val

    def result(self, answer: Callable[[Tensor], Tensor], rates: tuple[float, ...] = ()) -> ProbeResult:
        """The result of a rule that answers a class index for each row of features."""
        answers = answer(self.test_x)
        accuracy = 100 * int((answers == self.test_y).sum()) / len(answers)
        val = None if self.val is None else 100 * int((answer(self.val[0]) == self.val[1]).sum()) / len(self.val[1])
        return ProbeResult(accuracy, len(answers), self.classes[answers.cpu().numpy()], val, rates)


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

    >>> x, y = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]] * 20, [0, 0, 1, 1] * 20
    >>> ridge_probe(x, y, x, y).accuracy
    100.0
    """
    if not (math.isfinite(penalty) and penalty > 0):
        raise DataError(f"penalty is {penalty}: wanted a finite number above 0.")
    data = Data(Task(train_x, train_y, test_x, test_y, val_x, val_y))
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

    >>> x, y = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]] * 20, [0, 0, 1, 1] * 20
    >>> knn_probe(x, y, x, y).accuracy
    100.0
    """
    if k < 1:
        raise DataError(f"k is {k}: wanted at least 1.")
    data = Data(Task(train_x, train_y, test_x, test_y, val_x, val_y))
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


def with_bias(x: Tensor) -> Tensor:
    """Features with a last coordinate of 1, whose weight is the bias: [n, d] -> [n, d + 1]."""
    return torch.cat([x, x.new_ones(len(x), 1)], dim=1)


def best_class(x: Tensor, weight: Tensor) -> Tensor:
    """Index of the highest score of each row of x [n, d] by the weights [C, d]; the first of equals."""
    return torch.cat([(block @ weight.T).argmax(1) for block in torch.split(x, max(1, _SCORES // len(weight)))])


def _pair(part: str, features: Floats | None, labels: Labels | None) -> tuple[Tensor, LabelArray]:
    """Features [n, d] and their n labels, or a DataError."""
    if features is None or labels is None:
        raise DataError(f"only one of {part}_x and {part}_y is given: wanted both.")
    x = float_tensor(f"{part}_x", features, "[n, d]")
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.dtype.kind not in "iub" or y.shape != (len(x),):
        raise DataError(f"{part}_y has type {y.dtype} and shape {y.shape}: wanted {len(x)} integers, one per sample.")
    return x, y.astype(np.int64)
