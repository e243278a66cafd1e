"""No loss at all: for methods whose whole loss is a term, such as SCALE."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ocssl.objectives.objective import OBJECTIVES, Objective, Output


@OBJECTIVES.add("none")
class Nothing(Objective):
    """No loss of its own: encodes the views, and the recipe's terms do the rest. Projections are the features."""

    per_sample: ClassVar[Literal["exact", "surrogate", "none"]] = "none"

    def __init__(self, encoder: nn.Module, dimension: int, projection: int) -> None:
        super().__init__(encoder, dimension, dimension)
        self.projector = nn.Identity()

    def forward(self, views: Tensor) -> Output:
        features = torch.stack([self.encode(view) for view in views])
        return Output(features.new_zeros(features.shape[1]), features, features)
