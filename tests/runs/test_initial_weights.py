"""Starting from what was learned before: `ocssl pretrain`, then `ocssl run --init`."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import SMALL_STREAM, small_learner, small_settings
from ocssl.cli import main
from ocssl.cli.run import with_digest
from ocssl.errors import SettingError
from ocssl.runs.config import InitSettings, resolve_run
from ocssl.runs.events import read_events
from ocssl.runs.initial_weights import digest, read_weights, start_from
from ocssl.settings import OptimizerSettings

pytestmark = pytest.mark.slow

STREAM = {**SMALL_STREAM, "stream.train": 40, "checkpoint.every": 3}


def call(words: list[str], **settings: Any) -> int:
    more = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
    with pytest.raises(SystemExit) as end:
        main([*words, "--quiet", *more])
    assert isinstance(end.value.code, int)
    return end.value.code


def small(method: str) -> dict[str, Any]:
    settings = {**small_settings(method), **STREAM}
    del settings["stream.epochs"]
    settings["stream.experiences"] = 1 if method == "pretrain" else 2
    return {key: value for key, value in settings.items() if key not in ("schedule.batch", "schedule.passes")}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrain") / "plants"
    words = ["pretrain", "synthetic", "--out", str(folder), "--epochs", "4", "--batch", "16"]
    assert call(words, **small("pretrain")) == 0
    return folder


def test_pretraining_goes_through_all_images_so_often_with_a_cosine(pretrained: Path) -> None:
    metrics = json.loads((pretrained / "metrics.json").read_text())
    assert metrics["seen"] == 4 * (144 // 16) * 16
    steps = [event for event in read_events(pretrained / "events.jsonl") if event["event"] == "step"]
    assert len(steps) == 36
    assert {event["stored"] for event in steps} == {0}


def test_the_rate_warms_up_and_falls_to_nothing() -> None:
    options = OptimizerSettings(lr=0.4, schedule="cosine", warmup=0.1)
    assert options.rate(0.0) == 0
    assert options.rate(0.05) == pytest.approx(0.2)
    assert options.rate(0.1) == pytest.approx(0.4)
    assert options.rate(0.55) == pytest.approx(0.2)
    assert options.rate(1.0) == pytest.approx(0, abs=1e-12)
    for done in (0.2, 0.5, 0.9):
        assert options.rate(done) == pytest.approx(0.2 * (1 + math.cos(math.pi * (done - 0.1) / 0.9)))
    assert OptimizerSettings(lr=0.4).rate(0.7) == 0.4


def test_the_rate_is_what_the_optimizer_uses_and_is_saved(tmp_path: Path) -> None:
    learner = small_learner()
    before = {name: p.clone() for name, p in learner.network.named_parameters()}
    learner.lr = 0.0
    learner.partial_fit(torch.zeros(4, 3, 8, 8, dtype=torch.uint8))
    assert all(torch.equal(before[name], p) for name, p in learner.network.named_parameters())
    learner.lr = 0.125
    learner.save(tmp_path / "l")
    assert type(learner).load(tmp_path / "l").lr == 0.125


@pytest.mark.parametrize("method", ["solar", "cla-e", "cassle"])
def test_a_run_starts_from_the_weights_it_is_given(pretrained: Path, tmp_path: Path, method: str) -> None:
    settings = {**small(method), "schedule.batch": 16, "schedule.stream_batch": 8, "schedule.passes": 1}
    settings["stream.epochs"] = 1
    out = tmp_path / "run"
    assert call(["run", method, "synthetic", "--out", str(out), "--init", str(pretrained)], **settings) == 0
    start, wanted = (read_weights(path) for path in (out / "snapshots" / "00000000", pretrained))
    assert start.keys() == wanted.keys()
    assert all(torch.equal(start[name], wanted[name]) for name in wanted)
    text = (out / "run.toml").read_text()
    assert digest(wanted) in text


def test_a_relative_path_of_weights_holds_from_anywhere(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pretrained.parent)
    settings = resolve_run("solar", "synthetic", 0, {"init.path": pretrained.name})
    assert with_digest(settings).init.path == str(pretrained)


def test_the_start_of_a_run_is_the_end_of_the_pretraining(pretrained: Path, tmp_path: Path) -> None:
    settings = {**small("solar"), "schedule.batch": 16, "schedule.passes": 1}
    out = tmp_path / "run"
    assert call(["run", "solar", "synthetic", "--out", str(out), "--init", str(pretrained)], **settings) == 0
    before, after = (json.loads((folder / "metrics.json").read_text()) for folder in (pretrained, out))
    assert after["start_accuracy"] == before["final_accuracy"]


def test_the_encoder_alone_and_slow_copies_of_it(pretrained: Path) -> None:
    learner = small_learner("cla-e", objective__name="byol", encoder__name="resnet10")
    heads = {name: t.clone() for name, t in learner.objective.projector.state_dict().items()}
    start_from(learner, InitSettings(path=str(pretrained), parts="encoder"))
    wanted = read_weights(pretrained)
    for network in (learner.objective.encoder, learner.objective.target.encoder):  # type: ignore[union-attr]
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensor, wanted[f"encoder.{name}"])
    assert all(torch.equal(t, heads[name]) for name, t in learner.objective.projector.state_dict().items())


def test_weights_of_images_of_another_mean_warn(pretrained: Path) -> None:
    options = InitSettings(path=str(pretrained), parts="encoder")
    with pytest.warns(UserWarning, match=r"another mean or std; theirs: --set views\.mean='\[0\.5, 0\.5, 0\.5\]'$"):
        start_from(small_learner(encoder__name="resnet10", views__mean=[0.4, 0.5, 0.6]), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start_from(small_learner(encoder__name="resnet10"), options)


def test_weights_that_do_not_fit_are_refused(pretrained: Path, tmp_path: Path) -> None:
    options = InitSettings(path=str(pretrained))
    with pytest.raises(SettingError, match=r"init\.parts=encoder"):
        start_from(small_learner(objective__name="byol", encoder__name="resnet10"), options)
    with pytest.raises(SettingError, match=r"are \[2, 3, 3, 3\], here \[4, 3, 3, 3\]"):
        start_from(small_learner(encoder__name="resnet10", encoder__width=4), options)
    with pytest.raises(SettingError, match="not those that this run was to start from"):
        start_from(small_learner(encoder__name="resnet10"), InitSettings(path=str(pretrained), sha256="0" * 64))
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SettingError, match="cannot start from"):
            read_weights(path)
    small_learner().save(tmp_path / "saved")
    assert digest(read_weights(tmp_path / "saved")) == digest(read_weights(tmp_path / "saved"))
