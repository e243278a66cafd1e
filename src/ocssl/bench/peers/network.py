"""The network as most code has it: tensors and weights in NCHW, so that batch norm and convolutions walk planes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ocssl.bench.timing import Work
from ocssl.learner import Learner


def in_planes(work: Callable[[Learner], Work], learner: Learner) -> Work:
    """The same work of the same learner in NCHW."""
    learner.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    see = learner._see
    learner._see = lambda images: see(images).contiguous()  # type: ignore[method-assign]
    return work(learner)
