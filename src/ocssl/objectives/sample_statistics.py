"""What is measured while training: loss, mean feature and angle of each sample, collapse, and the steps of a call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit, view_angle
from ocssl._core.measures import LEAST_RATIO, LEAST_SPREAD
from ocssl._distributed.ranks import ALONE, Ranks
from ocssl.objectives import Output
from ocssl.settings import MemorySettings

FEW = 8  # samples below which spread and participation ratio say nothing


@dataclass(frozen=True)
class SampleStatistics:
    """One row a sample, with gradient; always float32, whatever the precision of the network."""

    loss: Tensor  # [B]
    feature: Tensor  # [B, D] mean over views
    angle: Tensor  # [B] radians
    projected: Tensor  # [B, P] mean over views of the projections

    def rows(self, part: slice) -> dict[str, Tensor]:
        """Detached columns of some rows, as the memory stores them."""
        return {name: getattr(self, name)[part].detach() for name in ("loss", "feature", "angle", "projected")}


class MeasureSamples(nn.Module):
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

    def forward(self, output: Output) -> SampleStatistics:
        settings = self.settings
        with torch.autocast(output.loss.device.type, enabled=False):
            features, projected = output.features.float(), output.projected.float()
            views = features if settings.space == "encoder" else projected  # [V, B, D]
            if settings.center == "running":
                if self.training:
                    self._learn(views.detach())
                views = views - self.mean.to(views)
            mean = self._mean_view(views)
            angle = view_angle(views, settings.angle)
            return SampleStatistics(output.loss.float(), mean, angle, self._mean_view(projected))

    def _mean_view(self, views: Tensor) -> Tensor:
        return unit(unit(views).mean(0)) if self.settings.mean == "unit" else views.mean(0)

    def _learn(self, views: Tensor) -> None:
        """Move the mean towards that of a batch, whose rows may be those of several ranks."""
        rows = views.flatten(0, 1)
        together = self.ranks.sum(torch.cat([rows.sum(0), rows.new_full([1], len(rows))]))
        self.batches += 1
        decay = self.settings.center_ema
        self.mean.lerp_((together[:-1] / together[-1]).to(self.mean), (1 - decay) / (1 - decay**self.batches))


def spread(features: Tensor) -> Tensor:
    """How far unit features lie apart, in [0, 1]: sqrt(1 - |their mean|^2). Near 0 all images look the same.

    It is the standard deviation of the unit vectors, all directions together: [B, D] -> scalar.
    """
    return (1 - unit(features).mean(0).square().sum()).clamp_min(0).sqrt()


def participation_ratio(features: Tensor) -> Tensor:
    """How many directions the centred unit features use, from 1 up: (tr C)^2 / tr(C^2), the participation ratio.

    Needs one matrix product and no decomposition, so it can be looked at in every step: [B, D] -> scalar.
    """
    centred = unit(features)
    centred = centred - centred.mean(0)
    gram = centred @ centred.T  # [B, B] has the same traces as the covariance
    return gram.trace().square() / gram.square().sum().clamp_min(torch.finfo(gram.dtype).tiny)


def collapsed(spread: float, ratio: float) -> bool:
    """Whether the features of a batch say nothing any more: all in one direction, or along one line."""
    return spread < LEAST_SPREAD or ratio < LEAST_RATIO


@dataclass(frozen=True)
class Info:
    """What one call of `partial_fit` did; means over its optimizer steps."""

    loss: float  # what was minimised: objective and weighted terms
    ssl: float  # the objective's part
    steps: int  # optimizer steps since the learner was made
    seen: int  # stream images since the learner was made
    spread: float  # how far features lie apart in the last step: near 0 means collapse; NaN below 8 samples
    participation_ratio: float  # how many directions they use; near 1 means collapse, NaN below 8 samples
    terms: dict[str, float] = field(default_factory=dict)  # each term's loss, and `term.signal` for what it shows


def summarise_steps(
    history: Sequence[dict[str, Tensor]], features: Tensor, steps: int, seen: int, ranks: Ranks
) -> Info:
    """The means of what every step noted, and the state of the last one's features [B, d]; the device waits once."""
    keys = dict.fromkeys(key for step in history for key in step)  # a term may have more to show in some steps
    values = {key: torch.stack([step[key] for step in history if key in step]).mean() for key in keys}
    values = {key: ranks.sum(value) for key, value in values.items()}
    features = ranks.gather(features.detach().float())
    if len(features) >= FEW:  # else too few samples to estimate it
        values |= {"spread": spread(features), "participation_ratio": participation_ratio(features)}
    numbers = dict(zip(values, torch.stack([value.double() for value in values.values()]).tolist(), strict=True))
    own = {key: numbers.pop(key, math.nan) for key in ("loss", "ssl", "spread", "participation_ratio")}
    return Info(**own, steps=steps, seen=seen, terms=numbers)
