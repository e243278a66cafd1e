"""BYOL against its literal float64 formula; its target follows the network and is trained by nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl import Learner
from ocssl.objectives import BYOL
from ocssl.objectives.byol import byol_loss


def literal(p1: Tensor, p2: Tensor, t1: Tensor, t2: Tensor) -> Tensor:
    def half(a: Tensor, b: Tensor) -> float:
        dot = sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
        return 2 - 2 * dot / math.sqrt(sum(x * x for x in a.tolist()) * sum(y * y for y in b.tolist()))

    rows = zip(p1.double(), p2.double(), t1.double(), t2.double(), strict=True)
    return torch.tensor([half(a, d) + half(b, c) for a, b, c, d in rows], dtype=torch.float64)


def four(seed: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(6, 9, generator=generator, dtype=dtype) for _ in range(4)]


def small(momentum: float = 0.99) -> BYOL:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU())
    objective = BYOL(encoder, 5, 16, momentum=momentum, bottleneck=8)
    objective.begin()
    return objective


def views(batch: int = 6) -> Tensor:
    return torch.randn(2, batch, 3, 2, 2, generator=torch.Generator().manual_seed(4))


def test_the_loss_is_the_literal_formula_for_every_sample() -> None:
    torch.testing.assert_close(byol_loss(*four()), literal(*four()).float(), atol=1e-5, rtol=1e-5)


def test_the_oracle_catches_views_that_are_not_crossed_and_an_average_of_the_halves() -> None:
    p1, p2, t1, t2 = four()
    for wrong in (byol_loss(p1, p2, t2, t1), byol_loss(p1, p2, t1, t2) / 2):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(wrong, literal(p1, p2, t1, t2).float(), atol=1e-5, rtol=1e-5)


def test_the_loss_lies_between_0_and_8_and_does_not_depend_on_scale() -> None:
    p1, p2, t1, t2 = four(1)
    torch.testing.assert_close(byol_loss(t2, t1, t1, t2), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(byol_loss(-t2, -t1, t1, t2), torch.full((6,), 8.0))
    torch.testing.assert_close(byol_loss(3 * p1, p2, 0.01 * t1, t2), byol_loss(p1, p2, t1, t2))


def test_gradients_equal_finite_differences_and_stop_at_the_targets() -> None:
    p1, p2, t1, t2 = (x.requires_grad_() for x in four(3, torch.float64))
    byol_loss(p1, p2, t1, t2).sum().backward()
    direction = torch.randn(6, 9, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    up, down = (float(literal(p1.detach() + s * direction, p2, t1, t2).sum()) for s in (1e-3, -1e-3))
    assert p1.grad is not None
    assert float((p1.grad * direction).sum()) == pytest.approx((up - down) / 2e-3, rel=1e-3)
    assert t1.grad is None
    assert t2.grad is None


def test_the_targets_are_the_slow_copys_projections_of_the_same_views() -> None:
    objective = small()
    out = objective(views())
    fresh = small()
    projected = [fresh.projector(fresh.encoder(view)) for view in views()]  # the copy equals the network at first
    expected = literal(*(fresh.predictor(z) for z in projected), *projected)
    torch.testing.assert_close(out.loss, expected.float(), atol=1e-4, rtol=1e-4)


def test_the_copy_moves_by_the_literal_moving_average_after_each_step() -> None:
    objective = small(momentum=0.9)
    expected = [p.detach().double().clone() for p in objective.target.parameters()]
    for _ in range(3):
        with torch.no_grad():
            for p in [*objective.encoder.parameters(), *objective.projector.parameters()]:
                p.add_(1)
        objective.after_step()
        online = [*objective.encoder.parameters(), *objective.projector.parameters()]
        expected = [0.9 * old + 0.1 * new.detach().double() for old, new in zip(expected, online, strict=True)]
    for got, wanted in zip(objective.target.parameters(), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)


def weights(learner: Learner) -> list[Tensor]:
    """Encoder and projector in float64."""
    trained = (*learner.objective.encoder.parameters(), *learner.objective.projector.parameters())
    return [p.detach().double() for p in trained]


def recorded(learner: Learner) -> list[list[Tensor]]:
    """Grows by the weights after each optimizer step."""
    history: list[list[Tensor]] = []
    step = learner._optimizer.step

    def watched() -> None:
        step()
        history.append(weights(learner))

    learner._optimizer.step = watched
    return history


def compare_copy(broken: Callable[[Learner], None] | None = None) -> None:
    """The copy is 0.99 x itself + 0.01 x the weights after every optimizer step, from the first weights on."""
    learner = small_learner("er-fifo", objective__name="byol")
    target = learner.objective.target
    expected, history = weights(learner), recorded(learner)
    if broken:
        broken(learner)
    for seed in range(3):
        learner.partial_fit(random_images(6, seed=seed))
        for now in history:
            expected = [0.99 * old + 0.01 * new for old, new in zip(expected, now, strict=True)]
        history.clear()
        for got, wanted in zip(target.parameters(), expected, strict=True):
            torch.testing.assert_close(got.double(), wanted, atol=1e-6, rtol=1e-6)
    assert learner.steps == 6


def never(learner: Learner) -> None:
    """Broken: what comes after a step is left out."""
    learner.objective.after_step = lambda: None


def too_early(learner: Learner) -> None:
    """Broken: what comes after a step comes before it."""
    move, step = learner.objective.after_step, learner._optimizer.step
    never(learner)

    def turned() -> None:
        move()
        step()

    learner._optimizer.step = turned


def test_in_a_learner_the_copy_is_the_moving_average_of_the_weights_after_every_step() -> None:
    compare_copy()


@pytest.mark.parametrize("broken", [never, too_early])
def test_the_comparison_in_a_learner_catches_a_copy_that_moves_too_early_or_never(
    broken: Callable[[Learner], None],
) -> None:
    with pytest.raises(AssertionError):
        compare_copy(broken)


def test_the_copy_is_trained_by_nothing_is_in_the_state_and_differs_only_after_steps() -> None:
    objective = small()
    objective(views()).loss.mean().backward()
    assert all(p.grad is None and not p.requires_grad for p in objective.target.parameters())
    assert any(p.grad is not None for p in objective.encoder.parameters())
    assert any(name.startswith("target.encoder.") for name in objective.state_dict())
    for own, online in zip(objective.target.encoder.parameters(), objective.encoder.parameters(), strict=True):
        assert torch.equal(own, online)
        assert own is not online


def test_forward_changes_nothing_but_batch_norm_statistics() -> None:
    objective = small()
    before = {name: p.detach().clone() for name, p in objective.named_parameters()}
    objective(views())
    assert all(torch.equal(p, before[name]) for name, p in objective.named_parameters())


def test_the_loss_is_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert small()(views()).loss.dtype == torch.float32
