"""VICReg (Bardes et al., 2022): views agree, every dimension varies, no two dimensions covary."""

import torch
from torch import Tensor, nn

from ocssl.objectives.objective import OBJECTIVES, Objective, Output, projector
from ocssl.settings import Positive, Weight

EPS = 1e-4  # under the square root of a variance


def moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """How much the deviations lack to 1 on average, and the squared covariances' sum by dimension: [B, P] -> scalars.

    Both divide by B - 1. One sample alone varies in nothing: 0.99 and 0, without gradient.
    """
    z = z.float()
    centred = z - z.mean(0)
    degrees = max(1, len(z) - 1)
    with torch.autocast(z.device.type, enabled=False):
        covariance = centred.T @ centred / degrees  # [P, P]
    variance = covariance.diagonal()
    rest = covariance - torch.diag(variance)
    return (1 - (variance + EPS).sqrt()).clamp_min(0).mean(), rest.square().sum() / z.shape[1]


@OBJECTIVES.add("vicreg")
class VICReg(Objective):
    """VICReg: views agree, every dimension varies, no two dimensions covary. One loss for the batch.

    The value of a sample is its share of the invariance, the mean squared difference of its two projections. The
    projector is as wide as the projection in all its layers. With plain SGD the loss diverges at its published scale:
    the weights of 25 act on projections that nothing normalises.
    """

    per_sample = "surrogate"

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        invariance: Weight = 25.0,
        variance: Weight = 25.0,
        covariance: Weight = 1.0,
        scale: Positive = 0.1,  # of the whole loss
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.invariance, self.variance, self.covariance, self.scale = invariance, variance, covariance, scale
        self.projector = projector(dimension, projection, projection, norm=False)

    def forward(self, views: Tensor) -> Output:
        features = [self.encode(view) for view in views]
        first, second = (self.projector(e) for e in features)
        loss = (first.float() - second.float()).square().mean(-1)
        (lack1, covary1), (lack2, covary2) = moments(first), moments(second)
        spread = self.variance * (lack1 + lack2) + self.covariance * (covary1 + covary2)
        batch_loss = self.scale * (self.invariance * loss.mean() + spread)
        return Output(loss, torch.stack(features), torch.stack([first, second]), batch_loss)

    def distance(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return self.scale * self.invariance * (predictions.float() - targets.detach().float()).square().mean()
