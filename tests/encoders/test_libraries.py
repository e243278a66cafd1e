"""Models of timm and transformers: real ones, small, with random weights; what is said where a library is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ocssl
from conftest import ROOT, random_images, small_settings
from ocssl.cli.list_names import names
from ocssl.cost import layers
from ocssl.cost.layers import passes_of, shape_of
from ocssl.cost.work import minibatch_load
from ocssl.encoders import ENCODERS, feature_dimension, stages
from ocssl.errors import SettingError
from small_encoders import MODELS, small_encoder
from torchvision_standin import require_timm

OF_TIMM = ["test_vit", "test_convnext", "test_efficientnet", "test_resnet", "tf_efficientnet_lite0"]
OF_TRANSFORMERS = [path.name for path in sorted(MODELS.iterdir())]


def made(name: str, size: int = 32) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ENCODERS.build(name, {"pretrained": False}, size)


@pytest.mark.parametrize("model", OF_TIMM)
@pytest.mark.parametrize("size", [32, 50])
def test_features_of_a_timm_model_are_its_own_without_the_classifier(model: str, size: int) -> None:
    timm = require_timm()
    encoder = made(f"timm:{model}", size).eval()
    own = timm.create_model(model, num_classes=0).eval()
    assert feature_dimension(encoder, size) == own.num_features
    if hasattr(own, "set_input_size"):
        own.set_input_size(img_size=(size + -size % 16,) * 2)
    own.load_state_dict(encoder.model.state_dict())
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    padded = nn.functional.pad(images, (0, -size % 16, 0, -size % 16)) if hasattr(own, "set_input_size") else images
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), own(padded))


@pytest.mark.parametrize("model", OF_TRANSFORMERS)
@pytest.mark.parametrize("size", [32, 50])
def test_features_of_a_transformers_model_are_what_it_calls_pooled(model: str, size: int) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ocssl[hf]'")
    encoder = made(f"hf:{MODELS / model}", size).eval()
    table = json.loads((MODELS / model / "config.json").read_text())
    length = table["hidden_size"] if "hidden_size" in table else table["hidden_sizes"][-1]
    assert feature_dimension(encoder, size) == length
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = encoder(images)
        if "patch_size" not in table:
            hidden = encoder.model(pixel_values=images)
            torch.testing.assert_close(found, hidden.pooler_output.flatten(1))
        else:
            patch = table["patch_size"]
            padded = nn.functional.pad(images, (0, -size % patch, 0, -size % patch))
            more = {"interpolate_pos_encoding": True} if model == "vit" else {}
            torch.testing.assert_close(found, encoder.model(pixel_values=padded, **more).last_hidden_state[:, 0])


@pytest.mark.parametrize("name", [*(f"timm:{m}" for m in OF_TIMM), *(f"hf:{MODELS / m}" for m in OF_TRANSFORMERS)])
def test_a_model_of_a_library_trains_freezes_and_is_estimated(name: str) -> None:
    more = {"encoder__name": name, "encoder__pretrained": False, "encoder__freeze": 1, "optimizer__encoder_lr": 0.5}
    settings = small_settings("solar", **more)
    learner = ocssl.Learner("solar", image_size=32, settings=settings)
    before = {key: p.detach().clone() for key, p in learner.encoder.named_parameters()}
    learner.partial_fit(random_images(6, size=32))
    known = stages(learner.encoder)
    moved = {known[key] for key, p in learner.encoder.named_parameters() if not torch.equal(p, before[key])}
    assert 0 not in moved
    assert moved
    assert minibatch_load(learner.settings, 32).flops > 0


@pytest.mark.parametrize("label", list(ENCODERS))
def test_the_cost_of_every_encoder_is_what_pytorch_counts(label: str) -> None:
    own = {f"encoder__{key}": value for key, value in small_encoder(label).items()}
    learner = ocssl.Learner("solar", image_size=32, settings=small_settings("solar", **own))
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter, torch.no_grad():
        learner.encoder.eval()(torch.zeros(3, 3, 32, 32))
    shape = shape_of(learner.settings, 32)
    assert 3 * sum(layer.flops for layer in shape.part("encoder").values()) == counter.get_total_flops()
    state = learner.network.state_dict().values()
    assert shape.weights == pytest.approx(sum(t.numel() * t.element_size() for t in state), rel=0.05)
    passes = passes_of(learner.settings)
    first = next(key for key in shape.layers if key.startswith("objective.encoder."))
    assert passes.forward[first] > 0


def test_a_trial_is_of_a_size_that_the_encoder_takes() -> None:
    own = {"encoder__name": f"hf:{MODELS / 'convnext'}", "encoder__pretrained": False}
    learner = ocssl.Learner("solar", image_size=32, settings=small_settings("solar", **own))
    assert passes_of(learner.settings).steps == learner.settings.schedule.passes
    assert layers.SIZES[0] == 8


def test_a_misspelled_model_is_named_with_the_nearest() -> None:
    require_timm()
    with pytest.raises(SettingError, match="did you mean 'resnet18'"):
        ocssl.Learner(image_size=32, settings={"encoder.name": "timm:resnet81"})
    with pytest.raises(SettingError, match=r"as in encoder\.name=timm:NAME"):
        ocssl.Learner(image_size=32, settings={"encoder.name": "timm"})
    with pytest.raises(SettingError, match=r"use encoder\.name=vit"):
        ocssl.Learner(image_size=32, settings={"encoder.name": "vit:small"})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "none-such"}, "model type 'none-such'"),
        ({"auto_map": {"AutoModel": "code.Model"}, "model_type": "vit"}, "model type"),
        ({"model_type": "vit", "hidden_size": "wide"}, "cannot make it"),
        ([], "config.json"),
    ],
)
def test_a_folder_that_holds_no_model_of_transformers_is_an_error(config: Any, said: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ocssl[hf]'")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SettingError, match=said):
        ocssl.Learner(image_size=32, settings={"encoder.name": f"hf:{tmp_path}", "encoder.pretrained": False})


def said_without(code: str) -> str:
    """What a process says that cannot import a library."""
    script = f"{code}\nfrom ocssl import cli\ncli.main(['run', 'solar', 'synthetic', '--set', NAME])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment()
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


@pytest.mark.process
def test_transformers_beside_a_broken_torchvision_says_what_to_remove(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ocssl[hf]'")
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )
    (tmp_path / "config.json").write_text('{"model_type": "vit", "hidden_size": "wide"}')
    (tmp_path / "preprocessor_config.json").write_text((MODELS / "vit" / "preprocessor_config.json").read_text())
    place = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); NAME = 'encoder.name=hf:{tmp_path}'"
    assert "pip uninstall torchvision" in said_without(place)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "400"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.modules['timm'] = None; NAME = 'encoder.name=timm:resnet18'", "pip install"),
        ("import sys; sys.modules['transformers'] = None; NAME = 'encoder.name=hf:/nowhere'", "pip install"),
        (
            "import sys; sys.modules['torchvision'] = None; NAME = 'encoder.name=timm:resnet18'",
            "it needs a torchvision that fits the installed torch",
        ),
    ],
)
def test_a_missing_library_is_one_sentence(code: str, said: str) -> None:
    assert said in said_without(code)


def test_the_list_names_every_kind_of_encoder() -> None:
    listed = names("encoders")[""]
    assert {"resnet18", "resnet10", "vit", "timm:NAME", "hf:FOLDER"} <= listed.keys()
    assert all(listed.values())
