"""The base class of objectives, what they return, and their registry."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl._core.random import single_sample
from ocssl._core.registry import Registry
from ocssl._distributed.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Output:
    """One forward pass over all views of a batch."""

    loss: Tensor  # [B] one value a sample: rules rank by it, and its mean is trained unless there is a batch loss
    features: Tensor  # [V, B, D] encoder space F
    projected: Tensor  # [V, B, P] projector space P
    batch_loss: Tensor | None = None  # scalar: what is trained where the loss cannot be split into samples

    def total(self, weight: Tensor) -> Tensor:
        """What is trained, each sample's loss multiplied by its weight [B]."""
        return (weight * self.loss).mean() if self.batch_loss is None else self.batch_loss


class Objective(nn.Module):
    """An SSL loss with its heads around an encoder: views [V, B, 3, H, W] in, `Output` out. Never touches the memory.

    A subclass takes the encoder, the length of its features and that of the projection, its options as keyword-only
    arguments, makes its heads and defines `forward`. Each view is a separate pass, so batch norm statistics are per
    view. `forward` changes nothing but batch norm statistics: what else is to be remembered is done in `after_step`.
    """

    per_sample: ClassVar[Literal["exact", "surrogate", "none"]] = "exact"  # what `Output.loss` is
    lowest: ClassVar[float] = 0.0  # the lowest loss that a sample can have
    contrastive: ClassVar[bool] = False  # whether the other samples of a batch are negatives
    shardable: ClassVar[bool] = False  # whether each rank's rows by themselves give the loss of the whole batch
    takes_local: ClassVar[bool] = False  # whether `forward` takes local views [L, B, 3, h, w] after the others
    views: int = 2  # that it wants of each image
    ranks: Ranks = ALONE  # the processes whose rows together are a batch
    temperature: float  # of a contrastive one
    projector: nn.Module
    precision: torch.dtype | None = None  # of the encoder's passes, where it is not that of its weights

    def __init__(self, encoder: nn.Module, dimension: int, projection: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dimension = dimension  # of features
        self.projection = projection  # of what the projector makes of them

    def encode(self, view: Tensor) -> Tensor:
        """The encoder's features of one view [B, 3, H, W], in float32 whatever the precision of the pass: [B, D]."""
        if self.precision is None:
            features: Tensor = self.encoder(view)
            return features
        with torch.autocast(view.device.type, self.precision):
            features = self.encoder(view)
        return features.float()

    def forward(self, views: Tensor) -> Output:
        raise TypeError(f"{type(self).__name__} does not define forward")

    def begin(self) -> None:
        """Called once, when the initial weights are there."""

    def after_step(self) -> None:
        """Called after every optimizer step."""

    def distance(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """The objective's own loss between projections of the same views [V, B, P], targets constant: scalar."""
        return (2 - 2 * (unit(predictions.float()) * unit(targets.detach().float())).sum(-1)).mean()


OBJECTIVES: Registry[Objective] = Registry("objective")


@OBJECTIVES.add("none")
class NoObjective(Objective):
    """No loss: for methods whose whole loss is a term, such as SCALE. Projections are the features."""

    per_sample = "none"

    def __init__(self, encoder: nn.Module, dimension: int, projection: int) -> None:
        super().__init__(encoder, dimension, dimension)
        self.projector = nn.Identity()

    def forward(self, views: Tensor) -> Output:
        features = torch.stack([self.encode(view) for view in views])
        return Output(features.new_zeros(features.shape[1]), features, features)


# ---- heads that objectives and terms share --------------------------------------------------------------------------


def projector(inputs: int, hidden: int, outputs: int, *, norm: bool = True) -> nn.Sequential:
    """Three layers with batch norm; the last norm has no affine part, so the bias before it has no effect: frozen.

    Without the last norm there is no last bias either: it is for losses that centre their input.
    """
    last = nn.Linear(hidden, outputs, bias=norm)
    if norm:
        last.bias.requires_grad_(False)
    layers = [*layer(inputs, hidden), *layer(hidden, hidden), last]
    return nn.Sequential(*layers, nn.BatchNorm1d(outputs, affine=False)) if norm else nn.Sequential(*layers)


def predictor(width: int, hidden: int | None = None) -> nn.Sequential:
    """Two layers with a bottleneck (None: a quarter of the width), no norm at the end."""
    hidden = hidden or max(1, width // 4)
    return nn.Sequential(*layer(width, hidden), nn.Linear(hidden, width))


def layer(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    """A linear layer with batch norm and ReLU."""
    return nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)


def by_view(head: nn.Module, views: Tensor) -> Tensor:
    """Each view through the head in a separate pass, one row by running statistics: [V, B, D] -> [V, B, D']."""
    with single_sample(head, alone=views.shape[1] == 1):
        return torch.stack([head(view) for view in views])
