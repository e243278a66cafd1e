"""The learner's answers to rules that ask for more than stored statistics: MIR and GSS."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ocssl.objectives import Objective, Output
from ocssl.views import Views
from ocssl.weights import evaluating, frozen_statistics, single_sample


class LearnerContext:
    """Answers about the network as it is now, for the current stream minibatch. See `ocssl.memory.Context`."""

    def __init__(
        self, objective: Objective, views: Views, generator: torch.Generator, stream: Tensor, lr: float
    ) -> None:
        self._objective, self._views, self._generator = objective, views, generator
        self._stream, self._lr = stream, lr

    def loss_increase(self, images: Tensor) -> Tensor:
        objective = self._objective
        weights = {name: p for name, p in objective.named_parameters() if p.requires_grad}
        seen, asked = self._see(self._stream), self._see(images)
        with frozen_statistics(objective):
            with single_sample(objective, len(self._stream) == 1):
                loss = objective(seen).loss.mean()
            slopes = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            with torch.no_grad(), single_sample(objective, len(images) == 1):
                moved = {
                    name: weight if slope is None else weight - self._lr * slope
                    for (name, weight), slope in zip(weights.items(), slopes, strict=True)
                }
                after: Output = functional_call(objective, moved, (asked,))
                increase: Tensor = after.loss - objective(asked).loss
        return increase

    def gradients(self, images: Tensor) -> Tensor:
        objective, weights = self._objective, last_layers(self._objective)
        with evaluating(objective):  # samples are independent of one another
            losses = objective(self._see(images)).loss
        rows = []
        for loss in losses:
            slopes = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            parts = [torch.zeros_like(w) if s is None else s for w, s in zip(weights, slopes, strict=True)]
            rows.append(torch.cat([part.flatten() for part in parts]))
        return torch.stack(rows)

    def _see(self, images: Tensor) -> Tensor:
        return self._views(images, self._generator, self._objective.views)


def last_layers(objective: Objective) -> list[nn.Parameter]:
    """Trained weights of the projector and of the encoder's last layer or block that has any."""
    children = [objective.encoder]
    while len(children) == 1 or isinstance(children[-1], nn.Sequential):  # into the last of the stages
        below = [m for m in children[-1].children() if any(p.requires_grad for p in m.parameters())]
        if not below:
            break
        children = below
    parts = [children[-1], objective.projector]
    return [p for part in parts for p in part.parameters() if p.requires_grad]
