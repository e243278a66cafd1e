"""Learners as a benchmark wants them: of any method, with a full memory, one step a stream minibatch."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl import recipes
from ocssl.cost.passes import fill
from ocssl.learner import Learner

ROWS, STREAM = 138, 10  # samples of a step, and how many of them are new


def ready(method: str, width: int, size: int, **settings: object) -> Learner:
    """A learner whose memory is full and which, if it is told of boundaries, is past its first.

    A name that is no method is an objective, which then takes SimSiam's place in FIFO replay. One pass, so that what a
    method does once a minibatch counts in full.
    """
    chosen: dict[str, object] = {"encoder.width": width, "schedule.passes": 1, **settings}
    if method not in recipes.methods():
        method, chosen["objective.name"] = "er-fifo", method
    learner = Learner(method, image_size=size, settings=chosen)
    fill(learner)
    if learner.settings.schedule.boundaries:
        learner.boundary()
    return learner


def noise(n: int, size: int, generator: torch.Generator) -> Tensor:
    """Random images: uint8 [n, 3, size, size]."""
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


def arriving(learner: Learner, generator: torch.Generator) -> Tensor:
    """One stream minibatch for this learner. Recipes without a memory take all their rows from the stream."""
    return noise(ROWS if learner.settings.schedule.stream_batch == ROWS else STREAM, learner.image_size, generator)
