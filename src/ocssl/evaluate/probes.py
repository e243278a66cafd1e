"""Probes: how well frozen features tell the classes apart. Every test sample is scored exactly once.

Features are float arrays [n, d], numpy or torch; labels are any integers [n]. A test or validation label that the
training labels lack counts as wrong. One class is enough: its probe always answers that class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate.latent import Floats, float_tensor, unit_rows

Labels = npt.ArrayLike | Tensor
LabelArray = npt.NDArray[np.int64]
_Given = tuple[Floats | None, Labels | None]  # features and labels as the caller gave them

_PATIENCE = 5  # epochs without a better validation accuracy before the rate falls
_SCORES = 2**24  # scores or distances held at once


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """What a probe found. Accuracies are in per cent."""

    accuracy: float  # on the test set
    scored: int  # test samples scored: all of them
    predictions: LabelArray = field(repr=False)  # [scored] the label answered for each test sample
    val_accuracy: float | None  # on the validation set; None without one
    learning_rates: tuple[float, ...] = field(default=(), repr=False)  # the rate of each epoch; empty in closed form


def linear_probe(
    train_x: Floats,
    train_y: Labels,
    test_x: Floats,
    test_y: Labels,
    *,
    val_x: Floats | None = None,
    val_y: Labels | None = None,
    seed: int = 0,
    epochs: int = 100,
    lr: float = 0.05,
    batch: int = 256,
) -> ProbeResult:
    """Accuracy of a linear classifier trained on L2-normalised features: the paper's Final and Average accuracy.

    One linear layer with bias from zero weights, cross-entropy, Adam without weight decay, all samples reshuffled
    each epoch. Five epochs without a better validation accuracy: the rate falls to a third and the best weights come
    back, while Adam keeps its moments and step count (as the authors' code does). It ends when the rate falls below
    1e-4 or after ``epochs``; the best weights are scored. Without ``val_x``, ``seed`` holds a tenth of each class
    (rounded: none under 5 samples) out of the training features; where that is nothing, all of them validate.
    """
    if epochs < 1 or batch < 1 or not (math.isfinite(lr) and lr > 0):
        raise DataError(f"epochs is {epochs}, batch {batch} and lr {lr}: wanted epochs and batch >= 1 and lr > 0.")
    data = _Data((train_x, train_y), (test_x, test_y), (val_x, val_y))
    generator = torch.Generator().manual_seed(seed)
    held_x, held_y = data.val or data.hold_out(generator)
    held_x, x, y = _unit_with_bias(held_x), _unit_with_bias(data.train_x), data.train_y  # [n, d + 1]
    weight = x.new_zeros(len(data.classes), x.shape[1])  # [C, d + 1]
    adam = Adam(weight)
    best, best_correct, stale, rate, rates = weight.clone(), -1, 0, lr, []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a batch is too small to share: threads would mostly wait for each other
    try:
        for _ in range(epochs):
            rates.append(rate)
            for rows in torch.split(torch.randperm(len(x), generator=generator).to(x.device), batch):
                adam.step(cross_entropy_gradient(weight, x[rows], y[rows]), rate)
            correct = int((_answers(held_x, weight) == held_y).sum())
            stale += 1
            if correct > best_correct:
                best, best_correct, stale = weight.clone(), correct, 0
            elif stale == _PATIENCE:
                rate /= 3
                if rate < 1e-4:
                    break
                weight.copy_(best)
                stale = 0
    finally:
        torch.set_num_threads(threads)
    return data.result(lambda features: _answers(_unit_with_bias(features), best), tuple(rates))


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
    data = _Data((train_x, train_y), (test_x, test_y), (val_x, val_y))
    standardise = _standardiser(unit_rows(data.train_x))
    x, y = standardise(unit_rows(data.train_x)), data.train_y  # [n, d]
    gram = x.T @ x
    gram.diagonal().add_(penalty * len(x))
    sums = x.new_zeros(len(data.classes), x.shape[1]).index_add_(0, y, x)  # [C, d] = Y'X, centred as x is
    slopes = torch.cholesky_solve(sums.T, torch.linalg.cholesky(gram)).T
    bias = torch.bincount(y).to(x.dtype) / len(y)
    weight = torch.cat([slopes, bias[:, None]], dim=1)  # [C, d + 1]
    return data.result(lambda features: _answers(_with_bias(standardise(unit_rows(features))), weight))


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
    data = _Data((train_x, train_y), (test_x, test_y), (val_x, val_y))
    standardise = _standardiser(data.train_x)
    x, y = standardise(data.train_x).float(), data.train_y  # [n, d]
    half_squares, k = x.square().sum(1) / 2, min(k, len(x))

    def answer(features: Tensor) -> Tensor:
        answers = []
        for block in torch.split(features, max(1, _SCORES // len(x))):
            closeness = standardise(block).float() @ x.T - half_squares  # [b, n], falls as the distance grows
            voters = y[closeness.topk(k, dim=1).indices]  # [b, k]
            votes = torch.zeros(len(block), len(data.classes), device=x.device)
            answers.append(votes.scatter_add_(1, voters, votes.new_ones(()).expand(voters.shape)).argmax(1))
        return torch.cat(answers)

    return data.result(answer)


def cross_entropy_gradient(weight: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradient [C, d] of the mean cross-entropy of x [b, d] with classes y [b] by the weights: no graph is needed."""
    excess = torch.softmax(x @ weight.T, dim=1)  # [b, C]
    excess[torch.arange(len(y), device=y.device), y] -= 1
    return excess.T @ x / len(x)


class Adam:
    """Adam on one tensor, in place, with its usual constants: torch.optim.Adam without its cost per step."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.mean, self.square = torch.zeros_like(weight), torch.zeros_like(weight)
        self.steps = 0

    def step(self, gradient: Tensor, rate: float) -> None:
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = self.square.sqrt().div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
        self.weight.addcdiv_(self.mean, scale, value=-rate / (1 - 0.9**self.steps))


class _Data:
    """Checked arrays of a probe: features as tensors, labels as class indices (-1: not among the training labels)."""

    def __init__(self, train: _Given, test: _Given, val: _Given) -> None:
        self.train_x, labels = _pair("train", train)
        self.classes, index = np.unique(labels, return_inverse=True)  # [C], [n]
        self.train_y = torch.from_numpy(index).to(self.train_x.device)
        self.test_x, self.test_y = self._indexed("test", test)
        self.val = None if all(part is None for part in val) else self._indexed("val", val)

    def _indexed(self, part: str, given: _Given) -> tuple[Tensor, Tensor]:
        x, y = _pair(part, given)
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


def _pair(part: str, given: _Given) -> tuple[Tensor, LabelArray]:
    """Features [n, d] and their n labels, or a ValueError."""
    features, labels = given
    if features is None or labels is None:
        raise DataError(f"only one of {part}_x and {part}_y is given: wanted both.")
    x = float_tensor(f"{part}_x", features, "[n, d]")
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.dtype.kind not in "iub" or y.shape != (len(x),):
        raise DataError(f"{part}_y has type {y.dtype} and shape {y.shape}: wanted {len(x)} integers, one a sample.")
    return x, y.astype(np.int64)


def _with_bias(x: Tensor) -> Tensor:
    """Features with a last coordinate of 1, whose weight is the bias: [n, d] -> [n, d + 1]."""
    return torch.cat([x, x.new_ones(len(x), 1)], dim=1)


def _unit_with_bias(x: Tensor) -> Tensor:
    """What the linear layer sees: unit features in float32, and the bias."""
    return _with_bias(unit_rows(x).float())


def _answers(x: Tensor, weight: Tensor) -> Tensor:
    """Index of the highest score of each row of x [n, d] by the weights [C, d]; the first of equals."""
    return torch.cat([(block @ weight.T).argmax(1) for block in torch.split(x, max(1, _SCORES // len(weight)))])


def _standardiser(train: Tensor) -> Callable[[Tensor], Tensor]:
    """Maps features to mean 0 and deviation 1 on the training set, in float64; constant features become 0."""
    std, mean = torch.std_mean(train.double(), dim=0, correction=0)
    scale = torch.where(std > 1e-12 * mean.abs(), std, 1.0)
    return lambda features: (features - mean) / scale
