"""Images seen through many random views: what Deviation and Overlap are measured on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ocssl._core.random import evaluating
from ocssl.data import Part
from ocssl.errors import DataError
from ocssl.evaluate.latent import alignment, deviation, overlap_count_from, sample_angles
from ocssl.learner import Learner

IMAGES_AT_ONCE = 32  # times the number of views: what is encoded in one go


@dataclass(frozen=True)
class Samples:
    """What random views say of a set of images, the network in eval mode."""

    deviation: float  # mean over the images, projector space
    overlap: float  # share of pairs whose balls meet, encoder space
    alignment: float  # mean squared distance between views of an image, encoder space
    means: Tensor  # [n, d] mean feature of each image
    angles: Tensor  # [n] radius of each image's ball, radians


@torch.no_grad()
def measure_samples(learner: Learner, part: Part, views: int, generator: torch.Generator) -> Samples:
    """Encode `views` views of every image of a part; memory is that of a block and of one mean feature an image."""
    deviations, means, angles, alignments = [], [], [], []
    encoder, projector = learner.encoder, learner.objective.projector
    with evaluating(learner.network):
        for images, _ in part.walk(torch.arange(len(part)).split(IMAGES_AT_ONCE)):
            if not len(images):
                continue
            batch = learner.views(images.to(learner.device), generator, views).flatten(0, 1)  # [V b, 3, S, S]
            encoded = encoder(batch).float()
            projected = projector(encoded).float()
            by_sample = encoded.unflatten(0, (views, -1)).transpose(0, 1)  # [b, V, D]
            deviations.append(deviation(projected.unflatten(0, (views, -1)).transpose(0, 1), per_sample=True))
            means.append(by_sample.mean(1))
            angles.append(torch.as_tensor(sample_angles(by_sample)))
            alignments += [alignment(by_sample)] * len(images)
    if not means:
        raise DataError("no image could be used to measure Deviation and Overlap on.")
    centres, radii = torch.cat(means), torch.cat(angles)
    return Samples(
        float(torch.cat([torch.as_tensor(values) for values in deviations]).mean()),
        overlap_count_from(centres, radii),
        float(np.mean(alignments)),
        centres.cpu(),
        radii.cpu(),
    )
