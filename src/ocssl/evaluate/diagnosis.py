"""The latent space of an encoder on a set of images: all of the paper's signs of health in one look."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ocssl._core.random import generator_for
from ocssl.data import Part
from ocssl.evaluate.features import encode
from ocssl.evaluate.latent import spectrum, uniformity
from ocssl.evaluate.view_samples import measure_samples
from ocssl.learner import Learner


@dataclass(frozen=True)
class Shape:
    """How plain features fill their space, encoder space."""

    samples: int
    uniformity: float | None  # lower is more uniform, 0 a collapse to one point; None for a single image
    effective_rank: float
    auc: float  # mean of `cev`: near 1 when few directions carry everything
    singular_values: list[float] = field(repr=False)
    normalised: list[float] = field(repr=False)  # divided by the largest
    cev: list[float] = field(repr=False)  # cumulative explained variance


@dataclass(frozen=True)
class Diagnosis:
    """What random views and plain features say of the same images."""

    deviation: float  # projector space
    overlap: float  # share of pairs whose balls meet, encoder space
    alignment: float  # mean squared distance between views of an image, encoder space
    views: int
    shape: Shape


def diagnose(learner: Learner, part: Part, samples: int, views: int, seed: int) -> Diagnosis:
    """Measure the latent space on so many images of a part (0: all), chosen by the seed."""
    part = some(part, samples, seed)
    seen = measure_samples(learner, part, views, generator_for(seed, "diagnose views"))
    return Diagnosis(seen.deviation, seen.overlap, seen.alignment, views, shape(learner, part))


def shape(learner: Learner, part: Part) -> Shape:
    """Spectrum and uniformity of the features of plain images."""
    features = encode(learner, part).x
    found = spectrum(features)
    return Shape(
        len(features),
        uniformity(features) if len(features) > 1 else None,
        found.effective_rank,
        found.auc,
        found.values.tolist(),
        found.normalised.tolist(),
        found.cev.tolist(),
    )


def some(part: Part, samples: int, seed: int) -> Part:
    """So many images of a part, chosen by the seed, in the part's order; 0: all."""
    if not samples or samples >= len(part):
        return part
    chosen = torch.randperm(len(part), generator=generator_for(seed, "diagnose"))[:samples]
    return part.subset(chosen.sort().values)
