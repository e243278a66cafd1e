"""Presets: they only lower settings, a user's own stay, and run.toml says what there is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from conftest import METHODS
from ocssl import recipes
from ocssl.cli import main
from ocssl.cost import fitting_preset
from ocssl.errors import SettingError
from ocssl.runs.config import read_settings, resolve_run, to_toml
from ocssl.settings import flatten


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", recipes.presets())
def test_a_preset_lowers_and_never_raises(method: str, preset: str) -> None:
    plain = dict(flatten(resolve_run(method, "folder:photos", 0, {}).model_dump()))
    chosen = dict(flatten(resolve_run(method, "folder:photos", 0, {}, preset).model_dump()))
    most = recipes.preset(preset)
    assert chosen.keys() == plain.keys()
    for key, value in chosen.items():
        wanted = preset if key == "preset" else min(plain[key], most[key]) if key in most else plain[key]
        assert value == wanted, key


def test_what_the_user_sets_stays() -> None:
    own = {"encoder": {"width": 32}, "memory.capacity": 1000}
    settings = resolve_run("solar", "imagenet100", 0, own, "cpu")
    assert settings.encoder.width == 32
    assert settings.memory.capacity == 1000
    assert settings.schedule.passes == 2
    assert settings.stream.image_size == 96


def test_an_encoder_without_a_width_keeps_its_size() -> None:
    settings = resolve_run("solar", "folder:photos", 0, {"encoder.name": "vit"}, "cpu")
    assert settings.encoder.name == "vit"
    assert settings.schedule.batch == 64


def test_it_is_noted_and_decides_nothing_more(tmp_path: Path) -> None:
    settings = resolve_run("solar", "synthetic", 0, {}, "cpu")
    (tmp_path / "run.toml").write_text(to_toml(settings))
    assert tomllib.loads((tmp_path / "run.toml").read_text())["preset"] == "cpu"
    assert read_settings(tmp_path / "run.toml") == settings
    full = dict(flatten(resolve_run("solar", "synthetic", 0, {}).model_dump()))
    by_hand = resolve_run("solar", "synthetic", 0, {k: v for k, v in recipes.preset("cpu").items() if full[k] > v})
    assert by_hand.result() == settings.result()


def test_wrong_names_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SettingError, match="unknown preset 'cup': did you mean 'cpu'"):
        resolve_run("solar", "synthetic", 0, {}, "cup")
    with pytest.raises(SettingError, match="preset cannot be set"):
        resolve_run("solar", "synthetic", 0, {"preset": "cpu"})
    with pytest.raises(SystemExit) as ended:
        main(["run", "solar", "synthetic", "--preset", "cup"])
    assert ended.value.code == 2
    assert "did you mean 'cpu'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "free", "wanted"), [("cpu", 2**40, "cpu"), ("cuda", 2**40, "gpu"), ("cuda", 2**20, "cpu")]
)
def test_auto_looks_at_the_device(device: str, free: int, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    assert fitting_preset(resolve_run("solar", "folder:photos", 0, {}, "gpu"), device) == wanted
