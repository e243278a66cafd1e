"""CLA-E and CLA-R against their literal formulas; targets are constants, and as old as they should be."""

from __future__ import annotations

import pytest
import torch
from making import P, a_step, average, cosine, gradients, made, small_objective, train
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl.objectives import Objective
from ocssl.terms import ClaE, ClaR, Step


def pairs(aligned: Tensor, target: Tensor) -> float:
    """-mean over rows and views of the cosine."""
    rows = [cosine(aligned[v, i], target[v, i]) for v in range(len(aligned)) for i in range(aligned.shape[1])]
    return -average(rows)


def through(head: nn.Module, views: Tensor) -> Tensor:
    return torch.stack([head(view) for view in views])


def lagging(on: str = "all") -> tuple[Objective, ClaE]:
    objective = small_objective()
    term = made("cla-e", objective, momentum=0.7, on=on)
    assert isinstance(term, ClaE)
    for _ in range(2):
        train(objective, term)
    return objective, term


@pytest.mark.parametrize("on", ["all", "replay"])
def test_cla_e_is_the_mean_cosine_with_the_following_network(on: str) -> None:
    objective, term = lagging(on)
    step = a_step(objective, fresh=3, replayed=5)
    first = 0 if on == "all" else 3
    target = torch.stack([term.teacher.projector(term.teacher.encoder(view)) for view in step.views])[:, first:]
    wanted = pairs(through(term.head, step.out.projected[:, first:]), target)
    assert float(term(step).loss.detach()) == pytest.approx(wanted, abs=1e-5)


def test_the_oracle_catches_targets_of_the_other_view_and_of_the_network_itself() -> None:
    objective, term = lagging()
    step = a_step(objective)
    got = float(term(step).loss.detach())
    aligned, target = through(term.head, step.out.projected), term.teacher(step.views)
    for wrong in (target.flip(0), step.out.projected):
        with pytest.raises(AssertionError):
            assert got == pytest.approx(pairs(aligned, wrong), abs=1e-5)


def test_cla_es_network_equals_the_objective_at_first_and_lags_afterwards() -> None:
    objective = small_objective()
    term = made("cla-e", objective, momentum=0.9)
    assert isinstance(term, ClaE)
    own, new = list(term.teacher.parameters()), [*objective.encoder.parameters(), *objective.projector.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(own, new, strict=True))
    before = [p.clone() for p in new]
    train(objective, term)
    for lag, old, now in zip(own, before, new, strict=True):
        torch.testing.assert_close(lag, 0.9 * old + 0.1 * now)


def test_cla_es_network_is_a_copy_that_sees_batches_and_is_not_trained_by_the_optimizer() -> None:
    learner = small_learner("er-fifo", **{"terms.cla-e.weight": 0.1})
    trained = {id(p) for group in learner._optimizer.param_groups for p in group["params"]}
    term = learner.terms["cla-e"]
    assert isinstance(term, ClaE)
    assert not any(id(p) in trained for p in term.teacher.parameters())
    assert all(module.training for module in term.teacher.modules())  # batch norm by the statistics of the batch
    for name, tensor in learner.objective.encoder.state_dict().items():
        assert torch.equal(tensor, term.teacher.encoder.state_dict()[name])
    assert all(id(p) in trained for p in term.head.parameters())


@pytest.mark.parametrize("name", ["cla-e", "cla-r"])
def test_nothing_is_asked_without_replay(name: str) -> None:
    objective = small_objective()
    penalty = made(name, objective)(a_step(objective, fresh=4, replayed=0))
    assert float(penalty.loss) == 0
    assert not penalty.loss.requires_grad


def remembered(step: Step) -> Tensor:
    return step.memory.store["projected"][step.replay.slots].expand(2, -1, -1)


def test_cla_r_is_the_mean_cosine_of_replayed_rows_with_what_their_slots_remember() -> None:
    objective = small_objective()
    term = made("cla-r", objective)
    assert isinstance(term, ClaR)
    step = a_step(objective, fresh=3, replayed=5)
    wanted = pairs(through(term.head, step.out.projected[:, 3:]), remembered(step))
    assert float(term(step).loss.detach()) == pytest.approx(wanted, abs=1e-5)


def test_the_oracle_catches_stream_rows_taken_for_replayed_ones() -> None:
    objective = small_objective()
    term = made("cla-r", objective)
    step = a_step(objective, fresh=3, replayed=5)
    wrong = pairs(through(term.head, step.out.projected[:, :5]), remembered(step))
    with pytest.raises(AssertionError):
        assert float(term(step).loss.detach()) == pytest.approx(wrong, abs=1e-5)


def test_cla_r_reads_its_targets_before_they_are_refreshed() -> None:
    learner = small_learner("er-fifo", **{"terms.cla-r.weight": 0.1, "schedule.passes": 1})
    learner.partial_fit(random_images(20))
    seen: list[Tensor] = []
    term = learner.terms["cla-r"]
    ask = term.forward

    def watched(step: Step) -> object:
        seen.extend([step.replay.slots, step.memory.store["projected"][step.replay.slots]])
        return ask(step)

    term.forward = watched
    before = learner.memory.store["projected"].clone()
    learner.partial_fit(random_images(4, seed=1))
    slots, target = seen
    assert len(slots) == 12
    assert torch.equal(target, before[slots])
    kept = learner.memory.store["id"][slots] < 20
    assert not torch.equal(learner.memory.store["projected"][slots[kept]], target[kept])


@pytest.mark.parametrize("name", ["cla-e", "cla-r"])
def test_gradients_reach_the_network_and_the_head_and_no_target(name: str) -> None:
    objective, _ = lagging()
    term = made(name, objective)
    step = a_step(objective)
    term(step).loss.backward()
    assert gradients(objective.encoder) > 0
    assert gradients(term.head) > 0
    assert gradients(getattr(term, "teacher", nn.Identity())) == 0
    assert not step.memory.store["projected"].requires_grad


def test_the_gradient_equals_finite_differences_of_the_literal_formula() -> None:
    objective, term = lagging()
    step = a_step(objective)
    target = term.teacher(step.views)
    bias = term.head[-1].bias
    term(step).loss.backward()
    direction = torch.randn(P, generator=torch.Generator().manual_seed(3))
    values = []
    for change in (1e-2, -1e-2):
        with torch.no_grad():
            bias.add_(change * direction)
            values.append(pairs(through(term.head, step.out.projected), target))
            bias.sub_(change * direction)
    slope = (values[0] - values[1]) / 2e-2
    assert float((bias.grad * direction).sum()) == pytest.approx(slope, rel=1e-2)


@pytest.mark.parametrize("name", ["cla-e", "cla-r"])
def test_one_replayed_row_in_a_batch_is_enough(name: str) -> None:
    objective = small_objective()
    term = made(name, objective, **({"on": "replay"} if name == "cla-e" else {}))
    loss = term(a_step(objective, fresh=3, replayed=1)).loss
    loss.backward()
    assert -1 <= float(loss.detach()) <= 1
    assert all(module.training for module in term.head.modules())


def test_heads_are_bottlenecks_of_a_quarter() -> None:
    learner = small_learner("er-fifo", **{"terms.cla-e.weight": 0.1, "objective.projection": 2048})
    shapes = [tuple(p.shape) for p in learner.terms["cla-e"].head.parameters() if p.ndim == 2]
    assert shapes == [(512, 2048), (2048, 512)]
