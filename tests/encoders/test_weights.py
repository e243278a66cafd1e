"""Weights from files: of every encoder, under a prefix, beside other parts; what does not fit names the keys."""

from __future__ import annotations

import json
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import ocssl
from conftest import SMALL_STREAM, random_images, small_settings
from ocssl import cli
from ocssl.encoders import ENCODERS, convert_weights, load_weights
from ocssl.errors import SettingError
from small_encoders import MODELS, small_encoder
from torchvision_standin import require_timm

LABELS = list(ENCODERS)
pytestmark = pytest.mark.filterwarnings("ignore:encoder.weights .* does not say")


def learner_of(label: str, seed: int = 0, **more: Any) -> ocssl.Learner:
    own = {f"encoder__{key}": value for key, value in small_encoder(label).items()}
    settings = small_settings("er-fifo", **own, **more)
    return ocssl.Learner("er-fifo", image_size=8, seed=seed, settings=settings)


def inner(encoder: nn.Module) -> nn.Module:
    """The library's own model, whose names its files have."""
    model = getattr(encoder, "model", encoder)
    assert isinstance(model, nn.Module)
    return model


def tensors_of(encoder: nn.Module) -> dict[str, Tensor]:
    found = inner(encoder).state_dict()
    return {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in found.items()
        if "_random_passes" not in name
    }


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("prefix", ["", "module."])
def test_every_encoder_starts_from_a_file_of_its_weights(label: str, prefix: str, tmp_path: Path) -> None:
    if prefix and label.startswith("hf"):
        prefix = "vit."  # what transformers itself puts before them
    wanted = tensors_of(learner_of(label, seed=1).encoder)
    others = {"head.weight": torch.zeros(3, 2), "fc.bias": torch.zeros(3)}
    save_file({f"{prefix}{name}": t.contiguous() for name, t in wanted.items()} | others, tmp_path / "w.safetensors")
    random = learner_of(label)
    assert not same(tensors_of(random.encoder), wanted)
    learner = learner_of(label, encoder__weights=str(tmp_path / "w.safetensors"))
    assert same(tensors_of(learner.encoder), wanted)
    learner.partial_fit(random_images(6))


def file(folder: Path, change: dict[str, Tensor | None]) -> Path:
    """Weights of a small ResNet, with some changed or left out."""
    tensors: dict[str, Any] = {**tensors_of(learner_of("resnet10").encoder), **change}
    save_file({name: t.contiguous() for name, t in tensors.items() if t is not None}, folder / "w.safetensors")
    return folder / "w.safetensors"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stem.0.weight": None}, r"1 are missing \(stem\.0\.weight\)"),
        ({"stages.7.conv1.weight": torch.zeros(2)}, r"1 are unexpected \(stages\.7\.conv1\.weight\)"),
        ({"stem.1.bias": torch.zeros(9)}, r"stem\.1\.bias is \[9\], and the encoder has \[2\]"),
        ({"stem.1.bias": torch.tensor([0.0, float("nan")])}, "is not finite"),
        ({"stem.1.bias": torch.tensor([0.0, float("inf")])}, "is not finite"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_that_names_the_key(
    change: dict[str, Tensor | None], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=said):
        learner_of("resnet10", encoder__weights=str(file(tmp_path, change)))


def test_weights_of_a_transformers_model_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    wanted = tensors_of(learner_of("hf:FOLDER").encoder)
    wanted.popitem()
    save_file(wanted, tmp_path / "w.safetensors")
    with pytest.raises(SettingError, match="does not fit the encoder: 1 names are missing"):
        learner_of("hf:FOLDER", encoder__weights=str(tmp_path / "w.safetensors"))


@pytest.mark.parametrize("content", [b"", b"\x80\x04.", b"PK\x03\x04", b"\xff" * 64, b"{}" * 40])
def test_a_file_of_another_kind_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(SettingError, match=r"w\.safetensors"):
        learner_of("resnet10", encoder__weights=str(tmp_path / "w.safetensors"))
    with pytest.raises(SettingError, match=r"none\.safetensors"):
        learner_of("resnet10", encoder__weights=str(tmp_path / "none.safetensors"))


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, ("import pathlib; pathlib.Path('owned').touch()",)


def test_pytorch_files_are_converted_without_running_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    learner = learner_of("resnet10", seed=4)
    torch.save({"epoch": 3, "state_dict": tensors_of(learner.encoder)}, "good.pth")
    count = convert_weights("good.pth", "good.safetensors")
    assert count == len(learner.encoder.state_dict())
    encoder = ENCODERS.build("resnet10", {"width": 2}, 8)
    load_weights(encoder, "good.safetensors")
    assert same(tensors_of(encoder), tensors_of(learner.encoder))
    torch.save({"state_dict": Hostile()}, "bad.pth")
    Path("worse.pth").write_bytes(pickle.dumps(Hostile()))
    for name in ("bad.pth", "worse.pth"):
        with pytest.raises(SettingError, match="no file of weights alone"):
            convert_weights(name, "bad.safetensors")
    torch.save({"epoch": 3}, "empty.pth")
    with pytest.raises(SettingError, match="holds no table of tensors"):
        convert_weights("empty.pth", "bad.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.pth",
        "empty.pth",
        "good.pth",
        "good.safetensors",
        "worse.pth",
    ]


def test_weights_of_another_image_size_are_fitted_to_a_vision_transformer_of_timm(tmp_path: Path) -> None:
    timm = require_timm()
    source = timm.create_model("test_vit", num_classes=0)  # at its own size
    save_file(source.state_dict(), tmp_path / "w.safetensors")
    made = ENCODERS.build("timm:test_vit", {"pretrained": False}, 48)
    load_weights(made, tmp_path / "w.safetensors")
    source.set_input_size(img_size=(48, 48))
    assert same(tensors_of(made), source.state_dict())


# ---- runs


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    assert isinstance(caught.value.code, int)
    return caught.value.code


def run_words(folder: Path, label: str, **more: Any) -> list[str]:
    own = {f"encoder.{key}": value for key, value in small_encoder(label).items()} | more
    small = {key: value for key, value in small_settings("solar").items() if not key.startswith("encoder.")}
    settings = {**small, **SMALL_STREAM, **own}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return ["run", "solar", "synthetic", "--out", str(folder), "--quiet", *sets]


@pytest.mark.parametrize("label", ["vit", "timm:NAME", "hf:FOLDER"])
@pytest.mark.slow
def test_a_run_starts_from_a_file_notes_its_checksum_and_needs_it_no_more(label: str, tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    save_file(tensors_of(learner_of(label, seed=1).encoder), weights)
    words = run_words(tmp_path / "r", label, **{"encoder.weights": str(weights)})
    assert command(*words) == 0
    table = tomllib.loads((tmp_path / "r" / "run.toml").read_text())
    assert table["encoder"]["weights"] == str(weights)
    assert len(table["encoder"]["sha256"]) == 64
    weights.unlink()
    learner = ocssl.Learner.load(tmp_path / "r")
    assert learner.seen == 60
    learner.partial_fit(random_images(4))


@pytest.mark.slow
def test_a_run_that_has_not_begun_refuses_a_file_that_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = file(tmp_path, {})
    words = run_words(tmp_path / "r", "resnet10", **{"encoder.weights": str(weights)})
    assert command(*words) == 0
    other = tmp_path / "s"
    other.mkdir()
    (other / "run.toml").write_text((tmp_path / "r" / "run.toml").read_text())
    file(tmp_path, {"stem.1.bias": torch.ones(2)})
    assert command("resume", str(other), "--quiet") == 2
    assert "is not the file that this run was to start from" in capsys.readouterr().err


def test_a_model_that_needs_a_network_says_what_to_do_without(tmp_path: Path) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((MODELS / "vit" / name).read_text())
    with pytest.raises(SettingError, match=r"the folder has no model\.safetensors"):
        ocssl.Learner(settings={"encoder.name": f"hf:{tmp_path}"})
