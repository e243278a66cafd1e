"""SimSiam (Chen and He, 2021): each view predicts the other's projection, whose gradient is stopped."""

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl.objectives.objective import OBJECTIVES, Objective, Output, predictor, projector
from ocssl.settings import Size


def simsiam_loss(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    """Negative cosine of each prediction with the other view's stopped projection, averaged: [B, P] x 4 -> [B]."""
    p1, p2, z1, z2 = (unit(x.float()) for x in (p1, p2, z1.detach(), z2.detach()))
    return -0.5 * ((p1 * z2).sum(-1) + (p2 * z1).sum(-1))


@OBJECTIVES.add("simsiam")
class SimSiam(Objective):
    """SimSiam: each view predicts the other's projection. Loss in [-1, 1], exact per sample."""

    lowest = -1.0
    shardable = True

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        hidden: Size | None = None,  # of the projector; None: as wide as the features
        bottleneck: Size | None = None,  # of the predictor; None: a quarter of the projection
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.projector = projector(dimension, hidden or dimension, projection)
        self.predictor = predictor(projection, bottleneck)

    def forward(self, views: Tensor) -> Output:
        features = [self.encode(view) for view in views]
        projected = [self.projector(e) for e in features]
        first, second = projected
        loss = simsiam_loss(self.predictor(first), self.predictor(second), first, second)
        return Output(loss, torch.stack(features), torch.stack(projected))
