"""The optimizer of a learner against the formula, and what it keeps and refuses."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from ocssl._core.nonfinite import Guard
from ocssl._training.optimizer import Descent
from ocssl.settings import OptimizerSettings

OPTIONS = OptimizerSettings(lr=0.1, momentum=0.9, weight_decay=0.01)


def made(options: OptimizerSettings = OPTIONS) -> tuple[Descent, dict[str, nn.Parameter], Guard]:
    generator = torch.Generator().manual_seed(0)
    weights = {name: nn.Parameter(torch.randn(3, 8, generator=generator)) for name in ("early", "late")}
    guard = Guard(torch.device("cpu"))
    return Descent(weights, options, guard), weights, guard


def gradients(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 8, generator=torch.Generator().manual_seed(1))


def test_it_takes_the_steps_of_the_formula_also_where_gradients_come_late() -> None:
    optimizer, weights, _ = made()
    wanted = {name: weight.detach().double() for name, weight in weights.items()}
    moved = {name: torch.zeros(3, 8, dtype=torch.float64) for name in weights}
    for number, gradient in enumerate(gradients(5)):
        for name, weight in weights.items():
            weight.grad = gradient.clone() if name == "early" or number >= 2 else None
            if weight.grad is not None:
                moved[name] = 0.9 * moved[name] + gradient.double() + 0.01 * wanted[name]
                wanted[name] = wanted[name] - 0.1 * moved[name]
        optimizer.step()
    for name, weight in weights.items():
        torch.testing.assert_close(weight.detach().double(), wanted[name], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(optimizer.momenta()[name].double(), moved[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.01), (0.9, 0.0), (0.0, 0.01)])
def test_its_steps_are_those_of_torchs_class_to_the_bit(momentum: float, decay: float) -> None:
    options = OptimizerSettings(lr=0.1, momentum=momentum, weight_decay=decay)
    (optimizer, weights, _), (_, copies, _) = made(options), made(options)
    theirs = torch.optim.SGD(copies.values(), 0.1, momentum, weight_decay=decay, fused=True)
    for gradient in gradients(5):
        for weight in (*weights.values(), *copies.values()):
            weight.grad = gradient.clone()
        optimizer.step()
        theirs.step()
    assert all(torch.equal(weights[name], copies[name]) for name in weights)


@pytest.mark.slow
def test_a_learner_learns_without_loading_torchs_compiler() -> None:
    program = (
        "import sys, torch, ocssl\n"
        "settings = {'encoder.name': 'resnet10', 'encoder.width': 2, 'objective.projection': 16}\n"
        "learner = ocssl.Learner('solar', image_size=8, settings=settings)\n"
        "learner.partial_fit(torch.zeros(10, 3, 8, 8, dtype=torch.uint8))\n"
        "assert learner.steps == 6\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_it_goes_on_from_its_momenta_to_the_bit() -> None:
    (one, weights, _), (other, copies, _) = made(), made()
    for gradient in gradients(4)[:2]:
        for weight in weights.values():
            weight.grad = gradient.clone()
        one.step()
    with torch.no_grad():
        for name, copy in copies.items():
            copy.copy_(weights[name])
    other.load_momenta({name: momentum.clone() for name, momentum in one.momenta().items()})
    for optimizer, held in ((one, weights), (other, copies)):
        for gradient in gradients(4)[2:]:
            for weight in held.values():
                weight.grad = gradient.clone()
            optimizer.step()
    assert all(torch.equal(weights[name], copies[name]) for name in weights)


def test_without_momentum_there_is_nothing_to_keep() -> None:
    optimizer, weights, _ = made(OptimizerSettings(lr=0.1, momentum=0.0, weight_decay=0.0))
    before = weights["early"].detach().clone()
    weights["early"].grad = torch.ones(3, 8)
    optimizer.step()
    assert optimizer.momenta() == {}
    torch.testing.assert_close(weights["early"].detach(), before - 0.1)


@pytest.mark.parametrize("refused", [False, True])
def test_it_takes_no_step_that_its_guard_has_refused(refused: bool) -> None:
    optimizer, weights, guard = made()
    guard.at_once = False  # as on a device
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    loss = torch.tensor(float("nan") if refused else 1.0)
    guard.watch(loss, loss.expand(2), torch.arange(2), 0)
    for weight in weights.values():
        weight.grad = torch.ones(3, 8)
    optimizer.step()
    assert all(torch.equal(weight, before[name]) == refused for name, weight in weights.items())
    assert all(bool(momentum.any()) != refused for momentum in optimizer.momenta().values())
