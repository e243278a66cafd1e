"""What fits together is built; what does not is refused at set-up, in one sentence that says what to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ocssl
from conftest import random_images, small_learner
from ocssl.errors import SettingError
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.weights import batch_norms

RANKING_KEEPS = [name for name in KEEPS if "loss" in KEEPS[name].needs]
RANKING_DRAWS = [name for name in DRAWS if "loss" in DRAWS[name].needs]
BATCH_LOSS = [name for name in OBJECTIVES if OBJECTIVES[name].per_sample == "surrogate"]


def test_the_lists_of_this_file_are_not_empty() -> None:
    assert {"highest-loss", "lars"} <= set(RANKING_KEEPS)
    assert {"high-loss", "per", "mir"} <= set(RANKING_DRAWS)
    assert {"barlow-twins", "vicreg"} <= set(BATCH_LOSS)


@pytest.mark.parametrize("keep", RANKING_KEEPS)
def test_a_keep_rule_that_ranks_by_loss_refuses_an_objective_without_one(keep: str) -> None:
    with pytest.raises(SettingError, match=f"memory.keep '{keep}' goes by the loss of each sample") as refusal:
        small_learner("scale", memory__keep=keep)
    assert str(refusal.value).count(".") == 2  # one sentence; the other dot is in the setting's name


@pytest.mark.parametrize("draw", RANKING_DRAWS)
def test_a_draw_rule_that_ranks_by_loss_refuses_an_objective_without_one(draw: str) -> None:
    with pytest.raises(SettingError, match=f"memory.draw '{draw}' goes by the loss of each sample"):
        small_learner("scale", memory__draw=draw)


def test_the_overlap_term_refuses_an_objective_without_losses() -> None:
    with pytest.raises(SettingError, match="term 'overlap' goes by the loss"):
        small_learner("scale", terms__overlap__weight=1.0)


def test_an_objective_without_loss_needs_a_term() -> None:
    with pytest.raises(SettingError, match="nothing to learn"):
        small_learner("scale", terms__scale__weight=0.0)


@pytest.mark.parametrize("objective", BATCH_LOSS)
def test_importance_weights_refuse_a_loss_of_the_whole_batch(objective: str) -> None:
    with pytest.raises(SettingError, match="weighs the loss of each sample"):
        small_learner("per", objective__name=objective)
    learner = small_learner("per", objective__name=objective, memory__rules__per__importance=False)
    assert learner.partial_fit(random_images(5)).steps == 2


def test_samples_that_are_never_trained_on_must_be_admitted_before() -> None:
    with pytest.raises(SettingError, match="must be before, not last"):
        small_learner("er-fifo", schedule__stream_in="none")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"objective__temprature": 1}, "objective.temperature"),
        ({"memory__keep": "min-red"}, "minred"),
        ({"terms__cla": {"weight": 1}}, "did you mean"),
        ({"memory__rules__lars__victm": "argmin"}, "victim"),
        ({"schedule__admit": "never"}, "before"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(SettingError, match=hint):
        small_learner("er-fifo", objective__name="simclr", **given)


# ---- MinRed's way in


def norms(learner: ocssl.Learner) -> list[Tensor]:
    return [t.clone() for norm in batch_norms(learner.network) for t in (norm.running_mean, norm.num_batches_tracked)]


def test_a_glance_measures_the_plain_images_in_eval_mode_and_changes_nothing() -> None:
    learner = small_learner("minred")
    for i in range(3):
        learner.partial_fit(random_images(5, seed=i))
    images, before = random_images(5, seed=9), norms(learner)
    state = learner._view_generator.get_state()
    rows = learner._glance(images)
    assert all(torch.equal(a, b) for a, b in zip(norms(learner), before, strict=True))
    assert torch.equal(learner._view_generator.get_state(), state)
    torch.testing.assert_close(rows["feature"], torch.from_numpy(learner.transform(images)))
    learner.objective.eval()
    projected = learner.objective.projector(rows["feature"])
    torch.testing.assert_close(rows["projected"], projected.detach())
    assert float(rows["angle"].max()) < 1e-5


def test_minred_trains_on_replay_alone_and_newcomers_are_in_memory_before_the_first_pass() -> None:
    learner = small_learner("minred")
    learner.partial_fit(random_images(5))
    table = learner.memory.table()
    assert len(table["id"]) == 5
    assert (table["draws"] == 2).all()  # both passes drew all five
