"""MoCo against its literal float64 formula and a literal queue."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl import Learner
from ocssl._core.random import frozen_statistics
from ocssl.objectives import MoCo
from ocssl.objectives.moco import moco_loss


def literal(query: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    losses = []
    for q, k in zip(query.double().tolist(), key.double().tolist(), strict=True):
        shares = [math.exp(sum(a * b for a, b in zip(q, x, strict=True)) / temperature) for x in [k, *queue.tolist()]]
        losses.append(-math.log(shares[0] / sum(shares)))
    return torch.tensor(losses, dtype=torch.float64)


def units(n: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(n, 9, generator=torch.Generator().manual_seed(seed)))


def small(symmetric: bool = False, queue: int = 20, momentum: float = 0.999) -> MoCo:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU())
    objective = MoCo(encoder, 5, 16, queue=queue, symmetric=symmetric, momentum=momentum)
    objective.begin()
    return objective


def views(seed: int = 4, batch: int = 6) -> Tensor:
    return torch.randn(2, batch, 3, 2, 2, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("filled", [1, 7, 12])
def test_the_loss_is_the_literal_formula_over_the_filled_part_of_the_queue(filled: int) -> None:
    query, key, queue = units(6, 0), units(6, 1), units(12, 2)
    found = moco_loss(query, key, queue, torch.tensor(filled), 0.2)
    torch.testing.assert_close(found, literal(query, key, queue[:filled], 0.2).float(), atol=1e-5, rtol=1e-5)


def test_the_oracle_catches_misaligned_positives_and_unfilled_rows() -> None:
    query, key, queue = units(6, 0), units(6, 1), units(12, 2)
    queue[7:] = 0
    expected = literal(query, key, queue[:7], 0.2).float()
    misaligned = moco_loss(query, key.roll(1, 0), queue, torch.tensor(7), 0.2)
    with_zeros = moco_loss(query, key, queue, torch.tensor(12), 0.2)
    for wrong in (misaligned, with_zeros):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(wrong, expected, atol=1e-5, rtol=1e-5)


def test_while_the_queue_is_empty_the_keys_of_the_other_samples_are_negatives() -> None:
    query, key = units(6, 0), units(6, 1)
    found = moco_loss(query, key, torch.zeros(12, 9), torch.tensor(0), 0.2)
    torch.testing.assert_close(found, F.cross_entropy(query @ key.T / 0.2, torch.arange(6), reduction="none"))


def test_gradients_equal_finite_differences() -> None:
    query, key, queue = units(6, 0).requires_grad_(), units(6, 1), units(12, 2)
    moco_loss(query, key, queue, torch.tensor(12), 0.2).sum().backward()
    direction = torch.randn(6, 9, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    at = query.detach().double()
    up, down = (float(literal(at + s * direction, key, queue, 0.2).sum()) for s in (1e-3, -1e-3))
    assert query.grad is not None
    assert float((query.grad * direction).sum()) == pytest.approx((up - down) / 2e-3, rel=1e-3)


@pytest.mark.parametrize("symmetric", [False, True])
def test_steps_equal_the_literal_method_with_a_list_as_queue(symmetric: bool) -> None:
    objective, queue = small(symmetric), torch.zeros(0, 16)
    for step in range(6):
        batch = views(step)
        out = objective(batch)
        q1, q2 = (F.normalize(z) for z in out.projected.detach())
        with frozen_statistics(objective):
            k1, k2 = (F.normalize(z) for z in objective.target(batch))
        if len(queue):
            expected = literal(q1, k2, queue, 0.07)
            if symmetric:
                expected = (expected + literal(q2, k1, queue, 0.07)) / 2
            torch.testing.assert_close(out.loss, expected.float(), atol=1e-4, rtol=1e-4)
        queue = torch.cat([queue, *([k1] if symmetric else []), k2])[-20:]
        objective.after_step()
        torch.testing.assert_close(held(objective), queue, atol=1e-6, rtol=1e-5)


def held(objective: MoCo) -> Tensor:
    """The queue's keys, oldest first."""
    seen, size = int(objective.enqueued), len(objective.queue)
    return objective.queue[:seen] if seen <= size else objective.queue.roll(-(seen % size), 0)


def test_a_batch_larger_than_the_queue_leaves_its_last_keys() -> None:
    objective = small(queue=4)
    objective(views())
    keys = objective._pending
    objective.after_step()
    assert keys is not None
    assert torch.equal(held(objective), keys[-4:])


def test_of_several_forward_passes_the_last_ones_keys_are_queued_once() -> None:
    often, once = small(), small()
    with torch.no_grad():
        often(views(1))
        often(views(2, batch=3))
    for objective in (often, once):
        objective(views(3))
        objective.after_step()
    torch.testing.assert_close(often.queue, once.queue)
    assert often.enqueued == once.enqueued == 6
    often.after_step()
    assert often.enqueued == 6


def test_forward_changes_no_queue_and_no_weight() -> None:
    objective = small()
    objective(views())
    objective.after_step()
    kept = {n: t.clone() for n, t in objective.state_dict().items() if "running" not in n and "tracked" not in n}
    objective(views(5))
    assert all(torch.equal(objective.state_dict()[name], tensor) for name, tensor in kept.items())


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


def compare_copy_and_queue(method: str = "er-fifo", broken: Callable[[Learner], None] | None = None) -> None:
    """The copy is 0.999 x itself + 0.001 x the weights after each step; the queue has each step's last keys."""
    learner = small_learner(method, objective__name="moco", objective__queue=40, optimizer__lr=0.5)
    objective, passed, queue = learner.objective, list[Tensor](), torch.zeros(0, 16)
    objective.target.register_forward_hook(lambda module, args, output: passed.append(output[-1]))
    expected, history = weights(learner), recorded(learner)
    step = learner._optimizer.step

    def watched() -> None:
        nonlocal queue
        queue = torch.cat([queue, F.normalize(passed[-1])])[-40:]
        step()

    learner._optimizer.step = watched
    if broken:
        broken(learner)
    for seed in range(3):
        learner.partial_fit(random_images(6, seed=seed))
        for now in history:
            expected = [0.999 * old + 0.001 * new for old, new in zip(expected, now, strict=True)]
        history.clear()
        for got, wanted in zip(objective.target.parameters(), expected, strict=True):
            torch.testing.assert_close(got.double(), wanted, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(held(objective), queue)
    assert learner.steps == 6
    assert len(queue) == 40


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


def out_of_order(learner: Learner) -> None:
    """Broken: the keys of a step enter the queue last one first."""
    objective = learner.objective
    move = objective.after_step

    def turned() -> None:
        objective._pending = objective._pending.flip(0)
        move()

    objective.after_step = turned


@pytest.mark.parametrize("method", ["er-fifo", "mir"])  # mir asks for losses before each step
def test_in_a_learner_copy_and_queue_are_those_of_every_step_in_order(method: str) -> None:
    compare_copy_and_queue(method)


@pytest.mark.parametrize("broken", [never, too_early, out_of_order])
def test_the_comparison_in_a_learner_catches_copies_and_queues_that_move_otherwise(
    broken: Callable[[Learner], None],
) -> None:
    with pytest.raises(AssertionError):
        compare_copy_and_queue(broken=broken)


def compare_keys(objective: MoCo) -> None:
    """At first the copy is the network: its keys are the network's own projections, normalised by the batch."""
    out = objective(views())
    objective.after_step()
    torch.testing.assert_close(held(objective), F.normalize(out.projected[1].detach()), atol=1e-5, rtol=1e-5)


def test_keys_are_made_with_the_statistics_of_the_batch() -> None:
    compare_keys(small())
    compare_keys(small().eval().train())
    broken = small()
    broken.target.eval()
    with pytest.raises(AssertionError):  # running statistics
        compare_keys(broken)


def test_keys_are_unit_vectors_without_a_graph() -> None:
    objective = small()
    objective(views())
    objective.after_step()
    torch.testing.assert_close(objective.queue[:6].norm(dim=1), torch.ones(6))
    assert not objective.queue.requires_grad
    objective(views(5)).loss.mean().backward()
    assert all(p.grad is None for p in objective.target.parameters())


def test_the_copy_follows_after_the_keys_were_queued() -> None:
    objective = small(momentum=0.0)
    before = [p.clone() for p in objective.target.parameters()]
    with torch.no_grad():
        for p in objective.encoder.parameters():
            p.mul_(2)
    objective(views())
    objective.after_step()
    for own, online in zip(objective.target.encoder.parameters(), objective.encoder.parameters(), strict=True):
        assert torch.equal(own, online)
    assert any(not torch.equal(a, b) for a, b in zip(before, objective.target.parameters(), strict=True))


def test_the_loss_is_exact_under_autocast() -> None:
    query, key, queue = units(6, 0), units(6, 1), units(12, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = moco_loss(query, key, queue, torch.tensor(12), 0.07)
    torch.testing.assert_close(found, moco_loss(query, key, queue, torch.tensor(12), 0.07))
