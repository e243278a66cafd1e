"""SimCLR (Chen et al., 2020): each view is to find the other among all views of the batch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ocssl.objectives.contrast import contrast, cosines, other_view, others
from ocssl.objectives.heads import projector
from ocssl.objectives.objective import OBJECTIVES, Objective, Output
from ocssl.settings import Positive, Size

DISTANCE_TEMPERATURE = 0.2  # CaSSLe's, whatever temperature the objective itself has


def simclr_loss(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """-log softmax of the other view among all 2B - 1 other rows, averaged over a sample's two: [B, P] x 2 -> [B]."""
    rows = torch.cat([z1, z2])
    n, device = len(rows), rows.device
    losses = contrast(cosines(rows, rows) / temperature, other_view(n, device), others(n, device))
    return losses.view(2, n // 2).mean(0)


def contrastive_distance(prediction: Tensor, target: Tensor) -> Tensor:
    """Each prediction is to find its row among all targets, each target its own among all predictions: scalar."""
    logits = cosines(prediction, target.detach()) / DISTANCE_TEMPERATURE
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    return (contrast(logits, own, ~own) + contrast(logits.T, own, ~own)).mean() / 2


@OBJECTIVES.add("simclr")
class SimCLR(Objective):
    """SimCLR: each view is to find the other among all views of the batch. Loss from 0 up, exact per sample.

    The loss grows with the logarithm of the batch: those of batches of different size are not comparable.
    """

    contrastive: ClassVar[bool] = True

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        temperature: Positive = 0.5,
        hidden: Size | None = None,  # of the projector; None: as wide as the features
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.temperature = temperature
        self.projector = projector(dimension, hidden or dimension, projection)

    def forward(self, views: Tensor) -> Output:
        features = [self.encode(view) for view in views]
        first, second = (self.projector(e) for e in features)
        loss = simclr_loss(first, second, self.temperature)
        return Output(loss, torch.stack(features), torch.stack([first, second]))

    def distance(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return contrastive_distance(predictions.flatten(0, 1), targets.flatten(0, 1))
