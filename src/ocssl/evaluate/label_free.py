"""Measures of a representation that need no labels: RankMe, LiDAR, Overlap of centred features, instance@1.

All take features of a few hundred images and are computed in float64. `measures` is what a run records of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.errors import DataError
from ocssl.evaluate import feature_arrays
from ocssl.evaluate.feature_arrays import Floats
from ocssl.evaluate.latent_metrics import alignment, uniformity
from ocssl.evaluate.overlap_metric import overlap_count

TINY = 1e-7  # added to every share, as in RankMe and LiDAR
RIDGE = 1e-4  # on the diagonal of LiDAR's within-image covariance, as in its paper
MOST_VALUES = 2**23  # of views that a run keeps for these measures: 32 MB


def rankme(features: Floats) -> float:
    """RankMe (Garrido et al., 2023) of features [n, d]: exp of the entropy of their singular values, as shares.

    Features are neither centred nor divided by their lengths. From 1, all on a line, to min(n, d); 0 of zeros.
    """
    return _smooth_rank(torch.linalg.svdvals(_wide("features", features, "[n, d]")))


def lidar(views: Floats) -> float:
    """LiDAR (Thilak et al., 2024) of views [n, v, d]: the smooth rank of a linear discriminant between images.

    Each image is a class and its views are the class's samples: the eigenvalues of W^-1/2 B W^-1/2, B the covariance
    between images and W that within them plus 1e-4. From 1 to min(n - 1, d); 0 where all images are alike.
    """
    given = _wide("views", views, "[n, v, d]")
    n, v, d = given.shape
    if v < 2 or n < 2:
        raise DataError(f"views has {n} images and {v} views of each: wanted at least 2 of both.")
    means = given.mean(1)
    around = (given - means[:, None]).flatten(0, 1)
    within = around.T @ around / (n * v) + RIDGE * torch.eye(d, dtype=given.dtype, device=given.device)
    values, vectors = torch.linalg.eigh(within)
    between = (means - means.mean(0)) @ (vectors / values.clamp_min(RIDGE).sqrt())  # [n, d] whitened
    return _smooth_rank(torch.linalg.svdvals(between).square())


def centred_overlap(views: Floats) -> float:
    """Overlap count of views [n, v, d] minus their common mean.

    A direction that all features share makes every angle between images small; without it, Overlap is about what tells
    images apart.
    """
    given = _wide("views", views, "[n, v, d]")
    return overlap_count(given - given.mean((0, 1)))


def instance_at_1(views: Floats) -> float:
    """Share of images whose first view is nearest, by cosine, to their own second view among all second views.

    Of views [n, v, d], v >= 2; chance is 1/n. Where t views are equally near and the own one is among them, it counts
    as 1/t: features that are all the same score as chance does.
    """
    given = _wide("views", views, "[n, v, d]")
    if given.shape[1] < 2:
        raise DataError(f"views has {given.shape[1]} view of each image: wanted at least 2.")
    queries, keys = (feature_arrays.unit_rows(given[:, view]) for view in (0, 1))
    cosines = queries @ keys.T
    own, best = cosines.diagonal(), cosines.amax(1)
    tied = (cosines >= best[:, None] - 1e-12).sum(1)
    return float(torch.where(own >= best - 1e-12, 1 / tied, 0.0).mean())


def measures(views: Tensor) -> dict[str, float | None]:
    """All of them, with alignment and uniformity, of views [n, v, d]; None where too few images could be used."""
    if len(views) < 2:
        return dict.fromkeys(("rankme", "lidar", "centred_overlap", "instance_at_1", "alignment", "uniformity"))
    means = views.mean(1)
    return {
        "rankme": rankme(means),
        "lidar": lidar(views),
        "centred_overlap": centred_overlap(views),
        "instance_at_1": instance_at_1(views),
        "alignment": alignment(views),
        "uniformity": uniformity(means),
    }


def _wide(name: str, values: Floats, shape: str) -> Tensor:
    return feature_arrays.float_tensor(name, values, shape).double()


def _smooth_rank(values: Tensor) -> float:
    """Exp of the entropy of values >= 0 as shares of their sum; 0 where all are 0."""
    total = values.sum()
    if total <= 0:
        return 0.0
    shares = values / total + TINY
    return float((-(shares * shares.log()).sum()).exp())
