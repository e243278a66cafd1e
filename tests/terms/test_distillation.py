"""CaSSLe and PFR against their literal formulas: nothing at first, then the frozen network's features."""

from __future__ import annotations

import pytest
import torch
from making import D, P, a_step, average, cosine, gradients, made, small_objective, train
from torch import Tensor, nn

from ocssl.objectives import Objective
from ocssl.terms import Cassle, Pfr
from ocssl.terms.distillation import PastTerm


def later(name: str, objective: str = "simsiam", **options: object) -> tuple[Objective, PastTerm]:
    """A term after a boundary and a training step."""
    network = small_objective(objective)
    term = made(name, network, **options)
    assert isinstance(term, PastTerm)
    a_step(network, seed=7)  # batch norm statistics of its own
    train(network, term)
    term.boundary(network)
    train(network, term)
    return network, term


def through(head: nn.Module, views: Tensor) -> Tensor:
    return torch.stack([head(view) for view in views])


def literal_cassle(predicted: Tensor, old: Tensor) -> float:
    rows = [(v, i) for v in range(2) for i in range(predicted.shape[1])]
    return average(2 - 2 * cosine(predicted[v, i], old[v, i]) for v, i in rows)


def literal_pfr(predicted: Tensor, old: Tensor) -> float:
    views = (average(cosine(predicted[v, i], old[v, i]) for i in range(predicted.shape[1])) for v in range(2))
    return -0.5 * sum(views)


@pytest.mark.parametrize("on", ["all", "replay"])
def test_cassle_is_the_mean_distance_to_the_frozen_projections(on: str) -> None:
    objective, term = later("cassle", on=on)
    step = a_step(objective)
    first = 0 if on == "all" else 3
    wanted = literal_cassle(through(term.head, step.out.projected[:, first:]), term.old(step.views[:, first:]))
    assert float(term(step).loss.detach()) == pytest.approx(wanted, abs=1e-5)


def test_pfr_is_the_mean_cosine_with_the_frozen_features() -> None:
    objective, term = later("pfr")
    step = a_step(objective)
    wanted = literal_pfr(through(term.head, step.out.features), term.old.features(step.views))
    assert float(term(step).loss.detach()) == pytest.approx(wanted, abs=1e-5)


def test_the_oracles_catch_the_other_view_and_the_unfrozen_network() -> None:
    objective, cassle = later("cassle")
    step = a_step(objective)
    predicted, got = through(cassle.head, step.out.projected), float(cassle(step).loss.detach())
    for wrong in (cassle.old(step.views).flip(0), step.out.projected):
        with pytest.raises(AssertionError):
            assert got == pytest.approx(literal_cassle(predicted, wrong), abs=1e-5)
    objective, pfr = later("pfr")
    step = a_step(objective)
    now = literal_pfr(through(pfr.head, step.out.features), step.out.features)
    with pytest.raises(AssertionError):
        assert float(pfr(step).loss.detach()) == pytest.approx(now, abs=1e-5)


def test_cassle_uses_the_objectives_own_distance() -> None:
    objective, term = later("cassle", "simclr")
    step = a_step(objective)
    predicted, old = through(term.head, step.out.projected), term.old(step.views)
    wanted = objective.distance(predicted, old)
    torch.testing.assert_close(term(step).loss, wanted)
    assert float(wanted.detach()) != pytest.approx(literal_cassle(predicted, old), abs=1e-4)


@pytest.mark.parametrize("name", ["cassle", "pfr", "sycon"])
def test_nothing_is_asked_in_the_first_experience(name: str) -> None:
    objective = small_objective()
    term = made(name, objective)
    assert not term(a_step(objective)).loss.requires_grad
    term.boundary(objective)
    assert term(a_step(objective)).loss.requires_grad


@pytest.mark.parametrize("name", ["cassle", "pfr", "sycon"])
def test_the_frozen_network_is_that_of_the_last_boundary(name: str) -> None:
    objective, term = later(name)
    frozen = [p.clone() for p in term.old.parameters()]
    current = [*objective.encoder.parameters(), *objective.projector.parameters()]
    term(a_step(objective))
    train(objective, term)
    assert all(torch.equal(a, b) for a, b in zip(term.old.parameters(), frozen, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(term.old.parameters(), current, strict=True))
    term.boundary(objective)
    assert all(torch.equal(a, b) for a, b in zip(term.old.parameters(), current, strict=True))


@pytest.mark.parametrize("name", ["cassle", "pfr", "sycon"])
def test_gradients_reach_the_encoder_and_the_head_and_not_the_past(name: str) -> None:
    objective, term = later(name)
    term(a_step(objective)).loss.backward()
    assert gradients(objective.encoder) > 0
    assert gradients(term.head) > 0
    assert gradients(term.old) == 0


@pytest.mark.parametrize("name", ["cassle", "pfr"])
def test_the_gradient_equals_finite_differences_of_the_literal_formula(name: str) -> None:
    objective, term = later(name)
    step = a_step(objective)
    inputs, old = step.out.features, term.old.features(step.views)
    literal = literal_pfr
    if name == "cassle":
        inputs, old, literal = step.out.projected, term.old(step.views), literal_cassle
    bias = term.head[-1].bias
    term(step).loss.backward()
    direction = torch.randn(len(bias), generator=torch.Generator().manual_seed(3))
    values = []
    for change in (1e-2, -1e-2):
        with torch.no_grad():
            bias.add_(change * direction)
            values.append(literal(through(term.head, inputs), old))
            bias.sub_(change * direction)
    assert float((bias.grad * direction).sum()) == pytest.approx((values[0] - values[1]) / 2e-2, rel=1e-2)


def test_cassle_on_replay_asks_nothing_without_replay_and_bears_one_row() -> None:
    objective, term = later("cassle", on="replay")
    assert float(term(a_step(objective, fresh=4, replayed=0)).loss) == 0
    assert bool(torch.isfinite(term(a_step(objective, fresh=4, replayed=1)).loss))


def test_heads_have_the_papers_layers() -> None:
    def shapes(term: Cassle | Pfr) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for p in term.head.parameters() if p.ndim == 2]

    objective = small_objective()
    assert shapes(Cassle(objective)) == [(P, P), (P, P)]
    assert shapes(Cassle(objective, hidden=7)) == [(7, P), (P, 7)]
    assert shapes(Pfr(objective)) == [(D // 2, D), (D, D // 2)]
