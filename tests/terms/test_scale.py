"""SCALE's mask, contrastive loss and distillation against literal loops; who is an anchor, what is the past."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from making import a_step, average, cosine, gradients, made, randn, small_objective, surprise, train
from torch import Tensor

from conftest import random_images, small_learner
from ocssl._core.random import evaluating
from ocssl.objectives import Objective
from ocssl.terms import Penalty, Scale, Step
from ocssl.terms.scale import pseudo_positives, relation_distillation, stream_contrast

Mask = Callable[[Tensor, int, float, float], Tensor]


def literal_mask(
    features: Tensor, fresh: int, rho: float, temperature: float, *, diagonal: bool = False
) -> list[list[bool]]:
    """Section 5.6: similarities of all pairs of views, softmax over rows and columns, a threshold off the diagonal."""
    _, n, _ = features.shape
    q = [[0.0] * n for _ in range(n)]
    for a in range(2):
        for b in range(2):
            w = [
                [
                    -1000.0 if i == j else -(2 - 2 * cosine(features[a, i], features[b, j])) / temperature
                    for j in range(n)
                ]
                for i in range(n)
            ]
            for i in range(n):
                for j in range(n):
                    row = math.exp(w[i][j]) / sum(math.exp(w[i][k]) for k in range(n))
                    column = math.exp(w[i][j]) / sum(math.exp(w[k][j]) for k in range(n))
                    q[i][j] += (row + column) / 2 / 4
    off = [q[i][j] for i in range(n) for j in range(n) if diagonal or i != j]
    threshold = average(off) + rho * (max(off) - average(off))
    return [[i == j or q[i][j] > threshold for j in range(fresh)] for i in range(fresh)]


def literal_contrast(rows: Tensor, same: list[list[bool]], temperature: float) -> float:
    """Anchors are both views of the stream samples; every other row of the batch stands in the denominator."""
    _, n, _ = rows.shape
    everyone = [(v, i) for v in range(2) for i in range(n)]
    losses = []
    for v, i in everyone:
        if i >= len(same):
            continue
        scores = {(w, j): cosine(rows[v, i], rows[w, j]) / temperature for w, j in everyone if (w, j) != (v, i)}
        positives = [key for key in scores if key[1] < len(same) and same[i][key[1]]]
        losses.append(average(surprise(scores[key], scores.values()) for key in positives))
    return average(losses) * temperature / 0.07


def literal_distillation(now: Tensor, then: Tensor, temperature: float, past_temperature: float) -> float:
    losses = []
    for i in range(len(now)):
        rest = [j for j in range(len(now)) if j != i]
        current = [cosine(now[i], now[j]) / temperature for j in rest]
        past = [cosine(then[i], then[j]) / past_temperature for j in rest]
        losses.append(
            sum(math.exp(-surprise(p, past)) * surprise(c, current) for p, c in zip(past, current, strict=True))
        )
    return average(losses)


def clustered(seed: int = 0, n: int = 9) -> Tensor:
    """Two views of samples that lie in three groups."""
    centres = randn(3, 6, seed=seed)
    return centres[torch.arange(n) % 3] + 0.4 * randn(2, n, 6, seed=seed + 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rho", [0.0, 0.1, 0.3, 1.0])
def test_the_mask_is_the_literal_one(seed: int, rho: float) -> None:
    got = pseudo_positives(clustered(seed), 6, rho, 0.1)
    assert got.tolist() == literal_mask(clustered(seed), 6, rho, 0.1)
    assert torch.equal(got, got.T)


def compare_masks(mask: Mask) -> None:
    """Random features, where the threshold cuts through many similarities that lie close together."""
    for seed in range(12):
        features = randn(2, 5 + seed, 6, seed=seed)
        for rho in (0.0, 0.1, 0.3):
            assert mask(features, 5, rho, 0.1).tolist() == literal_mask(features, 5, rho, 0.1)


def test_the_mask_is_the_literal_one_for_random_features() -> None:
    compare_masks(pseudo_positives)


def test_the_oracle_catches_a_threshold_over_all_pairs_the_diagonal_included() -> None:
    with pytest.raises(AssertionError):
        compare_masks(lambda *asked: torch.tensor(literal_mask(*asked, diagonal=True)))


def test_the_mask_finds_pairs_and_a_higher_rho_makes_fewer() -> None:
    counts = [int(pseudo_positives(randn(2, 9, 6), 6, rho, 0.1).sum()) for rho in (0.0, 0.3, 1.0)]
    assert counts[0] > counts[1] > counts[2] == 6  # only itself is left


def test_the_oracle_catches_a_mask_of_features_that_are_not_unit_vectors() -> None:
    features = clustered(0)
    wrong = (2 * features[0] @ features[0].T - 2).div(0.1).fill_diagonal_(-1000).softmax(1)
    off = wrong[~torch.eye(9, dtype=torch.bool)]
    mask = wrong > off.mean() + 0.1 * (off.max() - off.mean())
    with pytest.raises(AssertionError):
        assert (mask | torch.eye(9, dtype=torch.bool))[:6, :6].tolist() == literal_mask(features, 6, 0.1, 0.1)


@pytest.mark.parametrize("fresh", [1, 4, 9])
def test_the_contrastive_loss_is_the_literal_one(fresh: int) -> None:
    rows, same = randn(2, 9, 5), pseudo_positives(clustered(0), fresh, 0.1, 0.1)
    wanted = literal_contrast(rows, same.tolist(), 0.1)
    assert float(stream_contrast(rows, same, 0.1)) == pytest.approx(wanted, rel=1e-4)


def test_the_oracle_catches_replayed_rows_as_anchors() -> None:
    """The fault of the public code: replayed rows stand first, and the first rows are taken for the stream's."""
    rows, same = randn(2, 9, 5), pseudo_positives(clustered(0), 4, 0.1, 0.1)
    wrong = float(stream_contrast(rows.flip(1), same, 0.1))
    with pytest.raises(AssertionError):
        assert wrong == pytest.approx(literal_contrast(rows, same.tolist(), 0.1), rel=1e-4)


def test_permuting_replayed_rows_changes_nothing() -> None:
    features, rows = clustered(2), randn(2, 9, 5)
    order = torch.tensor([0, 1, 2, 3, 8, 6, 4, 7, 5])
    same, again = (pseudo_positives(x, 4, 0.1, 0.1) for x in (features, features[:, order]))
    assert torch.equal(same, again)
    torch.testing.assert_close(stream_contrast(rows, same, 0.1), stream_contrast(rows[:, order], again, 0.1))


def test_without_stream_rows_the_contrastive_loss_is_zero() -> None:
    rows = randn(2, 5, 4).requires_grad_()
    loss = stream_contrast(rows, pseudo_positives(clustered(0, 5), 0, 0.1, 0.1), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_distillation_is_the_literal_one(seed: int) -> None:
    now, then = randn(7, 5, seed=seed), randn(7, 5, seed=seed + 9)
    wanted = literal_distillation(now, then, 0.1, 0.01)
    assert float(relation_distillation(now, then, 0.1, 0.01)) == pytest.approx(wanted, rel=1e-4)
    with pytest.raises(AssertionError):  # temperatures exchanged
        assert float(relation_distillation(now, then, 0.01, 0.1)) == pytest.approx(wanted, rel=1e-4)


def test_gradients_equal_finite_differences_of_the_literal_formulas() -> None:
    rows, then, same = randn(2, 6, 4), randn(6, 4, seed=4), pseudo_positives(clustered(0, 6), 3, 0.1, 0.1)
    direction = randn(2, 6, 4, seed=5)
    rows.requires_grad_()
    (stream_contrast(rows, same, 0.3) + relation_distillation(rows[0], then, 0.3, 0.1)).backward()

    def literal(at: Tensor) -> float:
        return literal_contrast(at, same.tolist(), 0.3) + literal_distillation(at[0], then, 0.3, 0.1)

    up, down = (literal(rows.detach().double() + s * direction) for s in (1e-4, -1e-4))
    assert rows.grad is not None
    assert float((rows.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def scale(**options: object) -> tuple[Scale, Objective]:
    objective = small_objective("none")
    term = made("scale", objective, **options)
    assert isinstance(term, Scale)
    return term, objective


def test_the_term_is_the_contrastive_loss_and_the_weighted_distillation() -> None:
    term, objective = scale()
    first = term(a_step(objective, number=0))
    ratio = 0.15 * float(first.signals["contrast"]) / float(first.signals["distill"])
    assert float(term.balance) == pytest.approx(ratio, rel=1e-5)
    assert float(first.loss.detach()) == pytest.approx(1.15 * float(first.signals["contrast"]), rel=1e-5)
    train(objective, term)
    step = a_step(objective, number=1, seed=1)
    later = term(step)
    rows = term.head(step.out.features)
    then = term.head(term.past.features(step.views)[0])
    same = literal_mask(step.out.features, 3, 0.1, 0.1)
    contrastive, distillation = literal_contrast(rows, same, 0.1), literal_distillation(rows[0], then, 0.1, 0.01)
    assert float(later.loss.detach()) == pytest.approx(contrastive + ratio * distillation, rel=1e-4)
    assert float(term.balance) == pytest.approx(ratio, rel=1e-5)  # once measured, it stays


def in_every_pass(term: Scale) -> None:
    """Broken: the snapshot is taken in every pass."""
    ask = term.forward

    def forward(step: Step) -> Penalty:
        return ask(replace(step, number=0))

    term.forward = forward


def compare_snapshot(broken: Callable[[Scale], None] | None = None) -> None:
    term, objective = scale()
    if broken:
        broken(term)
    weight = objective.encoder[1].weight
    train(objective, term)
    term(a_step(objective, number=0))
    kept = weight.detach().clone()
    assert torch.equal(term.past.encoder[1].weight, kept)
    for number in (1, 2):
        train(objective, term)
        term(a_step(objective, number=number))
        assert torch.equal(term.past.encoder[1].weight, kept)
        assert not torch.equal(weight, kept)
    term(a_step(objective, number=0))
    assert torch.equal(term.past.encoder[1].weight, weight)


def test_the_snapshot_is_taken_once_a_minibatch_and_differs_after_the_first_step() -> None:
    compare_snapshot()


def compare_snapshot_in_a_learner(broken: Callable[[Scale], None] | None = None) -> None:
    """After the last pass the past is the network before pass 0, which has moved on since."""
    learner = small_learner("scale", schedule__passes=3)
    term, encoder = learner.terms["scale"], learner.objective.encoder
    assert isinstance(term, Scale)
    if broken:
        broken(term)
    for seed in range(3):
        before = [p.detach().clone() for p in encoder.parameters()]
        learner.partial_fit(random_images(6, seed=seed))
        past = list(term.past.encoder.parameters())
        assert all(torch.equal(a, b) for a, b in zip(past, before, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(past, encoder.parameters(), strict=True))


def test_in_a_learner_the_past_is_the_network_before_the_first_pass() -> None:
    compare_snapshot_in_a_learner()


@pytest.mark.parametrize("compare", [compare_snapshot, compare_snapshot_in_a_learner])
def test_a_snapshot_in_every_pass_is_caught(compare: Callable[[Callable[[Scale], None]], None]) -> None:
    with pytest.raises(AssertionError):
        compare(in_every_pass)


def test_a_snapshot_in_every_pass_would_distil_nothing_but_the_present() -> None:
    pull = []
    for broken in (None, in_every_pass):
        term, objective = scale()
        if broken:
            broken(term)
        term(a_step(objective, number=0))
        train(objective, term)
        step = a_step(objective, number=1)
        term(step)
        with torch.no_grad(), evaluating(objective):
            pull.append(float((term.past.features(step.views) - objective(step.views).features).abs().max()))
    assert pull[0] > 0.1
    assert pull[1] == 0


def test_the_past_branch_and_the_mask_pass_no_gradient() -> None:
    term, objective = scale()
    term(a_step(objective, number=0))
    train(objective, term)
    step = a_step(objective, number=1)
    with torch.no_grad():
        then = term.head(term.past.features(step.views[:1]))[0]
    rows = term.head(step.out.features)
    same = pseudo_positives(step.out.features.detach(), 3, 0.1, 0.1)
    loss = stream_contrast(rows, same, 0.1) + term.balance * relation_distillation(rows[0], then, 0.1, 0.01)
    wanted = torch.autograd.grad(loss, list(term.head.parameters()), retain_graph=True)
    got = torch.autograd.grad(term(step).loss, list(term.head.parameters()))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)
    assert gradients(term.past) == 0


@pytest.mark.parametrize(("fresh", "replayed"), [(1, 0), (0, 1), (2, 0), (1, 1), (0, 5)])
def test_the_smallest_batches_are_finite(fresh: int, replayed: int) -> None:
    term, objective = scale()
    loss = term(a_step(objective, fresh, replayed)).loss
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert all(bool(torch.isfinite(p.grad).all()) for p in term.head.parameters() if p.grad is not None)


def test_a_step_without_both_losses_does_not_fix_the_weight() -> None:
    term, objective = scale()
    term(a_step(objective, fresh=0, replayed=6))
    assert float(term.balance) == 0
    term(a_step(objective, fresh=3, replayed=6))
    assert float(term.balance) > 0
