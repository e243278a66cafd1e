"""Objectives of many small patches: EMP-SSL (Tong et al., 2023) and CMP (Cignoni et al., 2025).

All patches go through the network in one pass, so that batch norm statistics are joint. How large a patch is, the
view settings say: `views.crop_scale`.
"""

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl.objectives.objective import OBJECTIVES, Objective, Output, predictor, projector
from ocssl.settings import Positive, Size, Weight


def coding_rate(z: Tensor, eps: float) -> Tensor:
    """How much space the rows take: 1/2 logdet(I + d / (m eps) Z^T Z) of each Z, [V, m, d] -> [V].

    The papers' TCR is this with a minus sign. The smaller of Z Z^T and Z^T Z has the same determinant; in float64 it is
    safe even for long rows that are all alike.
    """
    rows, (m, d) = z.double(), z.shape[-2:]
    gram = rows @ rows.mT if m < d else rows.mT @ rows
    identity = torch.eye(min(m, d), dtype=rows.dtype, device=rows.device)
    logdet: Tensor = torch.linalg.slogdet(identity + d / (m * eps) * gram).logabsdet
    return 0.5 * logdet.float()


class Patches(Objective):
    """What the two have in common: many views, one pass."""

    per_sample = "surrogate"
    lowest = -1.0

    def together(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Features [V, B, D] and projections [V, B, P]."""
        features = self.encode(views.flatten(0, 1))
        projected = self.projector(features)
        return features.unflatten(0, views.shape[:2]), projected.unflatten(0, views.shape[:2])


@OBJECTIVES.add("emp-ssl")
class EMPSSL(Patches):
    """EMP-SSL: many patches of an image agree with their mean, and images fill the space. One loss for the batch.

    The value of a sample is minus the mean cosine of its projections with their mean, all normalised.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        patches: Size = 20,
        invariance: Weight = 200.0,  # weight of the agreement
        rate: Weight = 1.0,  # weight of the coding rate
        eps: Positive = 0.2,  # distortion of the coding rate
        hidden: Size | None = None,  # of the projector; None: as wide as the features
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.views = patches
        self.invariance, self.rate, self.eps = invariance, rate, eps
        self.projector = projector(dimension, hidden or dimension, projection)

    def forward(self, views: Tensor) -> Output:
        features, projected = self.together(views)
        z = unit(projected.float())
        loss = -(z * unit(z.mean(0))).sum(-1).mean(0)
        batch_loss = self.invariance * loss.mean() - self.rate * coding_rate(z, self.eps).mean()
        return Output(loss, features, projected, batch_loss)


@OBJECTIVES.add("cmp")
class CMP(Patches):
    """CMP: the prediction from each patch meets the image's mean projection, and images fill the space.

    One loss for the batch, from SimSiam: the mean is a constant. The value of a sample is minus the mean cosine of its
    predictions with it.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        patches: Size = 20,
        alignment: Weight = 100.0,  # weight of the agreement
        rate: Weight = 3.0,  # weight of the coding rate
        eps: Positive = 0.2,  # distortion of the coding rate
        hidden: Size | None = None,  # of the projector; None: as wide as the features
        bottleneck: Size | None = None,  # of the predictor; None: a quarter of the projection
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.views = patches
        self.alignment, self.rate, self.eps = alignment, rate, eps
        self.projector = projector(dimension, hidden or dimension, projection)
        self.predictor = predictor(projection, bottleneck)

    def forward(self, views: Tensor) -> Output:
        features, projected = self.together(views)
        predicted = self.predictor(projected.flatten(0, 1)).unflatten(0, views.shape[:2])
        mean = unit(projected.float().mean(0).detach())
        loss = -(unit(predicted.float()) * mean).sum(-1).mean(0)
        batch_loss = self.alignment * loss.mean() - self.rate * coding_rate(projected, self.eps).mean()
        return Output(loss, features, projected, batch_loss)
