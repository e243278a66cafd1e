"""Boundaries and epochs: only recipes that declare them get them, and nobody else can see them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from rich.console import Console

import ocssl
from conftest import METHODS, SMALL_STREAM, random_images, small_learner, small_settings
from ocssl import recipes
from ocssl.data import load_benchmark
from ocssl.errors import SettingError
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import create
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute, make_stream
from ocssl.runs.stop import Stop
from ocssl.terms import TERMS

TOLD = {"cassle", "pfr", "sycon", "pocon", "osiris-d"}


def test_only_the_offline_recipes_declare_boundaries_or_epochs() -> None:
    for method in METHODS:
        tree = recipes.resolve(method, "synthetic", {})
        assert tree.get("schedule", {}).get("boundaries", False) == (method in TOLD), method
        assert tree["stream"].get("epochs", 1) == 1 or method in {*TOLD, "pretrain"}, method


def test_a_task_agnostic_learner_refuses_to_be_told(method: str) -> None:
    learner = small_learner(method)
    learner.partial_fit(random_images(5))
    if method in TOLD:
        learner.boundary()
    else:
        with pytest.raises(SettingError, match="must not know where an experience ends"):
            learner.boundary()


@pytest.mark.parametrize("method_", ["cassle", "er-fifo"])
def test_a_run_tells_of_the_ends_between_experiences_and_tells_only_those_that_may_know(
    method_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    tell = ocssl.Learner.boundary
    monkeypatch.setattr(ocssl.Learner, "boundary", lambda self: (told.append(self.seen), tell(self)))
    overrides = {**small_settings(method_), **SMALL_STREAM, "schedule.stream_batch": 5, "stream.experiences": 4}
    create(tmp_path / "r", resolve_run(method_, "synthetic", 0, overrides))
    execute(tmp_path / "r", Progress(Bars(Console(), quiet=True)), Stop())
    per_experience = 15  # one class of 18 images, in whole minibatches of five
    assert told == ([per_experience * i for i in (1, 2, 3)] if method_ == "cassle" else [])


@pytest.mark.parametrize("name", [name for name in TERMS if TERMS[name].boundaries])
def test_a_term_that_must_be_told_refuses_a_recipe_that_does_not_tell(name: str) -> None:
    with pytest.raises(SettingError, match=r"schedule\.boundaries=true"):
        small_learner("er-fifo", **{f"terms__{name}__weight": 1.0})


def test_epochs_go_through_each_experience_so_often_and_shuffle_anew() -> None:
    settings = resolve_run("er-fifo", "synthetic", 0, {**SMALL_STREAM, "stream.epochs": 3, "stream.drop_last": False})
    stream = make_stream(load_benchmark("synthetic", settings.stream), settings)
    batches = list(stream.batches())
    for task in (0, 1):
        ids = torch.cat([batch.ids for batch in batches if batch.task == task])
        assert set(Counter(ids.tolist()).values()) == {3}
        first, second, third = ids.split(len(ids) // 3)
        assert sorted(first.tolist()) == sorted(second.tolist()) == sorted(third.tolist())
        assert not torch.equal(first, second)
        assert not torch.equal(second, third)
    assert [batch.task for batch in batches] == sorted(batch.task for batch in batches)
    assert len(stream.ends()) == 2


def test_one_epoch_is_the_stream_as_it_was() -> None:
    settings = resolve_run("er-fifo", "synthetic", 0, SMALL_STREAM)
    benchmark = load_benchmark("synthetic", settings.stream)
    a, b = benchmark.stream(10, 0), benchmark.stream(10, 0, epochs=1)
    assert all(torch.equal(x.ids, y.ids) for x, y in zip(a.batches(), b.batches(), strict=True))


def test_a_learner_alone_has_no_stream_settings(method: str) -> None:
    ocssl.Learner(method, image_size=8, settings=small_settings(method))
    with pytest.raises(SettingError, match="stream"):
        ocssl.Learner(method, image_size=8, settings={**small_settings(method), "stream.epochs": 2})
