"""An encoder, an optimizer and measures from outside the package: one file each, and they are part of it."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

import ocssl
from conftest import SMALL_STREAM, random_images, small_learner, small_settings
from ocssl import cli
from ocssl._core.measures import MEASURES, Measure, Measures
from ocssl._core.registry import load_parts
from ocssl._training.optimizer import OPTIMIZERS
from ocssl.cli.list_names import names
from ocssl.cli.run import data_path
from ocssl.cost.work import minibatch_load
from ocssl.data.sources.source import BENCHMARKS, is_drawn, own_source
from ocssl.encoders import ENCODERS
from ocssl.errors import SettingError
from ocssl.runs.events import read_events
from ocssl.terms import TERMS

ENCODER = '''
from torch import nn

from ocssl.encoders import ENCODERS


@ENCODERS.add("patches")
class Patches(nn.Sequential):
    """A linear layer on patches, averaged."""

    def __init__(self, image_size: int, *, patch: int = 4, dimension: int = 12) -> None:
        conv = nn.Conv2d(3, dimension, patch, patch)
        super().__init__(conv, nn.BatchNorm2d(dimension), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
'''

OPTIMIZER = '''
import torch

from ocssl._training.optimizer import OPTIMIZERS, Optimizer


@OPTIMIZERS.add("sign")
class Sign(Optimizer):
    """Steps of one length, in the direction of the averaged gradient's sign."""

    def __init__(self, parameters, settings, guard, *, share: float = 0.5) -> None:
        super().__init__(parameters, settings, guard)
        self.share = share

    def start(self, parameter):
        return {"mean": torch.zeros_like(parameter)}

    def update(self, weight, gradient, state):
        mean = self.share * state["mean"] + (1 - self.share) * gradient
        return weight - self.lr * mean.sign(), {"mean": mean}
'''

MEASURE = '''
import numpy as np

from ocssl._core.measures import MEASURES, Measure
from ocssl.evaluate import measure
from ocssl.terms.term import TERMS, Penalty, Term


@measure("norm", "feature norm", unit="a.u.", format=".2f", progress="norm {:.1f}", caption="Length of test features.")
def norm(features):
    return np.linalg.norm(features.test.x, axis=1).mean()


@TERMS.add("brightness")
class Brightness(Term):
    """No loss: it only shows how bright the views are."""

    def __init__(self, objective, *, weight: float = 1.0) -> None:
        super().__init__(objective, weight)

    def forward(self, step):
        return Penalty(step.out.loss.mean() * 0, {"mean": step.views.detach().float().mean()})


MEASURES.add(Measure("brightness.mean", "brightness", "step", caption="Mean of all pixels of the views."))
'''


SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

from ocssl.data.sources.image_folder import ImageFolder
from ocssl.data.sources.source import BENCHMARKS


@BENCHMARKS.add("album")
@dataclass(kw_only=True)
class Album(ImageFolder):
    """album:PATH: a folder of images."""

    after_colon: ClassVar[str] = "path"
    suffixes: ClassVar[tuple[str, ...]] = (".album",)
'''


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    for registry in (BENCHMARKS, ENCODERS, OPTIMIZERS, TERMS):
        monkeypatch.setattr(registry, "_parts", dict(registry._parts))
        monkeypatch.setattr(registry, "_names", set(registry._names))
    measures = dict(MEASURES)
    yield
    MEASURES.clear()
    MEASURES.update(measures)


def written(folder: Path, text: str) -> Path:
    path = folder / "parts.py"
    path.write_text(text)
    return path


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_run_trains_an_encoder_that_has_options_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"encoder.name": "patches", "encoder.dimension": 10}
    settings = {key: value for key, value in small_settings("solar").items() if not key.startswith("encoder.")}
    sets = [w for key, value in {**settings, **SMALL_STREAM, **own}.items() for w in ("--set", f"{key}={value}")]
    words = ["run", "solar", "synthetic", "--out", str(tmp_path / "r"), "--quiet", *sets]
    parts = ["--parts", str(written(tmp_path, ENCODER))]
    assert command(*words, *parts) == 0  # the benchmark's own width is no concern of an encoder without one
    table = tomllib.loads((tmp_path / "r" / "run.toml").read_text())
    assert table["encoder"] == {"name": "patches", "freeze": 0, "batch_norm": "train", "patch": 4, "dimension": 10}
    saved = max((tmp_path / "r" / "checkpoints").iterdir())
    learner = ocssl.Learner.load(saved)
    assert learner.transform(random_images(3)).shape == (3, 10)
    assert minibatch_load(learner.settings, 8).flops > 0
    capsys.readouterr()
    assert "encoder.patch = 4" in names("settings")["options of encoders"]
    with pytest.raises(SettingError, match=r"did you mean 'encoder\.dimension'"):
        ocssl.Learner(image_size=8, settings={"encoder.name": "patches", "encoder.dimenson": 3})


def test_a_learner_trains_with_an_optimizer_that_is_one_formula(tmp_path: Path) -> None:
    load_parts(written(tmp_path, OPTIMIZER))
    chosen = {"optimizer__name": "sign", "optimizer__share": 0.25, "optimizer__lr": 2.0**-10}
    learner, whole = (small_learner("er-fifo", **chosen) for _ in range(2))
    before = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    learner.partial_fit(random_images(5))
    moved = [(p.detach() - before[name]) * 2**10 for name, p in learner.network.named_parameters()]
    assert {round(float(step), 2) for steps in moved for step in steps.unique()} <= {-2, -1, 0, 1, 2}
    assert any(steps.any() for steps in moved)

    learner.save(tmp_path / "saved")
    learner = ocssl.Learner.load(tmp_path / "saved")
    whole.partial_fit(random_images(5))
    for one in (learner, whole):
        one.partial_fit(random_images(5, seed=1))
    assert all(torch.equal(tensor, whole.tensors()[name]) for name, tensor in learner.tensors().items())
    assert "sign" in names("optimizers")[""]


def test_a_source_says_itself_what_its_names_hold(tmp_path: Path) -> None:
    assert own_source("photos/a.album") == "folder:photos/a.album"
    load_parts(written(tmp_path, SOURCE))
    assert own_source("photos/a.album") == "album:photos/a.album"
    assert data_path("album:photos", None) == str(Path("photos").absolute())
    with pytest.raises(SettingError, match="album needs the path of your images: album:PATH"):
        data_path("album", None)
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(random_images(3)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "photos" / f"{number}.png")
    (batch,) = ocssl.images(f"album:{tmp_path / 'photos'}", size=16)
    assert len(batch.images) == 3
    assert is_drawn("synthetic")
    assert not is_drawn("album:photos")


def test_its_steps_are_refused_by_the_guard_without_a_word_about_it(tmp_path: Path) -> None:
    load_parts(written(tmp_path, OPTIMIZER))
    learner = small_learner("er-fifo", optimizer__name="sign")
    learner.partial_fit(random_images(5))
    before = {name: tensor.clone() for name, tensor in learner._optimizer.tensors().items()}
    weights = [p.detach().clone() for p in learner.network.parameters()]
    learner._guard.refused.fill_(1.0)  # as on a device, where nobody waits for the answer
    for parameter in learner._optimizer.parameters.values():
        parameter.grad = torch.full_like(parameter, float("nan"))
    learner._optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(weights, learner.network.parameters(), strict=True))
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner._optimizer.tensors().items())


def test_measures_are_recorded_tracked_drawn_and_listed_like_those_of_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder, parts = tmp_path / "r", ["--parts", str(written(tmp_path, MEASURE))]
    settings = {**small_settings("solar"), **SMALL_STREAM, "terms.brightness.weight": 1.0}
    sets = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
    assert command("run", "solar", "synthetic", "--out", str(folder), *parts, "--track", "tensorboard", *sets) == 0
    printed = capsys.readouterr().out

    events = list(read_events(folder / "events.jsonl"))
    norms = [event["norm"] for event in events if event["event"] == "evaluation"]
    assert len(norms) == 3  # with the untrained encoder
    assert all(norm > 0 for norm in norms)
    assert f"norm {norms[-1]:.1f}" in printed
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["norms"] == norms[1:]
    found = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.value for event in found.Scalars("evaluate/norm")] == pytest.approx(norms)
    bright = [event["terms"]["brightness.mean"] for event in events if event["event"] == "step"]
    assert [event.value for event in found.Scalars("terms/brightness.mean")] == pytest.approx(bright)

    for key in ("norm", "brightness.mean"):  # as in a process that has not read the file yet
        del MEASURES[key]
    del TERMS._parts["brightness"]
    TERMS._names.remove("brightness")
    places = ["-o", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f"), "--tables", str(tmp_path / "t")]
    assert command("report", str(folder), *parts, *places) == 0
    page = (tmp_path / "r.html").read_text()
    for text in ("Feature norm", "Length of test features.", "feature norm, a.u.", "Brightness", "Mean of all pixels"):
        assert text in page
    assert {"norm.pdf", "brightness-mean.png"} <= {path.name for path in (tmp_path / "f").iterdir()}
    rows = list(csv.DictReader((tmp_path / "t" / "evaluations.csv").read_text().splitlines()))
    assert [float(row["norm"]) for row in rows] == pytest.approx(norms, rel=1e-5)
    assert "feature norm (a.u.; at each evaluation)" in names("measures")[""]["norm"]


@pytest.mark.parametrize(
    ("key", "event"), [("accuracy", "evaluation"), ("tasks", "evaluation"), ("a b", "step"), ("term.x", "evaluation")]
)
def test_a_measure_takes_no_key_that_means_something_else(key: str, event: str) -> None:
    with pytest.raises(ValueError, match=f"measure '{key}'"):
        Measures(MEASURES.values()).add(Measure(key, "x", event))  # type: ignore[arg-type]
