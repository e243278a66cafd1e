"""The contrastive loss that all contrastive methods share, with masks instead of special cases, and SimCLR.

SimCLR (Chen et al., 2020): each view is to find the other among all views of the batch.
"""

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl.objectives.objective import OBJECTIVES, Objective, Output, projector
from ocssl.settings import Positive, Size

DISTANCE_TEMPERATURE = 0.2  # CaSSLe's, whatever temperature the objective itself has


def contrast(logits: Tensor, positive: Tensor, candidates: Tensor) -> Tensor:
    """-log of the softmax over each row's candidates, averaged over the row's positives: [N, M] -> [N].

    `positive` and `candidates` are boolean [N, M]; positives count as candidates. A row without positives gives 0.
    """
    allowed = candidates | positive
    scores = logits.float()
    # a row without candidates has nothing to normalise over: any finite number will do, its loss is 0
    total = torch.where(allowed.any(1, keepdim=True), scores.masked_fill(~allowed, -torch.inf), 0.0).logsumexp(1)
    losses = (total[:, None] - scores).masked_fill(~positive, 0.0).sum(1)
    return losses / positive.sum(1).clamp_min(1)


def others(n: int, device: torch.device) -> Tensor:
    """Every pair but that of a row with itself: boolean [n, n]."""
    return ~torch.eye(n, dtype=torch.bool, device=device)


def other_view(n: int, device: torch.device) -> Tensor:
    """Each row with the other view of its sample, where the second half are the other views of the first: [n, n]."""
    return torch.eye(n, dtype=torch.bool, device=device).roll(n // 2, 1)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosines row by row, float32: [..., D], [..., D] -> [...]. A zero vector gives 0."""
    return (unit(a.float()) * unit(b.float())).sum(-1)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of every row of a with every row of b, float32 under autocast too: [N, D], [M, D] -> [N, M]."""
    with torch.autocast(a.device.type, enabled=False):
        return unit(a.float()) @ unit(b.float()).T


def mean(losses: Tensor) -> Tensor:
    """The mean, and 0 of no rows at all: [N] -> scalar."""
    return losses.sum() / max(1, len(losses))


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
    """SimCLR: finds the other view of an image among all views of the batch. Loss from 0 up, exact per sample.

    The loss grows with the logarithm of the batch: those of batches of different size are not comparable.
    """

    contrastive = True

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
