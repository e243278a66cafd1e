"""The Overlap loss of SOLAR: keeps the balls of different samples apart."""

from typing import Literal

import torch
from torch import Tensor

from ocssl._core.angles import pairwise_angles
from ocssl.objectives import Objective
from ocssl.settings import Size, Weight
from ocssl.terms.term import TERMS, Penalty, Step, Term


def overlap_matrix(feature: Tensor, angle: Tensor, other_feature: Tensor, other_angle: Tensor) -> Tensor:
    """Overlap of every sample with every other, equation 3 of the paper: angles less the centres' angle, [B, K]."""
    return angle[:, None] + other_angle[None, :] - pairwise_angles(feature, other_feature)


@TERMS.add("overlap")
class Overlap(Term):
    """SOLAR's Overlap loss: penalises overlap of the batch with the k stored samples of highest loss outside it.

    The stored centres and angles are constants; gradients move the batch only. `short` decides while fewer than k slots
    lie outside the batch: `min` takes those there are, `skip` none. `detach_angle` stops the pull on a sample's own
    views.
    """

    needs = frozenset({"loss", "feature", "angle"})
    shardable = True

    def __init__(
        self,
        objective: Objective,
        *,
        weight: Weight = 1.0,
        k: Size = 500,
        short: Literal["min", "skip"] = "min",
        detach_angle: bool = False,
    ) -> None:
        super().__init__(objective, weight)
        self.k, self.short, self.detach_angle = k, short, detach_angle

    def forward(self, step: Step) -> Penalty:
        measured, memory = step.measured, step.memory
        features, angles = memory.highest(self.k, "loss", step.replay.slots, ("feature", "angle"))
        if len(angles) == 0 or (self.short == "skip" and len(angles) < self.k):
            nothing = measured.loss.new_zeros(())
            return Penalty(nothing, {"active": nothing})
        angle = measured.angle.detach() if self.detach_angle else measured.angle
        with torch.autocast(measured.feature.device.type, enabled=False):
            overlaps = overlap_matrix(measured.feature, angle, features, angles)
        active = (overlaps.detach() > 0).float().mean()
        return Penalty(overlaps.clamp_min(0).mean(), {"active": active})
