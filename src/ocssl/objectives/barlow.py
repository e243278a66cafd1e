"""Barlow Twins (Zbontar et al., 2021): pulls the correlations between the dimensions of two views to the identity."""

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl.objectives.objective import OBJECTIVES, Objective, Output, projector
from ocssl.settings import Positive, Size, Weight

EPS = 1e-5  # added to variances, as in batch norm


def standardise(z: Tensor) -> Tensor:
    """Zero mean and unit deviation of every dimension over the batch; a constant dimension becomes 0: [B, P]."""
    centred = z.float() - z.float().mean(0)
    return centred / (centred.square().mean(0) + EPS).sqrt()


def barlow_loss(a: Tensor, b: Tensor, off_diagonal: float) -> Tensor:
    """Squared distance of the correlations from the identity, off-diagonal ones weighted: standardised [B, P] x 2."""
    with torch.autocast(a.device.type, enabled=False):
        correlation = a.T @ b / len(a)  # [P, P]
    diagonal = correlation.diagonal()
    rest = correlation - torch.diag(diagonal)
    return (diagonal - 1).square().sum() + off_diagonal * rest.square().sum()


@OBJECTIVES.add("barlow-twins")
class BarlowTwins(Objective):
    """Barlow Twins: views correlate dimension by dimension, and no two dimensions do. One loss for the batch.

    The value of a sample, which is not trained, is 1 - cosine of its two standardised projections, in [0, 2].
    """

    per_sample = "surrogate"

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        off_diagonal: Weight = 5e-3,  # weight of correlations between different dimensions
        scale: Positive = 0.1,  # of the whole loss
        hidden: Size | None = None,  # of the projector; None: as wide as the features
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.off_diagonal, self.scale = off_diagonal, scale
        self.projector = projector(dimension, hidden or dimension, projection, norm=False)

    def forward(self, views: Tensor) -> Output:
        features = [self.encode(view) for view in views]
        projected = [self.projector(e) for e in features]
        first, second = (standardise(z) for z in projected)
        loss = 1 - (unit(first) * unit(second)).sum(-1)
        batch_loss = self.scale * barlow_loss(first, second, self.off_diagonal)
        return Output(loss, torch.stack(features), torch.stack(projected), batch_loss)

    def distance(self, predictions: Tensor, targets: Tensor) -> Tensor:
        pairs = ((standardise(p), standardise(t)) for p, t in zip(predictions, targets.detach(), strict=True))
        return self.scale * torch.stack([barlow_loss(p, t, self.off_diagonal) for p, t in pairs]).mean()
