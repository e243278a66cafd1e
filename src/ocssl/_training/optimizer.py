"""Optimizers: how weights move along their gradients. A new optimizer goes here."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from ocssl._core.registry import Registry
from ocssl._training.non_finite import Guard
from ocssl.settings import OptimizerSettings, Positive

Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimizer:
    """Moves named parameters; it takes no step once its guard has refused a loss.

    A subclass defines `start`, if it keeps state, and `update`, the formula of one parameter. What it returns takes
    effect only if the guard allows it, so an optimizer need not know the guard. Its options are keyword-only arguments;
    the learning rate, which a schedule moves, is `self.lr`, and the other common settings are in `self.settings`.
    """

    prefix: ClassVar[str] = "optimizer."  # of the names of its tensors in a checkpoint

    def __init__(self, parameters: Mapping[str, nn.Parameter], settings: OptimizerSettings, guard: Guard) -> None:
        self.parameters, self.settings, self.lr, self._guard = dict(parameters), settings, settings.lr, guard
        self.factors: dict[str, float] = {}  # on the learning rate of some parameters
        # Made at once: parameters may have their first gradient in different steps.
        self.state = {name: self.start(parameter) for name, parameter in self.parameters.items()}

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        """The tensors that are kept for a parameter, as they are before the first step."""
        return {}

    def update(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The new weight and the new state of a parameter; nothing that is given may be changed."""
        raise TypeError(f"{type(self).__name__} does not define update")

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        groups: dict[float, list[str]] = {}  # names of parameters that have a gradient, by the factor on their rate
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                groups.setdefault(self.factors.get(name, 1.0), []).append(name)
        rate = self.lr
        try:
            for factor, names in groups.items():
                self.lr = rate * factor
                self.step_group(names)
        finally:
            self.lr = rate

    def step_group(self, names: list[str]) -> None:
        """Move parameters that have gradients and share the learning rate `self.lr`."""
        refused = self._guard.refused > 0
        for weight, gradient, state in zip(*self._columns(names), strict=True):
            moved, changed = self.update(weight, gradient, state)
            for old, new in [(weight, moved), *((state[name], new) for name, new in changed.items())]:
                old.copy_(torch.where(refused, old, new))

    def _columns(self, names: list[str]) -> tuple[list[Tensor], list[Tensor], list[dict[str, Tensor]]]:
        """Parameters, their gradients and their states."""
        found = [self.parameters[name] for name in names]
        gradients = [p.grad for p in found if p.grad is not None]
        return list(found), gradients, [self.state[name] for name in names]

    def _common(self) -> dict[str, Any]:
        """What torch's fused optimizers take: a step is skipped where the guard has refused the loss."""
        refused, decay = self._guard.refused, self.settings.weight_decay
        return {"lr": self.lr, "weight_decay": decay, "maximize": False, "fused": True, "found_inf": refused}

    def tensors(self) -> dict[str, Tensor]:
        """The whole state, by the names that it is saved under."""
        return {f"{self.prefix}{kind}.{name}": t for name, kept in self.state.items() for kind, t in kept.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a saved state, which stands among these tensors."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])


OPTIMIZERS: Registry[Optimizer] = Registry("optimizer")


@OPTIMIZERS.add("sgd")
class SGD(Optimizer):
    """Stochastic gradient descent with momentum: the paper's optimizer.

    Steps are those of `torch.optim.SGD`, by the function beneath it: making the class itself loads torch's compiler,
    which takes a process two seconds and 70 MiB.
    """

    prefix = ""  # momentum.NAME

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        return {"momentum": _zeros(parameter)} if self.settings.momentum else {}

    def step_group(self, names: list[str]) -> None:
        weights, gradients, states = self._columns(names)
        momenta = [state.get("momentum") for state in states]
        momentum = self.settings.momentum
        sgd(weights, gradients, momenta, momentum=momentum, dampening=0.0, nesterov=False, **self._common())


@OPTIMIZERS.add("lars-sgd")
class LarsSGD(Optimizer):
    """SGD with layer-wise adaptive rates for large batches (You et al. 2017), as SimCLR and BYOL use it.

    The step of a layer is `trust_coefficient` times the norm of its weights, whatever the norm of its gradient. Biases
    and batch norm take plain steps without weight decay.
    """

    def __init__(self, *wiring: Any, trust_coefficient: Positive = 0.001) -> None:
        super().__init__(*wiring)
        self.trust_coefficient = trust_coefficient

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        return {"momentum": _zeros(parameter)}

    def update(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        if weight.ndim > 1:
            gradient = gradient + self.settings.weight_decay * weight
            length, slope = weight.norm(), gradient.norm()
            gradient = gradient * torch.where(length * slope > 0, self.trust_coefficient * length / slope, 1.0)
        momentum = self.settings.momentum * state["momentum"] + gradient
        return weight - self.lr * momentum, {"momentum": momentum}


@OPTIMIZERS.add("adamw")
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019); its rates are near 0.001, not SGD's 0.05."""

    def __init__(self, *wiring: Any, beta1: Beta = 0.9, beta2: Beta = 0.999, eps: Positive = 1e-8) -> None:
        super().__init__(*wiring)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def start(self, parameter: Tensor) -> dict[str, Tensor]:
        steps = torch.zeros((), device=parameter.device)
        return {"mean": _zeros(parameter), "square": _zeros(parameter), "steps": steps}

    def step_group(self, names: list[str]) -> None:
        weights, gradients, states = self._columns(names)
        means, squares, steps = ([state[name] for state in states] for name in ("mean", "square", "steps"))
        betas: dict[str, Any] = {"beta1": self.beta1, "beta2": self.beta2}
        adamw(weights, gradients, means, squares, [], steps, amsgrad=False, eps=self.eps, **betas, **self._common())


def _zeros(parameter: Tensor) -> Tensor:
    """Like a parameter; on the meta device `zeros_like` imports a compiler, which takes seconds."""
    if parameter.is_meta:
        return torch.empty_strided(parameter.shape, parameter.stride(), device="meta")
    return torch.zeros_like(parameter)
