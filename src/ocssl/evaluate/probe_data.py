"""What every probe starts from and ends with: checked features and labels, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate.latent import Floats, float_tensor

Labels = npt.ArrayLike | Tensor
LabelArray = npt.NDArray[np.int64]
Given = tuple[Floats | None, Labels | None]  # features and labels as the caller gave them

_SCORES = 2**24  # scores held at once


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

    def __init__(self, train: Given, test: Given, val: Given) -> None:
        self.train_x, labels = _pair("train", train)
        self.classes, index = np.unique(labels, return_inverse=True)  # [C], [n]
        self.train_y = torch.from_numpy(index).to(self.train_x.device)
        self.test_x, self.test_y = self._indexed("test", test)
        self.val = None if all(part is None for part in val) else self._indexed("val", val)

    def _indexed(self, part: str, given: Given) -> tuple[Tensor, Tensor]:
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


def with_bias(x: Tensor) -> Tensor:
    """Features with a last coordinate of 1, whose weight is the bias: [n, d] -> [n, d + 1]."""
    return torch.cat([x, x.new_ones(len(x), 1)], dim=1)


def best_class(x: Tensor, weight: Tensor) -> Tensor:
    """Index of the highest score of each row of x [n, d] by the weights [C, d]; the first of equals."""
    return torch.cat([(block @ weight.T).argmax(1) for block in torch.split(x, max(1, _SCORES // len(weight)))])


def _pair(part: str, given: Given) -> tuple[Tensor, LabelArray]:
    """Features [n, d] and their n labels, or a ValueError."""
    features, labels = given
    if features is None or labels is None:
        raise DataError(f"only one of {part}_x and {part}_y is given: wanted both.")
    x = float_tensor(f"{part}_x", features, "[n, d]")
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.dtype.kind not in "iub" or y.shape != (len(x),):
        raise DataError(f"{part}_y has type {y.dtype} and shape {y.shape}: wanted {len(x)} integers, one a sample.")
    return x, y.astype(np.int64)
