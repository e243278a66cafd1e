"""Every optimizer against its formula and against PyTorch's, and what it keeps and refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl._training.non_finite import Guard
from ocssl._training.optimizer import OPTIMIZERS, Optimizer
from ocssl.errors import CheckpointError
from ocssl.learner import Learner
from ocssl.settings import OptimizerSettings

COMMON: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
OWN: dict[str, dict[str, float]] = {  # options that are not the defaults
    "sgd": {},
    "lars-sgd": {"trust_coefficient": 0.2},
    "adamw": {"beta1": 0.8, "beta2": 0.95, "eps": 0.01},
}
Weights = dict[str, nn.Parameter]
Formula = Callable[[Tensor, Tensor, dict[str, Any]], Tensor]
SHAPES = {"early": (3, 8), "late": (3, 8), "bias": (8,)}


def made(name: str, own: dict[str, float] | None = None, **common: Any) -> tuple[Optimizer, Weights, Guard]:
    generator = torch.Generator().manual_seed(0)
    weights = {key: nn.Parameter(torch.randn(shape, generator=generator)) for key, shape in SHAPES.items()}
    guard = Guard(torch.device("cpu"))
    options = OptimizerSettings(name=name, **{**COMMON, **common})
    return OPTIMIZERS.build(name, OWN[name] if own is None else own, weights, options, guard), weights, guard


def walk(optimizer: Optimizer | torch.optim.Optimizer, weights: Weights, first: int = 0, last: int = 6) -> None:
    """Take steps on gradients that are the same every time; one parameter has its first gradient in the third."""
    for number in range(first, last):
        for key, gradient in slopes(number).items():
            weights[key].grad = gradient
        optimizer.step()


def slopes(number: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(100 + number)
    found = {key: torch.randn(shape, generator=generator) for key, shape in SHAPES.items()}
    return found if number >= 2 else {key: value for key, value in found.items() if key != "late"}


# ---- the formulas, one parameter and one step at a time, in float64 --------------------------------------------------


def sgd(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    state["momentum"] = 0.9 * state.get("momentum", 0) + gradient + 0.01 * weight
    return weight - 0.1 * state["momentum"]


def lars(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    if weight.ndim > 1:
        gradient = gradient + 0.01 * weight
        gradient = gradient * (0.2 * weight.square().sum().sqrt() / gradient.square().sum().sqrt())
    state["momentum"] = 0.9 * state.get("momentum", 0) + gradient
    return weight - 0.1 * state["momentum"]


def adamw(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    state["steps"] = state.get("steps", 0) + 1
    state["mean"] = 0.8 * state.get("mean", 0) + (1 - 0.8) * gradient
    state["square"] = 0.95 * state.get("square", 0) + (1 - 0.95) * gradient**2
    mean, square = state["mean"] / (1 - 0.8 ** state["steps"]), state["square"] / (1 - 0.95 ** state["steps"])
    return weight - 0.1 * 0.01 * weight - 0.1 * mean / (square.sqrt() + 0.01)


def lars_of_biases(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    return lars(weight[None], gradient[None], state)[0]


def lars_without_decay(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    return lars(weight, gradient - 0.01 * weight if weight.ndim > 1 else gradient, state)


def adam_with_coupled_decay(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    return adamw(weight, gradient + 0.01 * weight, state) + 0.1 * 0.01 * weight


def adamw_that_counts_from_one(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    state.setdefault("steps", 1)
    return adamw(weight, gradient, state)


def sgd_without_decay(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    return sgd(weight, gradient - 0.01 * weight, state)


def nesterov(weight: Tensor, gradient: Tensor, state: dict[str, Any]) -> Tensor:
    sgd(weight, gradient, state)
    return weight - 0.1 * (gradient + 0.01 * weight + 0.9 * state["momentum"])


def differences(name: str, formula: Formula) -> float:
    """The largest difference between an optimizer's numbers, state included, and those of a formula."""
    optimizer, weights, _ = made(name)
    wanted = {key: weight.detach().double() for key, weight in weights.items()}
    state: dict[str, dict[str, Any]] = {key: {} for key in weights}
    walk(optimizer, weights)
    for number in range(6):
        for key, gradient in slopes(number).items():
            wanted[key] = formula(wanted[key], gradient.double(), state[key])
    pairs = [(weights[key].detach(), wanted[key]) for key in weights]
    for key, kept in optimizer.state.items():
        assert kept.keys() == state[key].keys()
        pairs += [(kept[kind], torch.as_tensor(state[key][kind]).reshape(kept[kind].shape)) for kind in kept]
    return max(float((found.double() - other).abs().max()) for found, other in pairs)


@pytest.mark.parametrize(("name", "formula"), [("sgd", sgd), ("lars-sgd", lars), ("adamw", adamw)])
def test_it_takes_the_steps_of_the_formula_also_where_gradients_come_late(name: str, formula: Formula) -> None:
    assert differences(name, formula) < 1e-5


def test_every_optimizer_has_a_formula_here() -> None:
    assert set(OPTIMIZERS) == set(OWN)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("sgd", sgd_without_decay),
        ("sgd", nesterov),
        ("lars-sgd", sgd),
        ("lars-sgd", lars_of_biases),
        ("lars-sgd", lars_without_decay),
        ("adamw", adam_with_coupled_decay),
        ("adamw", adamw_that_counts_from_one),
    ],
)
def test_another_formula_would_be_noticed(name: str, formula: Formula) -> None:
    assert differences(name, formula) > 1e-4


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.01), (0.9, 0.0), (0.0, 0.01)])
def test_sgd_is_torchs_class_to_the_bit(momentum: float, decay: float) -> None:
    (optimizer, weights, _), (_, copies, _) = (made("sgd", momentum=momentum, weight_decay=decay) for _ in range(2))
    walk(optimizer, weights, 2)
    walk(torch.optim.SGD(copies.values(), 0.1, momentum, weight_decay=decay, fused=True), copies, 2)
    assert all(torch.equal(weights[key], copies[key]) for key in weights)


@pytest.mark.parametrize("decay", [0.01, 0.0])
def test_adamw_is_torchs_class_to_the_bit(decay: float) -> None:
    (optimizer, weights, _), (_, copies, _) = (made("adamw", {}, weight_decay=decay) for _ in range(2))
    walk(optimizer, weights, 2)
    walk(torch.optim.AdamW(copies.values(), 0.1, weight_decay=decay, fused=True), copies, 2)
    assert all(torch.equal(weights[key], copies[key]) for key in weights)


def test_a_step_of_lars_has_the_length_of_the_weights_whatever_the_gradient() -> None:
    for scale in (1e-3, 1.0, 1e3):
        optimizer, weights, _ = made("lars-sgd")
        before = weights["early"].detach().clone()
        weights["early"].grad = scale * slopes(0)["early"]
        optimizer.step()
        assert float((weights["early"].detach() - before).norm() / before.norm()) == pytest.approx(0.1 * 0.2, rel=1e-5)


def test_lars_takes_a_plain_step_where_a_norm_is_zero() -> None:
    optimizer, weights, _ = made("lars-sgd", weight_decay=0.0)
    with torch.no_grad():
        weights["early"].zero_()
    weights["early"].grad, weights["late"].grad = torch.ones(3, 8), torch.zeros(3, 8)
    before = weights["late"].detach().clone()
    optimizer.step()
    assert torch.equal(weights["early"], torch.full((3, 8), -0.1))
    assert torch.equal(weights["late"], before)


@pytest.mark.slow
def test_a_learner_learns_without_loading_torchs_compiler() -> None:
    program = (
        "import sys, torch, ocssl\n"
        "settings = {'encoder.name': 'resnet10', 'encoder.width': 2, 'objective.projection': 16}\n"
        "for name in ('sgd', 'lars-sgd', 'adamw'):\n"
        "    learner = ocssl.Learner('solar', image_size=8, settings={**settings, 'optimizer.name': name})\n"
        "    learner.partial_fit(torch.zeros(10, 3, 8, 8, dtype=torch.uint8))\n"
        "    assert learner.steps == 6\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_it_goes_on_from_its_saved_state_to_the_bit(name: str, forgets: bool) -> None:
    (one, weights, _), (other, copies, _) = made(name), made(name)
    walk(one, weights, 0, 3)
    with torch.no_grad():
        for key, copy in copies.items():
            copy.copy_(weights[key])
    if not forgets:
        other.load({key: tensor.clone() for key, tensor in one.tensors().items()})
    walk(one, weights, 3)
    walk(other, copies, 3)
    assert all(torch.equal(weights[key], copies[key]) for key in weights) != forgets


def test_the_names_of_what_is_saved() -> None:
    """Those of SGD stand in every checkpoint of earlier versions."""
    assert set(made("sgd")[0].tensors()) == {f"momentum.{key}" for key in SHAPES}
    assert set(made("lars-sgd")[0].tensors()) == {f"optimizer.momentum.{key}" for key in SHAPES}
    kinds = ("mean", "square", "steps")
    assert set(made("adamw")[0].tensors()) == {f"optimizer.{kind}.{key}" for kind in kinds for key in SHAPES}


def test_a_state_that_is_missing_is_not_passed_over() -> None:
    learner = small_learner("er-fifo", optimizer__name="adamw")
    learner.partial_fit(random_images(5))
    tensors = {name: tensor for name, tensor in learner.tensors().items() if not name.startswith("optimizer.square")}
    with pytest.raises(CheckpointError, match="does not fit"):
        Learner.restore(tensors, learner.facts())


def test_without_momentum_there_is_nothing_to_keep() -> None:
    optimizer, weights, _ = made("sgd", momentum=0.0, weight_decay=0.0)
    before = weights["early"].detach().clone()
    weights["early"].grad = torch.ones(3, 8)
    optimizer.step()
    assert optimizer.tensors() == {}
    torch.testing.assert_close(weights["early"].detach(), before - 0.1)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_it_takes_no_step_that_its_guard_has_refused(name: str, refused: bool) -> None:
    optimizer, weights, guard = made(name)
    walk(optimizer, weights, 0, 3)
    guard.at_once = False  # as on a device
    before = {key: tensor.detach().clone() for key, tensor in {**weights, **optimizer.tensors()}.items()}
    loss = torch.tensor(float("nan") if refused else 1.0)
    guard.watch_loss(loss, loss.expand(2), torch.arange(2), 0)
    for weight in weights.values():
        weight.grad = torch.full_like(weight, float("nan") if refused else 1.0)
    optimizer.step()
    for key, tensor in {**weights, **optimizer.tensors()}.items():
        assert torch.equal(tensor, before[key]) == refused, key


def test_a_step_that_does_not_ask_its_guard_would_be_noticed() -> None:
    optimizer, weights, guard = made("lars-sgd")
    optimizer._guard = Guard(torch.device("cpu"))  # another's
    guard.refused.fill_(1.0)
    before = weights["early"].detach().clone()
    walk(optimizer, weights, 0, 1)
    assert not torch.equal(weights["early"], before)
