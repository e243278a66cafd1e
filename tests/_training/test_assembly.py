"""What fits together is built; what does not is refused at set-up, in one sentence that says what to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ocssl
from conftest import random_images, small_learner
from ocssl._core.random import batch_norms
from ocssl.errors import SettingError
from ocssl.memory import DRAWS, KEEPS
from ocssl.memory.draw import Per
from ocssl.objectives import OBJECTIVES

RANKING_KEEPS = [name for name in KEEPS if "loss" in KEEPS[name].needs or KEEPS[name].asks]
RANKING_DRAWS = [name for name in DRAWS if "loss" in DRAWS[name].needs or DRAWS[name].asks]
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
    with pytest.raises(SettingError, match=r"trains nothing: .*\(osiris-d or osiris-r or scale\)"):
        small_learner("scale", terms__scale__weight=0.0)
    with pytest.raises(SettingError, match="trains nothing"):
        small_learner("er-fifo", objective__weight=0.0)


@pytest.mark.parametrize("objective", BATCH_LOSS)
def test_importance_weights_refuse_a_loss_of_the_whole_batch(objective: str) -> None:
    with pytest.raises(SettingError, match="weighs the loss of each sample"):
        small_learner("per", objective__name=objective)
    learner = small_learner("per", objective__name=objective, memory__rules__per__importance=False)
    assert learner.partial_fit(random_images(5)).steps == 2


def test_a_whole_loss_is_the_same_whatever_the_objective() -> None:
    """SCALE's cell of the paper's Table 7: its loss does not depend on the objective, whose own loss has weight 0."""
    learner = small_learner("scale", objective__name="simclr")
    info = learner.partial_fit(random_images(5))
    assert info.loss == pytest.approx(info.terms["scale"])
    assert info.ssl > 0
    with pytest.raises(SettingError, match="trains none: change one of them"):
        small_learner("scale", objective__name="simclr", memory__keep="highest-loss")


def test_another_objective_leaves_the_options_of_the_recipes_own_behind() -> None:
    learner = small_learner("sycon", objective__name="simsiam")
    learner.partial_fit(random_images(5))
    learner.boundary()
    assert learner.partial_fit(random_images(5)).terms["sycon"] != 0
    assert learner.settings.objective.model_extra == {}
    assert small_learner("sycon", objective__name="simclr").objective.temperature == 0.2
    assert small_learner("sycon", objective__name="moco", objective__temperature=0.1).objective.temperature == 0.1


@pytest.mark.parametrize(("objective", "low"), [("simsiam", -1.0), ("simclr", 0.0), ("byol", 0.0), ("moco", 0.0)])
def test_priorities_begin_at_the_objectives_lowest_loss(objective: str, low: float) -> None:
    rule = small_learner("per", objective__name=objective).memory.draw_rule
    assert isinstance(rule, Per)
    assert rule.low == low
    rule = small_learner("per", objective__name=objective, memory__rules__per__low=-3.0).memory.draw_rule
    assert isinstance(rule, Per)
    assert rule.low == -3


@pytest.mark.parametrize(
    ("method_", "given", "complaint"),
    [
        ("solar", {"schedule__mix": 0.4}, "stream_in must be all"),
        ("lump", {"memory__keep": "highest-loss"}, "trains on mixtures only"),
        ("lump", {"memory__keep": "minred"}, "trains on mixtures only"),
        ("lump", {"memory__draw": "per"}, "trains on mixtures only"),
        ("lump", {"terms__overlap__weight": 1.0}, "trains on mixtures only"),
        ("lump", {"terms__cla-e__weight": 1.0}, "no rows left"),
        ("osiris-r", {"schedule__mix": 0.4}, "no rows left"),
        ("osiris-r", {"objective__name": "cmp"}, "works with two views"),
        ("scale", {"schedule__stream_in": "none", "schedule__admit": "before"}, "learns from stream samples"),
        ("finetune", {"terms__cla-r__weight": 1.0}, "memory.capacity must be above 0"),
        ("cassle", {"terms__cassle__on": "replay"}, "learns from replayed samples"),
        ("cassle", {"terms__cassle__on": "replay", "memory__capacity": 24}, "stream_batch below"),
        ("solar", {"terms__overlap__k": True}, "not a switch"),
        ("solar", {"objective__weight": True}, "true and false"),
        ("solar", {"objective__projection": True}, "true and false"),
        ("solar", {"objective__weight": float("inf")}, "finite"),
        ("solar", {"terms__overlap__weight": True}, "not a switch"),
    ],
)
def test_what_would_do_nothing_is_refused(method_: str, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        small_learner(method_, **given)


@pytest.mark.parametrize("draw", ["uniform", "least-drawn", "mir"])
def test_mixing_pairs_with_rules_that_need_no_statistics(draw: str) -> None:
    learner = small_learner("lump", memory__draw=draw)
    for i in range(4):
        assert learner.partial_fit(random_images(5, seed=i)).steps == 2 * i + 2


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
