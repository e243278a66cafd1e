"""Osiris against literal loops; when its second space begins, and what is trained before and after."""

from __future__ import annotations

import pytest
import torch
from making import a_step, average, cosine, gradients, made, randn, small_objective, surprise, train
from torch import Tensor

from ocssl.objectives import Objective
from ocssl.terms import OsirisD, OsirisR
from ocssl.terms.osiris import cross, distillation, nt_xent

T = 0.5


def rows_of(views: Tensor) -> list[tuple[int, int]]:
    return [(v, i) for v in range(2) for i in range(views.shape[1])]


def literal_nt_xent(x: Tensor, t: float) -> float:
    losses = []
    for v, i in rows_of(x):
        scores = [cosine(x[v, i], x[row]) / t for row in rows_of(x) if row != (v, i)]
        losses.append(surprise(cosine(x[v, i], x[1 - v, i]) / t, scores))
    return average(losses)


def literal_cross(x: Tensor, y: Tensor, t: float) -> float:
    """Positives are the other views, negatives the views of the other kind alone; mean of both directions."""
    sides = []
    for own, foreign in ((x, y), (y, x)):
        losses = []
        for v, i in rows_of(own):
            positive = cosine(own[v, i], own[1 - v, i]) / t
            negatives = [cosine(own[v, i], foreign[row]) / t for row in rows_of(foreign)]
            losses.append(surprise(positive, [positive, *negatives]))
        sides.append(average(losses))
    return average(sides)


def literal_distillation(now: Tensor, old: Tensor, t: float) -> float:
    """The same view of the same sample is the positive; its other view counts not at all; mean of both directions."""
    sides = []
    for a, b in ((now, old), (old, now)):
        losses = []
        for v, i in rows_of(a):
            candidates = [row for row in rows_of(b) if row[1] != i]
            positive = cosine(a[v, i], b[v, i]) / t
            losses.append(surprise(positive, [positive, *(cosine(a[v, i], b[row]) / t for row in candidates)]))
        sides.append(average(losses))
    return average(sides)


@pytest.mark.parametrize("seed", range(3))
def test_each_part_is_its_literal_formula(seed: int) -> None:
    x, y = randn(2, 4, 5, seed=seed), randn(2, 6, 5, seed=seed + 9)
    assert float(nt_xent(x, T)) == pytest.approx(literal_nt_xent(x, T), rel=1e-4)
    assert float(cross(x, y, T)) == pytest.approx(literal_cross(x, y, T), rel=1e-4)
    old = randn(2, 4, 5, seed=seed + 5)
    assert float(distillation(x, old, T)) == pytest.approx(literal_distillation(x, old, T), rel=1e-4)


def test_the_oracles_catch_negatives_of_ones_own_kind_and_the_other_view_as_a_negative() -> None:
    x, y = randn(2, 4, 5), randn(2, 4, 5, seed=9)
    with pytest.raises(AssertionError):
        assert float(nt_xent(torch.cat([x, y], dim=1), T)) == pytest.approx(literal_cross(x, y, T), rel=1e-4)
    logits = torch.cosine_similarity(x.flatten(0, 1)[:, None], y.flatten(0, 1)[None], dim=-1) / T
    unmasked = torch.nn.functional.cross_entropy(logits, torch.arange(8))
    both = (unmasked + torch.nn.functional.cross_entropy(logits.T, torch.arange(8))) / 2
    with pytest.raises(AssertionError):
        assert float(both) == pytest.approx(literal_distillation(x, y, T), rel=1e-4)


def test_gradients_equal_finite_differences_of_the_literal_formulas() -> None:
    x, y, direction = randn(2, 3, 4), randn(2, 3, 4, seed=1), randn(2, 3, 4, seed=2)
    x.requires_grad_()
    (nt_xent(x, T) + cross(x, y, T) + distillation(x, y, T)).backward()

    def literal(at: Tensor) -> float:
        return literal_nt_xent(at, T) + literal_cross(at, y, T) + literal_distillation(at, y, T)

    up, down = (literal(x.detach().double() + s * direction) for s in (1e-4, -1e-4))
    assert x.grad is not None
    assert float((x.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def osiris(name: str) -> tuple[Objective, OsirisR]:
    objective = small_objective("none")
    term = made(name, objective, temperature=T)
    assert isinstance(term, OsirisR)
    return objective, term


def same_heads(term: OsirisR) -> bool:
    pairs = zip(term.head.parameters(), term.past_head.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_osiris_r_is_the_literal_sum_from_the_first_replay_on() -> None:
    objective, term = osiris("osiris-r")
    alone = a_step(objective, fresh=4, replayed=0)
    wanted = literal_nt_xent(term.head(alone.out.features), T)
    assert float(term(alone).loss.detach()) == pytest.approx(wanted, rel=1e-4)
    step = a_step(objective, fresh=3, replayed=5)
    term(step)
    train(objective, term)
    step = a_step(objective, fresh=3, replayed=5)
    x, y = (term.past_head(rows) for rows in step.out.features.split([3, 5], dim=1))
    first = literal_nt_xent(term.head(step.out.features[:, :3]), T)
    wanted = first + 0.5 * (literal_cross(x, y, T) + literal_nt_xent(y, T))
    assert float(term(step).loss.detach()) == pytest.approx(wanted, rel=1e-4)


def test_osiris_d_is_the_literal_sum_after_the_first_boundary() -> None:
    objective, term = osiris("osiris-d")
    assert isinstance(term, OsirisD)
    step = a_step(objective, fresh=3, replayed=5)
    wanted = literal_nt_xent(term.head(step.out.features[:, :3]), T)
    assert float(term(step).loss.detach()) == pytest.approx(wanted, rel=1e-4)
    term.boundary(objective)
    term(step)
    train(objective, term)
    step = a_step(objective, fresh=3, replayed=5)
    x, y = (term.past_head(rows) for rows in step.out.features.split([3, 5], dim=1))
    old = term.past_head(term.old.features(step.views[:, :3]))
    first = literal_nt_xent(term.head(step.out.features[:, :3]), T)
    wanted = first + 0.5 * (literal_cross(x, y, T) + literal_distillation(x, old, T))
    assert float(term(step).loss.detach()) == pytest.approx(wanted, rel=1e-4)
    wrong = first + 0.5 * (literal_cross(x, y, T) + literal_nt_xent(y, T))  # Osiris-R's way of keeping the past
    with pytest.raises(AssertionError):
        assert float(term(step).loss.detach()) == pytest.approx(wrong, rel=1e-4)


@pytest.mark.parametrize("name", ["osiris-r", "osiris-d"])
def test_the_second_head_is_copied_once_when_its_time_comes_and_then_trained(name: str) -> None:
    objective, term = osiris(name)
    term(a_step(objective, fresh=4, replayed=0)).loss.backward()
    assert gradients(term.past_head) == 0
    assert not same_heads(term)
    term.boundary(objective)
    term(a_step(objective, fresh=4, replayed=0))
    assert not same_heads(term)  # a boundary alone is no replay
    term(a_step(objective, fresh=4, replayed=4)).loss.backward()
    assert same_heads(term)
    assert gradients(term.past_head) > 0
    train(objective, term)
    kept = [p.clone() for p in term.past_head.parameters()]
    with torch.no_grad():
        term.head[0].weight.add_(1)
    term.boundary(objective)
    term(a_step(objective, fresh=4, replayed=4))
    assert all(torch.equal(a, b) for a, b in zip(term.past_head.parameters(), kept, strict=True))


@pytest.mark.parametrize("name", ["osiris-r", "osiris-d"])
@pytest.mark.parametrize(("fresh", "replayed"), [(1, 0), (1, 1), (0, 1), (0, 5)])
def test_the_smallest_batches_are_finite_and_can_be_trained_on(name: str, fresh: int, replayed: int) -> None:
    objective, term = osiris(name)
    term.boundary(objective)
    loss = term(a_step(objective, fresh, replayed)).loss
    loss.backward()
    assert bool(torch.isfinite(loss))


def test_without_stream_rows_osiris_r_keeps_the_past_alone() -> None:
    objective, term = osiris("osiris-r")
    assert isinstance(term, OsirisR)
    step = a_step(objective, fresh=0, replayed=5)
    loss = float(term(step).loss.detach())
    assert loss == pytest.approx(0.5 * literal_nt_xent(term.past_head(step.out.features), T), rel=1e-4)


def test_the_frozen_encoder_gets_no_gradient() -> None:
    objective, term = osiris("osiris-d")
    assert isinstance(term, OsirisD)
    term.boundary(objective)
    train(objective, term)
    term(a_step(objective)).loss.backward()
    assert gradients(term.old) == 0
    assert gradients(objective.encoder) > 0
