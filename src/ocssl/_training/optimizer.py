"""The optimizer of a learner."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from ocssl._core.nonfinite import Guard
from ocssl.settings import OptimizerSettings


class Descent:
    """SGD over named parameters; it takes no step once its guard has refused a loss.

    Steps are those of `torch.optim.SGD`, by the function beneath it: making the class itself loads torch's compiler,
    which takes a process two seconds and 70 MiB.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], options: OptimizerSettings, guard: Guard) -> None:
        self.parameters = dict(parameters)
        self.lr = options.lr
        self._momentum, self._weight_decay, self._guard = options.momentum, options.weight_decay, guard
        # Made at once: parameters may have their first gradient in different steps.
        self._moved = {name: torch.zeros_like(p) for name, p in self.parameters.items() if options.momentum}

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        found = [(name, p, p.grad) for name, p in self.parameters.items() if p.grad is not None]
        sgd(
            [parameter for _, parameter, _ in found],
            [gradient for _, _, gradient in found],
            [self._moved.get(name) for name, _, _ in found],
            fused=True,
            found_inf=self._guard.refused,
            weight_decay=self._weight_decay,
            momentum=self._momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def momenta(self) -> dict[str, Tensor]:
        """The momentum of each parameter by its name; empty without momentum."""
        return dict(self._moved)

    def load_momenta(self, momenta: Mapping[str, Tensor]) -> None:
        for name, momentum in momenta.items():
            self._moved[name].copy_(momentum)
