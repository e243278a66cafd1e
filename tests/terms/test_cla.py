"""CLA-E and CLA-R against their literal formulas; targets are constants, and as old as they should be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from making import P, a_step, average, cosine, gradients, made, small_objective, train
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl import Learner
from ocssl.objectives import Objective
from ocssl.objectives.teachers import Teacher
from ocssl.terms import ClaE, ClaR, Penalty, Step


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


def compare_teacher(broken: Callable[[Learner], None] | None = None) -> None:
    """The teacher is 0.999 x itself + 0.001 x the weights after every optimizer step, from the first weights on."""
    learner = small_learner("cla-e", optimizer__lr=0.5)
    term = learner.terms["cla-e"]
    assert isinstance(term, ClaE)
    expected, history = weights(learner), recorded(learner)
    if broken:
        broken(learner)
    for seed in range(3):
        learner.partial_fit(random_images(6, seed=seed))
        for now in history:
            expected = [0.999 * old + 0.001 * new for old, new in zip(expected, now, strict=True)]
        history.clear()
        for got, wanted in zip(term.teacher.parameters(), expected, strict=True):
            torch.testing.assert_close(got.detach().double(), wanted, atol=1e-6, rtol=1e-6)
    assert learner.steps == 6


def never(learner: Learner) -> None:
    """Broken: what comes after a step is left out."""
    learner.terms["cla-e"].after_step = lambda objective: None


def too_early(learner: Learner) -> None:
    """Broken: what comes after a step comes before it."""
    move, step = learner.terms["cla-e"].after_step, learner._optimizer.step
    never(learner)

    def turned() -> None:
        move(learner.objective)
        step()

    learner._optimizer.step = turned


def test_in_a_learner_the_teacher_is_the_moving_average_of_the_weights_after_every_step() -> None:
    compare_teacher()


@pytest.mark.parametrize("broken", [never, too_early])
def test_the_comparison_in_a_learner_catches_a_teacher_that_moves_too_early_or_never(
    broken: Callable[[Learner], None],
) -> None:
    with pytest.raises(AssertionError):
        compare_teacher(broken)


def require_an_untrained_teacher() -> None:
    learner = small_learner("er-fifo", **{"terms.cla-e.weight": 0.1})
    trained = {id(p) for p in learner._optimizer.parameters.values()}
    term = learner.terms["cla-e"]
    assert isinstance(term, ClaE)
    assert not any(id(p) in trained for p in term.teacher.parameters())
    assert all(module.training for module in term.teacher.modules())  # batch norm by the statistics of the batch
    for name, tensor in learner.objective.encoder.state_dict().items():
        assert torch.equal(tensor, term.teacher.encoder.state_dict()[name])
    assert all(id(p) in trained for p in term.head.parameters())


def test_cla_es_network_is_a_copy_that_sees_batches_and_is_not_trained_by_the_optimizer() -> None:
    require_an_untrained_teacher()


def test_a_teacher_that_the_optimizer_trains_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Teacher, "requires_grad_", lambda self, wanted: self)
    monkeypatch.setattr(Teacher, "forward", Teacher.forward.__wrapped__)  # without no_grad
    for check in (require_an_untrained_teacher, compare_teacher):
        with pytest.raises(AssertionError):
            check()


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


def compare_age_of_targets(refresh: Callable[[Step], None]) -> None:
    """The loss in a learner is that with what the slots remembered before the step; they are refreshed after it."""
    learner = small_learner("cla-r", **{"schedule.passes": 1})
    learner.partial_fit(random_images(20))
    losses: list[float] = []
    slots: list[int] = []
    term = learner.terms["cla-r"]
    ask = term.forward
    before = learner.memory.store["projected"].clone()

    def watched(step: Step) -> Penalty:
        slots.extend(step.replay.slots.tolist())
        target = before[step.replay.slots].expand(2, -1, -1)
        losses.append(pairs(through(term.head, step.out.projected[:, step.fresh :]), target))
        refresh(step)
        penalty: Penalty = ask(step)
        losses.append(float(penalty.loss.detach()))
        return penalty

    term.forward = watched
    learner.partial_fit(random_images(4, seed=1))
    wanted, got = losses
    assert got == pytest.approx(wanted, abs=1e-5)
    kept = [slot for slot in slots if learner.memory.store["id"][slot] < 20]
    assert kept
    assert not torch.equal(learner.memory.store["projected"][kept], before[kept])


def test_cla_r_reads_its_targets_before_they_are_refreshed() -> None:
    compare_age_of_targets(lambda step: None)


def test_targets_that_are_read_after_the_refresh_are_caught() -> None:
    with pytest.raises(AssertionError):
        compare_age_of_targets(lambda s: s.memory.refresh(s.replay, s.measured.rows(slice(s.fresh, None))))


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
