"""What every objective gives back, and the table of their names."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ocssl.registry import Registry


@dataclass(frozen=True)
class Output:
    """One forward pass over all views of a batch."""

    loss: Tensor  # [B] one value a sample; its mean is trained
    features: Tensor  # [V, B, D] encoder space F
    projected: Tensor  # [V, B, P] projector space P


class Objective(nn.Module):
    """An SSL loss with its heads around an encoder: views [V, B, 3, H, W] in, `Output` out. Never touches the memory.

    A subclass takes the encoder and the length of its features, its options as keyword-only arguments, makes its heads
    and defines `forward`. Each view is a pass of its own, so batch norm statistics are per view.
    """

    projector: nn.Module

    def __init__(self, encoder: nn.Module, dimension: int, projection: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dimension = dimension  # of features
        self.projection = projection  # of what the projector makes of them

    def forward(self, views: Tensor) -> Output:
        raise TypeError(f"{type(self).__name__} does not define forward")


OBJECTIVES: Registry[Objective] = Registry("objective")
