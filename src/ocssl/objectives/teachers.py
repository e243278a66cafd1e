"""Teachers: copies of a network that no optimizer trains, for momentum targets, snapshots and distillation."""

from __future__ import annotations

from copy import deepcopy
from typing import Protocol

import torch
from torch import Tensor, nn


class Network(Protocol):
    """An encoder and its projector: an objective, or another teacher."""

    encoder: nn.Module
    projector: nn.Module


class Teacher(nn.Module):
    """A copy of an encoder and its projector. Its weights come from `take` and `follow` alone.

    With `live` its batch norm uses the statistics of the batch, as that of a momentum network; without, it stays in
    eval mode for good, as a frozen network does.
    """

    def __init__(self, network: Network, *, live: bool) -> None:
        super().__init__()
        self.live = live
        self.encoder = deepcopy(network.encoder)
        self.projector = deepcopy(network.projector)
        self.requires_grad_(False)
        self.train(live)

    def train(self, mode: bool = True) -> Teacher:
        super().train(mode and self.live)
        return self

    @torch.no_grad()
    def take(self, network: Network) -> None:
        """Become an exact copy, batch norm statistics included."""
        self.encoder.load_state_dict(network.encoder.state_dict())
        self.projector.load_state_dict(network.projector.state_dict())

    @torch.no_grad()
    def follow(self, network: Network, momentum: float) -> None:
        """Move towards the network: weights <- momentum x own + (1 - momentum) x network's. Parameters only."""
        own: list[Tensor] = [*self.encoder.parameters(), *self.projector.parameters()]
        new: list[Tensor] = [*network.encoder.parameters(), *network.projector.parameters()]
        torch._foreach_lerp_(own, new, 1 - momentum)

    @torch.no_grad()
    def features(self, views: Tensor) -> Tensor:
        """Encoder space: [V, B, 3, H, W] -> [V, B, D]; every view is a separate pass."""
        return torch.stack([self.encoder(view) for view in views])

    @torch.no_grad()
    def forward(self, views: Tensor) -> Tensor:
        """Projector space: [V, B, 3, H, W] -> [V, B, P]; every view is a separate pass."""
        return torch.stack([self.projector(self.encoder(view)) for view in views])
