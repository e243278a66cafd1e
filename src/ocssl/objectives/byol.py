"""BYOL (Grill et al., 2020): each view predicts what a momentum network makes of the other."""

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl.objectives.objective import OBJECTIVES, Objective, Output, predictor, projector
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Share, Size


def byol_loss(p1: Tensor, p2: Tensor, t1: Tensor, t2: Tensor) -> Tensor:
    """2 - 2 cosine of each prediction with the target of the other view, both halves added: [B, P] x 4 -> [B]."""
    p1, p2, t1, t2 = (unit(x.float()) for x in (p1, p2, t1.detach(), t2.detach()))
    return 4 - 2 * ((p1 * t2).sum(-1) + (p2 * t1).sum(-1))


@OBJECTIVES.add("byol")
class BYOL(Objective):
    """BYOL: each view predicts a momentum (EMA) network's projection of the other. Loss in [0, 8], exact per sample.

    The copy moves towards the network after every step and sees batches in train mode. The encoder that is evaluated
    is the trained one.
    """

    shardable = True

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        momentum: Share = 0.99,  # of the momentum network: 1 never moves
        hidden: Size | None = None,  # of the projector; None: as wide as the features
        bottleneck: Size | None = None,  # of the predictor; None: a quarter of the projection
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.momentum = momentum
        self.projector = projector(dimension, hidden or dimension, projection)
        self.predictor = predictor(projection, bottleneck)
        self.target = Teacher(self, live=True)

    def forward(self, views: Tensor) -> Output:
        features = [self.encode(view) for view in views]
        projected = [self.projector(e) for e in features]
        first, second = (self.predictor(z) for z in projected)
        loss = byol_loss(first, second, *self.target(views))
        return Output(loss, torch.stack(features), torch.stack(projected))

    def begin(self) -> None:
        self.target.take(self)

    def after_step(self) -> None:
        self.target.follow(self, self.momentum)
