"""The learner's answers to rules that ask for more than stored statistics: MIR and GSS."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ocssl._core.random import evaluating, frozen_statistics, single_sample
from ocssl.objectives import Objective, Output
from ocssl.views import Views


class LearnerContext:
    """Answers about the network as it is now, for the current stream minibatch. See `ocssl.memory.Context`."""

    def __init__(
        self, objective: Objective, views: Views, generator: torch.Generator, stream: Tensor, lr: float
    ) -> None:
        self._objective, self._views, self._generator = objective, views, generator
        self._stream, self._lr = stream, lr

    def loss_increase(self, images: Tensor) -> Tensor:
        objective = self._objective
        weights = [p for p in objective.parameters() if p.requires_grad]
        seen, asked = self._see(self._stream), self._see(images)
        with frozen_statistics(objective):
            with single_sample(objective, len(self._stream) == 1):
                loss = objective(*seen).total(seen[0].new_ones(len(self._stream)))
            slopes = torch.autograd.grad(loss, weights, materialize_grads=True)
            with torch.no_grad(), single_sample(objective, len(images) == 1):
                before: Output = objective(*asked)
                with _moved(weights, slopes, -self._lr):
                    after: Output = objective(*asked)
        return after.loss - before.loss

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        """In eval mode. Where samples matter to one another's losses all batches are one, for negatives or means."""
        objective, weights = self._objective, last_layers(self._objective)
        sizes = [len(images) for images in batches]
        crops = self._see(torch.cat(list(batches)))
        together = objective.contrastive or objective.per_sample != "exact"
        rows = crops[0].new_empty(len(sizes), sum(w.numel() for w in weights))
        with evaluating(objective):
            if together:
                losses = iter(objective(*crops).loss.split(sizes))
            else:
                parts = zip(*(views.split(sizes, dim=1) for views in crops), strict=True)
                losses = (objective(*part).loss for part in parts)
            for row, loss in zip(rows, losses, strict=True):
                slopes = torch.autograd.grad(loss.mean(), weights, retain_graph=together, materialize_grads=True)
                torch.cat([slope.flatten() for slope in slopes], out=row)
        return rows

    def _see(self, images: Tensor) -> tuple[Tensor, ...]:
        return self._views.crops(images, self._generator, self._objective.views)


@contextmanager
def _moved(weights: Sequence[nn.Parameter], direction: Sequence[Tensor], distance: float) -> Iterator[None]:
    """Other values for a while; the weights themselves come back untouched. Right for layers in two places, too."""
    own = [weight.data for weight in weights]
    try:
        for weight, slope in zip(weights, direction, strict=True):
            weight.data = weight.data + distance * slope
        yield
    finally:
        for weight, values in zip(weights, own, strict=True):
            weight.data = values


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
