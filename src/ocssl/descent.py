"""The optimizer of a learner."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ocssl.finite import Guard
from ocssl.settings import OptimizerSettings


class Descent(torch.optim.SGD):
    """SGD over named parameters; it takes no step once its guard has refused a loss."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], options: OptimizerSettings, guard: Guard) -> None:
        super().__init__(
            parameters.values(), options.lr, options.momentum, weight_decay=options.weight_decay, fused=True
        )
        self.parameters = dict(parameters)
        self.found_inf = guard.refused  # what fused optimizers ask before a step
        if options.momentum:  # made at once: parameters may have their first gradient in different steps
            for parameter in self.parameters.values():
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def momenta(self) -> dict[str, Tensor]:
        """The momentum of each parameter by its name; empty without momentum."""
        return {name: buffer for name, p in self.parameters.items() for buffer in self.state[p].values()}

    def load_momenta(self, momenta: Mapping[str, Tensor]) -> None:
        for name, momentum in momenta.items():
            self.state[self.parameters[name]]["momentum_buffer"].copy_(momentum)
