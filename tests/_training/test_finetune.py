"""Freezing and learning rates of parts of an encoder, against numbers written out by hand, for every encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ocssl
from conftest import random_images, small_learner, small_settings
from ocssl import learner as learner_module
from ocssl._training.finetune import ENCODER
from ocssl.encoders import ENCODERS, stages
from ocssl.errors import SettingError
from ocssl.objectives import OBJECTIVES
from ocssl.terms import TERMS
from small_encoders import small_encoder
from test_registries import with_objective, with_term

LABELS = list(ENCODERS)


def learner_of(label: str, **more: Any) -> ocssl.Learner:
    chosen = {f"encoder__{key}": value for key, value in small_encoder(label).items()}
    return small_learner("er-fifo", **{**chosen, **more})


def fit(learner: ocssl.Learner, minibatches: int = 2) -> None:
    for seed in range(minibatches):
        learner.partial_fit(random_images(6, seed=seed))
        if learner.settings.schedule.boundaries:
            learner.boundary()


def state(module: nn.Module) -> dict[str, Tensor]:
    """Weights, and the statistics of batch norm."""
    return {name: t.detach().clone() for name, t in module.state_dict().items() if "_random_passes" not in name}


def stage_of(name: str, known: dict[str, int]) -> int:
    """Of a weight, or of a buffer beside weights."""
    beside = [stage for other, stage in known.items() if other.rpartition(".")[0] == name.rpartition(".")[0]]
    return known.get(name, beside[0] if beside else -1)


def moved(label: str, frozen: int, **more: Any) -> set[int]:
    """The stages of an encoder that training changes, buffers included."""
    learner = learner_of(label, encoder__freeze=frozen, optimizer__lr=0.01, **more)
    known, before = stages(learner.encoder), state(learner.encoder)
    fit(learner)
    after = state(learner.encoder)
    return {stage_of(name, known) for name in before if not torch.equal(before[name], after[name])} - {-1}


@pytest.mark.parametrize("label", [label for label in LABELS if label != "tiny"])
def test_of_every_encoder_the_first_stages_stay_as_they_are_and_the_others_learn(label: str) -> None:
    known = set(stages(learner_of(label).encoder).values())
    assert known >= {0, 1, 2}
    assert moved(label, 0) == known
    assert moved(label, 2) == known - {0, 1}


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_with_every_objective_frozen_batch_norm_stays_frozen_in_copies_too(name: str) -> None:
    assert moved("resnet10", 3, **with_objective(name)) == {3, 4}


@pytest.mark.parametrize("name", list(TERMS))
def test_with_every_term_frozen_layers_stay_in_eval_mode_in_copies_too(name: str) -> None:
    learner = learner_of("resnet10", encoder__freeze=3, **with_term(name))
    fit(learner)
    encoders = [module for module in learner.network.modules() if getattr(module, ENCODER, False)]
    assert encoders
    for encoder in encoders:
        first = [encoder.stem[1], encoder.stages[0].bn1, encoder.stages[1].bn2]
        assert not any(norm.training for norm in first)


def test_the_test_would_see_batch_norm_that_is_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: weights stay, and layers are left in train mode."""
    monkeypatch.setattr(learner_module, "keep_frozen", lambda network: None)
    assert moved("resnet10", 2) == {0, 1, 2, 3, 4}


def test_evaluation_in_between_leaves_frozen_layers_frozen() -> None:
    learner = learner_of("resnet10", encoder__freeze=2)
    before = state(learner.encoder.stem)
    fit(learner)
    learner.transform(random_images(3))
    fit(learner)
    learner.partial_fit(random_images(1))  # batch norm of the others by running statistics
    assert all(torch.equal(before[name], tensor) for name, tensor in state(learner.encoder.stem).items())


@pytest.mark.parametrize("objective", ["simsiam", "byol", "dino"])
def test_frozen_batch_norm_keeps_its_statistics_in_layers_that_learn(objective: str) -> None:
    learner = learner_of("resnet10", encoder__batch_norm="frozen", objective__name=objective)
    statistics, weights = (dict(state(learner.encoder)) for _ in range(2))
    fit(learner)
    after = state(learner.encoder)
    assert all(torch.equal(after[name], statistics[name]) for name, _ in learner.encoder.named_buffers())
    assert any(not torch.equal(after[name], weights[name]) for name, _ in learner.encoder.named_parameters())
    heads = [head for head in learner.objective.projector.modules() if isinstance(head, nn.BatchNorm1d)]
    assert all(head.training for head in heads)
    with torch.no_grad():  # features of an image do not depend on the others of its batch
        images = learner.views.plain(random_images(6))
        torch.testing.assert_close(learner.encoder(images)[:2], learner.encoder(images[:2]))


def test_parts_by_name_are_frozen_and_nothing_else() -> None:
    names = ["stem.0", "stages.1.bn1", "stages.3"]
    learner = learner_of("resnet10", encoder__freeze=names)
    before = state(learner.encoder)
    fit(learner)
    same = {name for name, tensor in state(learner.encoder).items() if torch.equal(before[name], tensor)}
    assert same == {name for name in before if name.startswith(("stem.0.", "stages.1.bn1.", "stages.3."))}


@pytest.mark.parametrize(
    ("label", "freeze", "said"),
    [
        ("resnet10", 9, "this encoder has 5 stages"),
        ("tiny", 1, "has no numbered stages; name its parts"),
        ("resnet10", ["stages.9"], "nearest: stages.3"),
        ("resnet10", ["st"], r"encoder\.freeze names 'st', which is no part of the encoder; nearest: (\S+, ){3}\S+\.$"),
        ("resnet10", -1, "from 0 up"),
        ("resnet10", "stem", "encoder.freeze"),
    ],
)
def test_what_cannot_be_frozen_is_an_error(label: str, freeze: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        learner_of(label, encoder__freeze=freeze)


def test_a_learner_whose_encoder_is_frozen_as_a_whole_trains_its_heads_and_says_so() -> None:
    with pytest.warns(UserWarning, match="only heads learn"):
        learner = learner_of("resnet10", encoder__freeze=["stem", "stages"])
    features, head = learner.transform(random_images(4)), state(learner.objective.projector)
    fit(learner)
    assert (learner.transform(random_images(4)) == features).all()
    assert any(not torch.equal(head[name], tensor) for name, tensor in state(learner.objective.projector).items())


def test_a_frozen_learner_is_continued_bit_for_bit(tmp_path: Path) -> None:
    whole, first = (learner_of("resnet10", encoder__freeze=2, optimizer__layer_decay=0.5) for _ in range(2))
    fit(whole, 4)
    fit(first, 2)
    first.save(tmp_path)
    second = ocssl.Learner.load(tmp_path)
    for seed in range(2, 4):
        second.partial_fit(random_images(6, seed=seed))
    one, two = whole.tensors(), second.tensors()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


# ---- learning rates


def steps_of(label: str, **more: Any) -> dict[str, Tensor]:
    """How far one plain SGD step moves each weight of the network."""
    plain = {"optimizer__momentum": 0.0, "optimizer__weight_decay": 0.0, "optimizer__lr": 1e-2, "schedule__passes": 1}
    learner = learner_of(label, **plain, **more)
    before = {name: p.detach().double().clone() for name, p in learner.network.named_parameters()}
    learner.partial_fit(random_images(6))
    return {name: p.detach().double() - before[name] for name, p in learner.network.named_parameters()}


@pytest.fixture(scope="module", params=[label for label in LABELS if label != "tiny"])
def usual(request: pytest.FixtureRequest) -> tuple[str, dict[str, Tensor]]:
    return request.param, steps_of(request.param)


def compare(steps: dict[str, Tensor], usual: dict[str, Tensor], factors: dict[str, float]) -> None:
    assert any(bool(step.abs().max() > 1e-6) for step in usual.values())
    for name, step in steps.items():
        torch.testing.assert_close(step, factors.get(name, 1.0) * usual[name], atol=3e-7, rtol=1e-3)


def test_a_factor_on_the_encoders_rate_scales_its_steps_and_no_others(usual: tuple[str, dict[str, Tensor]]) -> None:
    label, steps = usual
    factors = {name: 0.25 for name in steps if name.startswith("objective.encoder.")}
    compare(steps_of(label, optimizer__encoder_lr=0.25), steps, factors)
    with pytest.raises(AssertionError):
        compare(steps_of(label, optimizer__encoder_lr=0.25), steps, {})


@pytest.mark.parametrize("method", ["solar", "solar-c", "cla-e", "pocon"])  # also with copies of the encoder
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_encoder_rests_for_as_many_steps_as_is_said_while_the_heads_learn(method: str, optimizer: str) -> None:
    more = {"optimizer__name": optimizer, "optimizer__encoder_start": 2, "schedule__passes": 1}
    learner = ocssl.Learner(method, image_size=8, settings=small_settings(method, **more))
    moved = []
    for seed in range(4):
        encoder, head = state(learner.objective.encoder), state(learner.objective.projector)
        learner.partial_fit(random_images(6, seed=seed))
        moved.append([changed(encoder, learner.objective.encoder), changed(head, learner.objective.projector)])
    assert moved == [[False, True], [False, True], [True, True], [True, True]]


def changed(before: dict[str, Tensor], module: nn.Module) -> bool:
    return any(not torch.equal(before[name], parameter) for name, parameter in module.named_parameters())


def test_a_learner_is_continued_bit_for_bit_while_its_encoder_rests(tmp_path: Path) -> None:
    whole, first = (learner_of("resnet10", optimizer__encoder_start=3, schedule__passes=1) for _ in range(2))
    fit(whole, 5)
    fit(first, 2)
    first.save(tmp_path)
    second = ocssl.Learner.load(tmp_path)
    for seed in range(2, 5):
        second.partial_fit(random_images(6, seed=seed))
    one, two = whole.tensors(), second.tensors()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_layer_wise_decay_scales_every_stage_by_its_distance_from_the_heads(
    usual: tuple[str, dict[str, Tensor]],
) -> None:
    label, steps = usual
    known = stages(learner_of(label).encoder)
    numbered = (".layer.", ".layers.", "blocks.", "stages.")
    inside = {name for name in known if any(word in name for word in numbered)}
    top = max(known[name] for name in inside) + 1  # what comes after the last block has the heads' own rate
    factors = {f"objective.encoder.{name}": 0.5 ** (top - stage) for name, stage in known.items()}
    assert len({*factors.values()}) >= 3
    compare(steps_of(label, optimizer__layer_decay=0.5), steps, factors)


def test_stages_of_a_vision_transformer_are_its_patches_then_its_blocks_then_its_last_norm() -> None:
    known = stages(learner_of("vit").encoder)
    assert {name: stage for name, stage in known.items() if not name.startswith("blocks.")} == {
        "token": 0,
        "position": 0,
        "patches.weight": 0,
        "patches.bias": 0,
        "norm.weight": 3,
        "norm.bias": 3,
    }
    assert {known[name] for name in known if name.startswith("blocks.0.")} == {1}
    assert {known[name] for name in known if name.startswith("blocks.1.")} == {2}


def test_a_decay_where_there_are_no_stages_is_an_error() -> None:
    with pytest.raises(SettingError, match="no numbered stages"):
        learner_of("tiny", optimizer__layer_decay=0.5)


@pytest.mark.parametrize("factor", [-1.0, float("nan"), "x"])
def test_a_wrong_factor_is_an_error(factor: Any) -> None:
    with pytest.raises(SettingError, match=r"optimizer\.encoder_lr"):
        ocssl.Learner("solar", image_size=8, settings={**small_settings("solar"), "optimizer.encoder_lr": factor})
