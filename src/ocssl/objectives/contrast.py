"""Cosines and the contrastive loss that all contrastive methods share, with masks instead of special cases."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl._core.angles import unit


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
