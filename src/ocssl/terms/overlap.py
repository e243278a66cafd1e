"""The Overlap loss of SOLAR: keeps the balls of different samples apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from ocssl.angles import pairwise_angles
from ocssl.memory import Memory, Replay
from ocssl.statistics import Measured
from ocssl.terms.term import TERMS, Penalty


def overlap_matrix(feature: Tensor, angle: Tensor, other_feature: Tensor, other_angle: Tensor) -> Tensor:
    """Overlap of every sample with every other, equation 3 of the paper: angles less the centres' angle, [B, K]."""
    return angle[:, None] + other_angle[None, :] - pairwise_angles(feature, other_feature)


@TERMS.add("overlap")
@dataclass(kw_only=True)
class Overlap:
    """Positive Overlap of the batch with the k stored samples of highest loss that are not in the batch.

    The stored centres and angles are constants; gradients move the batch only. `short` decides while fewer than k slots
    lie outside the batch: `min` takes those there are, `skip` none. `detach_angle` stops the pull on a sample's own
    views.
    """

    weight: Annotated[float, Field(ge=0)] = 1.0
    k: Annotated[int, Field(ge=1)] = 500
    short: Literal["min", "skip"] = "min"
    detach_angle: bool = False
    needs: ClassVar[frozenset[str]] = frozenset({"loss", "feature", "angle"})

    def __call__(self, measured: Measured, replay: Replay, memory: Memory) -> Penalty:
        slots = memory.top(self.k, "loss", outside=replay.slots)
        if len(slots) == 0 or (self.short == "skip" and len(slots) < self.k):
            nothing = measured.loss.new_zeros(())
            return Penalty(nothing, {"active": nothing})
        angle = measured.angle.detach() if self.detach_angle else measured.angle
        with torch.autocast(measured.feature.device.type, enabled=False):
            overlaps = overlap_matrix(
                measured.feature, angle, memory.store["feature"][slots], memory.store["angle"][slots]
            )
        active = (overlaps.detach() > 0).float().mean()
        return Penalty(overlaps.clamp_min(0).mean(), {"active": active})
