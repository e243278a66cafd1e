"""What a rule may ask of the learner: answers about losses and gradients, never the network itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Context(Protocol):
    """Questions about images, uint8 [n, 3, H, W]. Asking changes no weights, momentum or batch norm statistics."""

    def loss_increase(self, images: Tensor) -> Tensor:
        """How much the loss of each image would rise by a plain SGD step on the stream minibatch alone: [n]."""
        ...

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        """The gradient of each batch's mean loss for the last layers, one row a batch: [n, d]."""
        ...
