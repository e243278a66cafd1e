"""Promises that every registered part keeps inside a learner: same bits, exact resume, finite and trained.

A part that is added to a registry is tested here without a line of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ocssl
from conftest import random_images, small_learner
from ocssl._training.optimizer import OPTIMIZERS
from ocssl.encoders import ENCODERS
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.terms import TERMS
from small_encoders import small_encoder

MANY_VIEWS = {"objective__patches": 3}


def with_objective(name: str) -> dict[str, Any]:
    more: dict[str, Any] = {"objective__name": name}
    if name == "none":
        more["terms__scale__weight"] = 1.0
    if "patches" in OBJECTIVES.options(name):
        more |= MANY_VIEWS
    if "queue" in OBJECTIVES.options(name):
        more["objective__queue"] = 40
    return more


def with_term(name: str) -> dict[str, Any]:
    more: dict[str, Any] = {f"terms__{name}__weight": TERMS.options(name)["weight"].default}
    if TERMS[name].boundaries:
        more["schedule__boundaries"] = True
    if TERMS[name].replaces_objective:
        more["objective__name"] = "none"
    return more


PARTS = {
    **{f"objective {name}": with_objective(name) for name in OBJECTIVES},
    **{f"term {name}": with_term(name) for name in TERMS},
    **{f"keep {name}": {"memory__keep": name} for name in KEEPS},
    **{f"draw {name}": {"memory__draw": name} for name in DRAWS},
    **{f"encoder {name}": {"encoder__label": name} for name in ENCODERS},
    **{f"optimizer {name}": {"optimizer__name": name} for name in OPTIMIZERS},
}


@pytest.fixture(params=PARTS)
def part(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A replay learner with one registered part in place of its own."""
    part = dict(PARTS[request.param])
    if (label := part.pop("encoder__label", None)) is not None:
        part |= {f"encoder__{key}": value for key, value in small_encoder(label).items()}
    return part


def fit(learner: ocssl.Learner, start: int, stop: int) -> list[Any]:
    images = random_images(200)
    infos = []
    for i in range(start, stop):
        infos.append(learner.partial_fit(images[5 * i : 5 * i + 5]))
        if learner.settings.schedule.boundaries and i % 4 == 3:
            learner.boundary()
    return infos


def same(a: ocssl.Learner, b: ocssl.Learner) -> bool:
    x, y = a.tensors(), b.tensors()
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x) and a.facts() == b.facts()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_global_state_is_left_alone(part: dict[str, Any]) -> None:
    torch.manual_seed(1)
    first = small_learner("er-fifo", **part)
    one = fit(first, 0, 9)
    state = torch.manual_seed(2).get_state()
    second = small_learner("er-fifo", **part)
    assert fit(second, 0, 9) == one
    assert same(first, second)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("stop", [2, 7])  # memory not full, no boundary yet; full, after one
@pytest.mark.slow
def test_a_learner_that_was_saved_and_loaded_goes_on_bit_for_bit(
    part: dict[str, Any], stop: int, tmp_path: Path
) -> None:
    whole, first = small_learner("er-fifo", **part), small_learner("er-fifo", **part)
    expected = fit(whole, 0, 11)
    done = fit(first, 0, stop)
    first.save(tmp_path)
    second = ocssl.Learner.load(tmp_path)
    assert same(first, second)
    done += fit(second, stop, 11)
    assert done == expected
    assert same(whole, second)


def test_it_is_trained_and_stays_finite_on_one_image_and_on_constant_images(part: dict[str, Any]) -> None:
    # batch norm over two or three samples has huge gradients; formulas are tested here, not the size of steps
    learner = small_learner("er-fifo", **part, optimizer__lr=1e-3)
    before = [p.detach().clone() for p in learner.encoder.parameters()]
    for image in random_images(4):
        assert np.isfinite(learner.partial_fit(image[None]).loss)
    for _ in range(3):
        assert np.isfinite(learner.partial_fit(torch.full((5, 3, 8, 8), 255, dtype=torch.uint8)).loss)
    for i in range(4):
        assert np.isfinite(learner.partial_fit(random_images(5, seed=i)).loss)
    after = list(learner.encoder.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    learner.require_finite()


def test_nothing_of_an_earlier_step_is_held(part: dict[str, Any]) -> None:
    """No graph, and so no memory that grows: whatever a learner keeps is a leaf without history."""
    learner = small_learner("er-fifo", **part)
    fit(learner, 0, 6)
    kept = [t for module in learner.network.modules() for t in vars(module).values() if isinstance(t, torch.Tensor)]
    kept += [*learner.tensors().values(), *(learner.memory.store[name] for name in learner.memory.store)]
    assert all(t.grad_fn is None for t in kept)


def test_probing_in_between_changes_nothing(part: dict[str, Any]) -> None:
    quiet, busy = small_learner("er-fifo", **part), small_learner("er-fifo", **part)
    one = fit(quiet, 0, 6)
    two = []
    for i in range(6):
        busy.transform(random_images(3))
        two += fit(busy, i, i + 1)
    assert one == two
    assert same(quiet, busy)


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if OBJECTIVES[name].per_sample != "none"])
@pytest.mark.parametrize("method_", ["solar", "er-reservoir", "er-fifo", "minred", "lars", "cla-e", "cla-r", "mir"])
def test_every_objective_serves_every_method_of_replay(objective: str, method_: str) -> None:
    """The cells of the paper's Table 7 and beyond, by one setting."""
    learner = small_learner(method_, **with_objective(objective), schedule__passes=1)
    for i in range(7):
        assert np.isfinite(learner.partial_fit(random_images(5, seed=i)).loss)
