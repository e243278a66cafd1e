"""What is measured on every sample of a batch: its loss, mean feature and angle, and whether the batch collapses."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit, view_angle
from ocssl._distributed.ranks import ALONE, Ranks
from ocssl.objectives import Output
from ocssl.settings import MemorySettings


@dataclass(frozen=True)
class Measured:
    """One row a sample, with gradient; always float32, whatever the precision of the network."""

    loss: Tensor  # [B]
    feature: Tensor  # [B, D] mean over views
    angle: Tensor  # [B] radians
    projected: Tensor  # [B, P] mean over views of the projections

    def rows(self, part: slice) -> dict[str, Tensor]:
        """Detached columns of some rows, as the memory stores them."""
        return {name: getattr(self, name)[part].detach() for name in ("loss", "feature", "angle", "projected")}


class Measure(nn.Module):
    """Mean feature and angle of each sample over its views, in the space that the settings name.

    Features of a ReLU network are positive and share one large direction. With `memory.center=running` the running
    mean of all views of all rows is subtracted first, so that angles are those between what differs. Like batch norm it
    learns in train mode only; its average is exponential and unbiased from the first batch on.
    """

    mean: Tensor  # [D]
    batches: Tensor  # scalar: how many the mean has seen

    def __init__(self, settings: MemorySettings, dimension: int, projection: int, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.settings, self.ranks = settings, ranks
        if settings.center == "running":
            self.register_buffer("mean", torch.zeros(dimension if settings.space == "encoder" else projection))
            self.register_buffer("batches", torch.zeros(()))

    def forward(self, output: Output) -> Measured:
        settings = self.settings
        with torch.autocast(output.loss.device.type, enabled=False):
            features, projected = output.features.float(), output.projected.float()
            views = features if settings.space == "encoder" else projected  # [V, B, D]
            if settings.center == "running":
                if self.training:
                    self._learn(views.detach())
                views = views - self.mean.to(views)
            mean = _unit_mean if settings.mean == "unit" else _mean
            return Measured(output.loss.float(), mean(views), view_angle(views, settings.angle), mean(projected))

    def _learn(self, views: Tensor) -> None:
        """Move the mean towards that of a batch, whose rows may be those of several ranks."""
        rows = views.flatten(0, 1)
        together = self.ranks.sum(torch.cat([rows.sum(0), rows.new_full([1], len(rows))]))
        self.batches += 1
        decay = self.settings.center_ema
        self.mean.lerp_((together[:-1] / together[-1]).to(self.mean), (1 - decay) / (1 - decay**self.batches))


def _mean(views: Tensor) -> Tensor:
    return views.mean(0)


def _unit_mean(views: Tensor) -> Tensor:
    return unit(unit(views).mean(0))


def spread(features: Tensor) -> Tensor:
    """How far unit features lie apart, in [0, 1]: sqrt(1 - |their mean|^2). Near 0 all images look the same.

    It is the standard deviation of the unit vectors, all directions together: [B, D] -> scalar.
    """
    return (1 - unit(features).mean(0).square().sum()).clamp_min(0).sqrt()


def effective_rank(features: Tensor) -> Tensor:
    """How many directions the centred unit features use, from 1 up: (tr C)^2 / tr(C^2), the participation ratio.

    Needs one matrix product and no decomposition, so it can be looked at in every step: [B, D] -> scalar.
    """
    centred = unit(features)
    centred = centred - centred.mean(0)
    gram = centred @ centred.T  # [B, B] has the same traces as the covariance
    return gram.trace().square() / gram.square().sum().clamp_min(torch.finfo(gram.dtype).tiny)


def collapsed(spread: float, rank: float) -> bool:
    """Whether the features of a batch say nothing any more: all in one direction, or along one line."""
    return spread < 0.03 or rank < 1.2
