"""Losses, gradients and weights that are not finite: told at once, or late, as on a GPU."""

from __future__ import annotations

import pytest
import torch

import ocssl
from ocssl._training.non_finite import Guard
from ocssl.errors import NonFiniteLoss

CPU = torch.device("cpu")


def late() -> Guard:
    guard = Guard(CPU)
    guard.at_once = False
    return guard


def watch(guard: Guard, loss: float, steps: int = 0) -> None:
    guard.watch_loss(torch.tensor(loss), torch.tensor([0.0, loss]), torch.tensor([7, 8]), steps)


def test_finite_losses_pass() -> None:
    guard = Guard(CPU)
    watch(guard, 1.0)
    guard.settle()
    assert guard.refused == 0


def test_on_the_cpu_the_refusal_comes_at_once() -> None:
    with pytest.raises(NonFiniteLoss, match=r"step 4 .* \(ids 8\)"):
        watch(Guard(CPU), float("nan"), steps=3)


def test_elsewhere_the_first_refused_step_is_told_at_the_end() -> None:
    guard = late()
    for steps, loss in enumerate([1.0, float("inf"), 1.0, float("nan")]):
        watch(guard, loss, steps)
    with pytest.raises(NonFiniteLoss, match="step 2 is not finite"):
        guard.settle()


def test_later_steps_stay_refused_until_it_is_settled() -> None:
    guard = late()
    watch(guard, float("nan"))
    watch(guard, 1.0)
    assert guard.refused == 1
    with pytest.raises(NonFiniteLoss):
        guard.settle()
    watch(guard, 1.0)
    guard.settle()
    assert guard.refused == 0


@pytest.mark.parametrize("at_once", [True, False])
def test_no_weight_changes_from_the_refused_step_on(at_once: bool) -> None:
    settings = {"encoder.name": "resnet10", "encoder.width": 2, "objective.projection": 16, "schedule.passes": 3}
    learner = ocssl.Learner("solar", image_size=8, settings=settings)
    learner._guard.at_once = at_once
    images = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    learner.partial_fit(images)
    with torch.no_grad():
        learner.objective.get_submodule("predictor")[0].weight.fill_(float("nan"))  # type: ignore[index]
    before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    momentum = {n: t.clone() for n, t in learner.tensors().items() if n.startswith("momentum.")}
    with pytest.raises(NonFiniteLoss, match="step 4 is not finite for every sample"):
        learner.partial_fit(images)
    for name, p in learner.network.named_parameters():
        torch.testing.assert_close(p.detach(), before[name], equal_nan=True, atol=0, rtol=0)
    assert all(torch.equal(learner.tensors()[name], tensor) for name, tensor in momentum.items())


def test_an_optimizer_that_is_not_told_would_step_on() -> None:
    """The test above would catch a guard that the optimizer does not know."""
    settings = {"encoder.name": "resnet10", "encoder.width": 2, "objective.projection": 16, "schedule.passes": 1}
    learner = ocssl.Learner("solar", image_size=8, settings=settings)
    learner._guard.at_once = False
    learner._optimizer._guard = Guard(torch.device("cpu"))
    with torch.no_grad():
        learner.objective.get_submodule("predictor")[0].weight.fill_(float("nan"))  # type: ignore[index]
    images = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(NonFiniteLoss):
        learner.partial_fit(images)
    assert any(bool(p.isnan().any()) for p in learner.encoder.parameters())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_number_among_many_weights_is_found_wherever_it_stands(bad: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(7,), (3, 4, 5, 5), (), (33, 65)]
    weights = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    weights[1] = weights[1].to(memory_format=torch.channels_last)
    whole = [weight.clone() for weight in weights]
    Guard(CPU).watch_weights(weights, torch.tensor([1]), 0)
    assert all(torch.equal(a, b) for a, b in zip(weights, whole, strict=True))  # looked at, not changed
    for which, weight in enumerate(whole):
        for place in {0, weight.numel() // 2, weight.numel() - 1}:
            damaged = [w.clone() for w in whole]
            damaged[which].as_strided((weight.numel(),), (1,))[place] = bad
            with pytest.raises(NonFiniteLoss, match="result of step 1 is not finite"):
                Guard(CPU).watch_weights(damaged, torch.tensor([1]), 0)


@pytest.mark.parametrize("large", [1e25, 3e38, float("inf"), float("nan")])
def test_gradients_and_weights_whose_squares_are_not_finite_are_refused_too(large: float) -> None:
    """They are finite, but no training comes back from them: better refused before they are saved."""
    weight = torch.zeros(8, requires_grad=True)
    weight.grad = torch.full((8,), 1e15)
    Guard(CPU).watch_gradient([weight], torch.tensor([1]), 0)
    Guard(CPU).watch_weights([weight.grad], torch.tensor([1]), 0)
    weight.grad[7] = large
    with pytest.raises(NonFiniteLoss, match="gradient of step 1 is not finite"):
        Guard(CPU).watch_gradient([weight], torch.tensor([1]), 0)
    with pytest.raises(NonFiniteLoss, match="result of step 1 is not finite"):
        Guard(CPU).watch_weights([weight.grad], torch.tensor([1]), 0)
