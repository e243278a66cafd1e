"""What holds for every registered objective: it learns in a learner, goes on exactly from a save, and stays finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ocssl
from conftest import random_images, small_learner
from ocssl._core.random import single_sample
from ocssl.objectives import OBJECTIVES, Objective

NAMES = [name for name in OBJECTIVES if OBJECTIVES[name].per_sample != "none"]
WITH_BATCH_LOSS = {"barlow-twins", "vicreg", "emp-ssl", "cmp"}
FEW = {"emp-ssl": {"objective__patches": 4}, "cmp": {"objective__patches": 4}, "moco": {"objective__queue": 40}}


def learner(name: str, **more: Any) -> ocssl.Learner:
    return small_learner("er-fifo", objective__name=name, optimizer__lr=0.01, **FEW.get(name, {}), **more)


def made(name: str) -> Objective:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, 6, bias=False), nn.ReLU())
        objective = OBJECTIVES.build(name, None, encoder, 6, 12)
    objective.begin()
    return objective


def gradients(objective: Objective, views: Tensor) -> list[Tensor]:
    with single_sample(objective, alone=views.shape[1] == 1):
        out = objective(views)
    total = out.total(torch.ones_like(out.loss))
    assert total.isfinite()
    assert out.loss.isfinite().all()
    total.backward()
    return [p.grad for p in objective.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_moves_the_encoder_and_the_projector(name: str) -> None:
    made = learner(name)
    parts = {"encoder": made.objective.encoder, "projector": made.objective.projector}
    before = {part: [p.clone() for p in module.parameters()] for part, module in parts.items()}
    info = made.partial_fit(random_images(10))
    assert info.steps == 2
    for part, module in parts.items():
        assert any(not torch.equal(old, new) for old, new in zip(before[part], module.parameters(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_goes_on_exactly_from_a_save(name: str, tmp_path: Path) -> None:
    straight = learner(name)
    for k in range(3):
        straight.partial_fit(random_images(10, seed=k))
    straight.save(tmp_path / "save")
    resumed = ocssl.Learner.load(tmp_path / "save")
    for k in range(3, 5):
        assert straight.partial_fit(random_images(10, seed=k)) == resumed.partial_fit(random_images(10, seed=k))
    mine, theirs = straight.tensors(), resumed.tensors()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_training_lowers_the_loss_of_one_batch(name: str) -> None:
    objective = made(name)
    views = torch.randn(1, 16, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(objective.views, 16, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.SGD([p for p in objective.parameters() if p.requires_grad], 0.003, 0.9)
    losses = []
    for _ in range(60):
        out = objective(views + 0.1 * noise)
        loss = out.total(torch.ones(16))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_blank_and_single_images_give_finite_losses_and_gradients(name: str, batch: int) -> None:
    for strength in (0.0, 1.0):
        objective = made(name)
        noise = torch.randn(objective.views, batch, 3, 4, 4, generator=torch.Generator().manual_seed(8))
        found = gradients(objective, 1 + strength * noise)
        assert all(g.isfinite().all() for g in found)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_of_single_blank_images_is_learned_without_complaint(name: str) -> None:
    alone = learner(name, memory__capacity=0)
    for _ in range(3):
        alone.partial_fit(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    alone.require_finite()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_holds_the_graph_of_an_earlier_step(name: str) -> None:
    objective = made(name)
    for _ in range(2):
        gradients(objective, torch.randn(objective.views, 4, 3, 4, 4, generator=torch.Generator().manual_seed(3)))
        held = [*vars(objective).values(), *objective.buffers()]
        assert all(x.grad_fn is None for x in held if isinstance(x, Tensor))
        objective.after_step()


@pytest.mark.parametrize("name", NAMES)
def test_one_loss_for_the_batch_is_trained_exactly_where_samples_have_surrogates(name: str) -> None:
    objective = made(name)
    out = objective(torch.randn(objective.views, 4, 3, 4, 4, generator=torch.Generator().manual_seed(9)))
    assert (out.batch_loss is not None) == (objective.per_sample == "surrogate") == (name in WITH_BATCH_LOSS)


@pytest.mark.parametrize("name", NAMES)
def test_the_distance_is_finite_smallest_at_the_target_and_leaves_the_target_alone(name: str) -> None:
    objective = made(name)
    generator = torch.Generator().manual_seed(5)
    target = torch.randn(2, 6, 12, generator=generator).requires_grad_()
    prediction = torch.randn(2, 6, 12, generator=generator).requires_grad_()
    there, away = objective.distance(target.detach(), target), objective.distance(prediction, target)
    assert there < away
    away.backward()
    assert target.grad is None
    assert prediction.grad is not None
    for rows in (torch.zeros(2, 6, 12), torch.ones(2, 1, 12)):
        assert objective.distance(rows, rows).isfinite()


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_has_a_surrogate_or_loss_that_sees_its_own_views_disagree(name: str) -> None:
    objective = made(name).eval()
    alike = torch.randn(1, 8, 3, 4, 4, generator=torch.Generator().manual_seed(6)).repeat(objective.views, 1, 1, 1, 1)
    views = alike.clone()
    views[1:, 0] = torch.randn(objective.views - 1, 3, 4, 4, generator=torch.Generator().manual_seed(7))
    assert objective(views).loss[0] > objective(alike).loss[0]
