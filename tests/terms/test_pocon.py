"""POCON against its literal formula; who learns when, and who becomes a copy of whom at a boundary."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from making import D, a_step, gradients, made, randn, small_objective, train
from torch import Tensor

from conftest import random_images, small_learner
from ocssl import Learner
from ocssl.objectives import Objective
from ocssl.terms import Pocon
from ocssl.terms.pocon import distance


def literal(predicted: Tensor, target: Tensor) -> float:
    """Sum over views of the Frobenius norm of the difference of unit rows."""

    def unit(row: Tensor) -> list[float]:
        length = math.sqrt(sum(x * x for x in row.tolist()))
        return [x / length if length else 0.0 for x in row.tolist()]

    total = 0.0
    for view, other in zip(predicted.detach().double(), target.detach().double(), strict=True):
        rows = zip(view, other, strict=True)
        total += math.sqrt(sum((x - y) ** 2 for a, b in rows for x, y in zip(unit(a), unit(b), strict=True)))
    return total


def pocon(**options: object) -> tuple[Objective, Pocon]:
    objective = small_objective()
    term = made("pocon", objective, **options)
    assert isinstance(term, Pocon)
    return objective, term


def weights(module: torch.nn.Module) -> list[Tensor]:
    return [tensor.clone() for tensor in module.state_dict().values()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_distance_is_the_literal_formula() -> None:
    a, b = randn(2, 5, 4), randn(2, 5, 4, seed=1)
    assert float(distance(a, b)) == pytest.approx(literal(a, b), rel=1e-5)
    with pytest.raises(AssertionError):  # rows that are not unit vectors
        assert sum(float((x - y).norm()) for x, y in zip(a, b, strict=True)) == pytest.approx(literal(a, b), rel=1e-5)


def test_gradients_equal_finite_differences_and_are_finite_where_nothing_differs() -> None:
    a, b, direction = randn(2, 5, 4), randn(2, 5, 4, seed=1), randn(2, 5, 4, seed=2)
    a.requires_grad_()
    distance(a, b).backward()
    up, down = (literal(a.detach().double() + s * direction, b) for s in (1e-4, -1e-4))
    assert a.grad is not None
    assert float((a.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)
    a.grad = None
    distance(a, a.detach()).backward()
    assert bool(torch.isfinite(a.grad).all())


def test_the_term_is_the_literal_formula_in_the_first_and_in_later_experiences() -> None:
    objective, term = pocon(adapt=2.0, retain=3.0)
    train(objective, term)
    step = a_step(objective)
    features = torch.stack([term.main(view) for view in step.views])
    adapted = torch.stack([term.adapter(view) for view in features])
    first = 2.0 * literal(adapted, step.out.features)
    assert float(term(step).loss.detach()) == pytest.approx(first, rel=1e-4)
    term.boundary(objective)
    train(objective, term)
    step = a_step(objective)
    features = torch.stack([term.main(view) for view in step.views])
    adapted = torch.stack([term.adapter(view) for view in features])
    old = torch.stack([term.old(view) for view in step.views])
    whole = 2.0 * literal(adapted, step.out.features) + 3.0 * literal(term.retainer(features), old)
    assert float(term(step).loss.detach()) == pytest.approx(whole, rel=1e-4)
    expert = step.out.features  # taken for the past
    wrong = 2.0 * literal(adapted, expert) + 3.0 * literal(term.retainer(features), expert)
    with pytest.raises(AssertionError):
        assert float(term(step).loss.detach()) == pytest.approx(wrong, rel=1e-4)


def test_the_term_trains_the_kept_encoder_and_neither_expert_nor_past() -> None:
    objective, term = pocon()
    term.boundary(objective)
    train(objective, term)
    term(a_step(objective)).loss.backward()
    assert gradients(term.main) > 0
    assert gradients(term.adapter) > 0
    assert gradients(term.retainer) > 0
    assert gradients(objective) == 0
    assert gradients(term.old) == 0


def test_the_kept_encoder_begins_as_the_objectives() -> None:
    objective, term = pocon()
    assert equal(weights(term.main), weights(objective.encoder))
    assert term.evaluated() is term.main


def test_at_a_boundary_past_and_expert_become_copies_of_the_kept_encoder() -> None:
    objective, term = pocon()
    train(objective, term)
    assert not equal(weights(term.main), weights(objective.encoder))
    kept = weights(term.main)
    term.boundary(objective)
    assert equal(weights(term.main), kept)
    assert equal(weights(term.old), kept)
    assert equal(weights(objective.encoder), kept)


def test_the_past_stays_in_eval_mode_and_the_kept_encoder_trains() -> None:
    _, term = pocon()
    term.train()
    assert not any(module.training for module in term.old.modules())
    assert all(module.training for module in term.main.modules())


def test_only_the_expert_learns_in_its_steps_after_the_start_and_each_boundary() -> None:
    objective, term = pocon(expert_steps=2)
    for _ in range(2):
        asked = []
        for _ in range(4):
            asked.append(bool(term(a_step(objective)).loss.requires_grad))
            term.after_step(objective)
        assert asked == [False, False, True, True]
        term.boundary(objective)


def compare_count(broken: Callable[[Learner], None] | None = None) -> None:
    """At the end of each optimizer step the counter has those before it, and it begins anew at a boundary."""
    learner = small_learner("pocon")
    term, counts, step = learner.terms["pocon"], list[int](), learner._optimizer.step

    def watched() -> None:
        step()
        counts.append(int(term.steps))

    learner._optimizer.step = watched
    if broken:
        broken(learner)
    for _ in range(2):
        for seed in range(2):  # minibatches of two passes
            learner.partial_fit(random_images(6, seed=seed))
        assert int(term.steps) == 4
        learner.boundary()
    assert counts == [0, 1, 2, 3, 0, 1, 2, 3]


def never(learner: Learner) -> None:
    """Broken: what comes after a step is left out."""
    learner.terms["pocon"].after_step = lambda objective: None


def too_early(learner: Learner) -> None:
    """Broken: what comes after a step comes before it."""
    move, step = learner.terms["pocon"].after_step, learner._optimizer.step
    never(learner)

    def turned() -> None:
        move(learner.objective)
        step()

    learner._optimizer.step = turned


def test_in_a_learner_the_counter_counts_optimizer_steps() -> None:
    compare_count()


@pytest.mark.parametrize("broken", [never, too_early])
def test_the_comparison_in_a_learner_catches_a_counter_that_counts_too_early_or_never(
    broken: Callable[[Learner], None],
) -> None:
    with pytest.raises(AssertionError):
        compare_count(broken)


def test_a_learner_evaluates_the_kept_encoder() -> None:
    learner = small_learner("finetune", **{"terms.pocon.weight": 1.0, "schedule.boundaries": True})
    term = learner.terms["pocon"]
    assert equal(weights(term.main), weights(learner.objective.encoder))
    learner.partial_fit(random_images(10))
    learner.boundary()
    learner.partial_fit(random_images(10, seed=1))
    assert learner.encoder is term.main
    features = learner.transform(random_images(4, seed=2))
    with torch.no_grad():
        learner.objective.encoder.load_state_dict(term.main.state_dict())
    assert np.array_equal(features, learner.transform(random_images(4, seed=2)))


def test_one_sample_alone_is_finite() -> None:
    learner = small_learner("finetune", **{"terms.pocon.weight": 1.0, "schedule.boundaries": True})
    learner.partial_fit(random_images(6))
    learner.boundary()
    assert np.isfinite(learner.partial_fit(random_images(1)).loss)


def test_heads_have_the_released_layers() -> None:
    _, term = pocon()
    shapes = [tuple(p.shape) for p in term.adapter.parameters() if p.ndim == 2]
    assert shapes == [(2 * D, D), (D, 2 * D), (2 * D, D), (D, 2 * D)]
    assert tuple(term.retainer.weight.shape) == (D, D)
