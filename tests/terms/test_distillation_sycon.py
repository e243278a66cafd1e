"""SyCON against the literal loss of both its forms, the objective's own NT-Xent included."""

from __future__ import annotations

import pytest
import torch
from making import a_step, average, cosine, made, randn, small_objective, surprise, train
from torch import Tensor

from ocssl.terms.distillation import pseudo_negatives, push_and_pull


def literal_whole(now: Tensor, old: Tensor, predicted: Tensor, t: float) -> float:
    """Section 7: NT-Xent whose negatives are present and past rows, and the prediction of the past with both too."""
    rows = [(v, i) for v in range(2) for i in range(now.shape[1])]
    losses = []
    for v, i in rows:
        rest = [row for row in rows if row != (v, i)]
        present = [cosine(now[v, i], now[row]) / t for row in rest]
        past = [cosine(now[v, i], old[row]) / t for row in rest]
        main = surprise(cosine(now[v, i], now[1 - v, i]) / t, present + past)
        own = cosine(predicted[v, i], old[v, i]) / t
        negatives = [cosine(predicted[v, i], x[row]) / t for x in (old, now) for row in rest]
        losses.append(main + surprise(own, [own, *negatives]))
    return average(losses)


def literal_push(predicted: Tensor, old: Tensor) -> float:
    losses = []
    for v in range(2):
        pull = average(2 - 2 * cosine(predicted[v, i], old[v, i]) for i in range(predicted.shape[1]))
        push = average(2 - 2 * cosine(predicted[v, i], old[1 - v, i]) for i in range(predicted.shape[1]))
        losses.append(1.0 * pull - 0.5 * push)
    return average(losses)


def nt_xent(now: Tensor, t: float) -> float:
    rows = [(v, i) for v in range(2) for i in range(now.shape[1])]
    losses = []
    for v, i in rows:
        scores = [cosine(now[v, i], now[row]) / t for row in rows if row != (v, i)]
        losses.append(surprise(cosine(now[v, i], now[1 - v, i]) / t, scores))
    return average(losses)


def three(n: int, seed: int = 0) -> list[Tensor]:
    return [randn(2, n, 5, seed=seed + k) for k in range(3)]


@pytest.mark.parametrize("n", [1, 2, 6])
@pytest.mark.parametrize("t", [0.1, 0.5])
def test_nt_xent_and_the_contrastive_form_are_the_whole_literal_loss(n: int, t: float) -> None:
    now, old, predicted = three(n)
    got = nt_xent(now, t) + float(pseudo_negatives(now, old, predicted, t))
    assert got == pytest.approx(literal_whole(now, old, predicted, t), rel=1e-4)


def test_the_oracle_catches_views_exchanged_in_the_past_and_a_past_that_is_the_present() -> None:
    now, old, predicted = three(6)
    whole = literal_whole(now, old, predicted, 0.5)
    for wrong in (old.flip(0), now):
        got = nt_xent(now, 0.5) + float(pseudo_negatives(now, wrong, predicted, 0.5))
        with pytest.raises(AssertionError):
            assert got == pytest.approx(whole, rel=1e-4)


def test_exchanging_the_views_changes_nothing() -> None:
    now, old, predicted = three(6)
    flipped = pseudo_negatives(now.flip(0), old.flip(0), predicted.flip(0), 0.5)
    torch.testing.assert_close(flipped, pseudo_negatives(now, old, predicted, 0.5))
    torch.testing.assert_close(push_and_pull(predicted.flip(0), old.flip(0)), push_and_pull(predicted, old))


@pytest.mark.parametrize("seed", range(3))
def test_the_other_form_is_the_literal_one(seed: int) -> None:
    _, old, predicted = three(5, seed)
    assert float(push_and_pull(predicted, old)) == pytest.approx(literal_push(predicted, old), abs=1e-5)
    with pytest.raises(AssertionError):  # views exchanged
        assert float(push_and_pull(predicted.flip(0), old)) == pytest.approx(literal_push(predicted, old), abs=1e-5)


def test_gradients_equal_finite_differences_of_the_literal_loss() -> None:
    now, old, predicted = three(4)
    directions = randn(2, 4, 5, seed=8), randn(2, 4, 5, seed=9)
    now.requires_grad_()
    predicted.requires_grad_()
    pseudo_negatives(now, old, predicted, 0.5).backward()

    def literal(step: float) -> float:
        at = now.detach().double() + step * directions[0]
        return literal_whole(at, old, predicted.detach().double() + step * directions[1], 0.5) - nt_xent(at, 0.5)

    assert now.grad is not None
    assert predicted.grad is not None
    slope = float((now.grad * directions[0]).sum() + (predicted.grad * directions[1]).sum())
    assert slope == pytest.approx((literal(1e-4) - literal(-1e-4)) / 2e-4, rel=1e-3)


@pytest.mark.parametrize("objective", ["simclr", "simsiam"])
def test_the_term_takes_the_form_that_fits_the_objective(objective: str) -> None:
    network = small_objective(objective)
    term = made("sycon", network)
    term.boundary(network)
    train(network, term)
    step = a_step(network)
    predicted = torch.stack([term.head(view) for view in step.out.projected])
    old = term.old(step.views)
    got = float(term(step).loss.detach())
    if objective == "simclr":
        whole = literal_whole(step.out.projected, old, predicted, network.temperature)
        assert got + float(step.out.loss.mean().detach()) == pytest.approx(whole, rel=1e-4)
    else:
        assert got == pytest.approx(literal_push(predicted, old), abs=1e-5)
