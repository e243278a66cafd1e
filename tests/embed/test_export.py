"""Exports: each format gives the features of `transform`, on images of odd sizes and modes, or is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made import call, messy, odd_images, photos, saved
from PIL import Image
from torch import Tensor, nn

import ocssl
from conftest import SMALL, random_images
from ocssl.embed.vectors import read_vectors
from ocssl.errors import CheckpointError, DataError

Capsys = pytest.CaptureFixture[str]
RESNET = {"encoder.name": "resnet18", "encoder.width": 4, "encoder.stem": "large"}
VIT = {"encoder.name": "vit", "encoder.patch": 8, "encoder.dim": 12, "encoder.depth": 2, "encoder.heads": 3}


def learner(**settings: Any) -> ocssl.Learner:
    """A learner that has seen some images, so that no statistic is as it was at the start."""
    own = {key: value for key, value in SMALL.items() if not key.startswith("encoder.")}
    made = ocssl.Learner("solar", image_size=32, settings={**own, "terms.overlap.k": 6, **settings})
    made.partial_fit(random_images(10, size=32))
    return made


def exported(made: ocssl.Learner, kind: str, place: Path, capsys: Capsys) -> Path:
    made.save(place / "saved")
    out = place / ("encoder.onnx" if kind == "onnx" else "exported")
    code, _, err = call(capsys, "export", place / "saved", "--format", kind, "-o", out, "--license", "CC0-1.0")
    assert code == 0, err
    return out


def same(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("settings", [{"encoder.name": "resnet10", "encoder.width": 4}, RESNET, VIT])
def test_safetensors_give_the_same_encoder_back(settings: dict[str, Any], tmp_path: Path, capsys: Capsys) -> None:
    made = learner(**settings)
    out = exported(made, "safetensors", tmp_path, capsys)
    assert {path.name for path in out.iterdir()} == {"README.md", "encoder.json", "model.safetensors"}
    back = ocssl.load_encoder(out)
    assert back.fingerprint == ocssl.load_encoder(made).fingerprint
    same(back(odd_images()), made.transform(odd_images()))
    card = (out / "README.md").read_text()
    for said in ("license: CC0-1.0", "| method | solar |", back.fingerprint, "optimizer steps"):
        assert said in card
    code, _, _ = call(capsys, "export", tmp_path / "saved", "--format", "safetensors", "-o", out)
    assert code == 0  # replaces the earlier export


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"encoder.name": "resnet10", "encoder.width": 4}, RESNET, VIT])
def test_onnx_has_the_features_of_torch_for_any_batch_and_size(
    settings: dict[str, Any], tmp_path: Path, capsys: Capsys
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    made = learner(**settings)
    out = exported(made, "onnx", tmp_path, capsys)
    session = runtime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    (given,), (returned,) = session.get_inputs(), session.get_outputs()
    free = settings is not VIT  # a ViT has a position for each of its patches
    assert (given.name, given.type) == ("images", "tensor(uint8)")
    assert given.shape == ["batch", 3, *(("height", "width") if free else (32, 32))]
    assert (returned.name, returned.type) == ("features", "tensor(float)")
    pixels = ocssl.load_encoder(made).pixels(odd_images()).numpy()
    for images in (pixels, pixels[:1], pixels[:3]):
        same(session.run(["features"], {"images": images})[0], made.transform(images))
    if free:
        for side in (9, 57):
            images = np.random.default_rng(side).integers(0, 256, (2, 3, side, 2 * side), dtype=np.uint8)
            wanted = ocssl.load_encoder(made).encode(torch.from_numpy(images))
            same(session.run(["features"], {"images": images})[0], wanted)
    assert out.with_suffix(".md").read_text().startswith("---\nlicense: CC0-1.0")
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "encoder.onnx", "encoder.md"}


WITHOUT_TORCH = """
import json, sys
import numpy as np
import onnxruntime
from ocssl.data.decode.pixels import pixels_of
model, vectors = sys.argv[1:3]
import pyarrow.parquet as pq
columns = pq.read_table(vectors).to_pydict()
session = onnxruntime.InferenceSession(model)
(features,) = session.run(["features"], {"images": pixels_of(columns["path"], 8, "crop")})
assert "torch" not in sys.modules
unit = features / np.linalg.norm(features, axis=1, keepdims=True)
print(json.dumps([columns["path"], (unit @ unit.T).tolist()]))
"""


@pytest.mark.process
@pytest.mark.slow
def test_neighbours_by_onnx_in_a_process_without_torch_are_those_of_the_index(tmp_path: Path, capsys: Capsys) -> None:
    pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    run, folder, vectors = saved(tmp_path / "run"), messy(tmp_path / "photos"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, folder, "-o", vectors)[0] == 0
    assert call(capsys, "export", run, "--format", "onnx", "-o", tmp_path / "e.onnx")[0] == 0
    words = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "e.onnx"), str(vectors)]
    paths, similar = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    found = ocssl.Index.load(vectors).search(paths, top=5)
    for row, matches in zip(np.array(similar), found, strict=True):
        best = sorted(row, reverse=True)[:5]
        np.testing.assert_allclose([match.similarity for match in matches], best, atol=1e-5)


def normalised(made: ocssl.Learner) -> Tensor:
    encoder = ocssl.load_encoder(made)
    return encoder.normalised(encoder.pixels(odd_images()))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [RESNET, {**RESNET, "encoder.name": "resnet10"}, VIT])
def test_transformers_loads_the_folder_and_gives_the_same(
    settings: dict[str, Any], tmp_path: Path, capsys: Capsys
) -> None:
    library = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    made = learner(**settings)
    out = exported(made, "hf", tmp_path, capsys)
    model = library.AutoModel.from_pretrained(str(out)).eval()
    with torch.no_grad():
        given = model(pixel_values=normalised(made))
    features = given.last_hidden_state[:, 0] if settings is VIT else given.pooler_output.flatten(1)
    same(features, made.transform(odd_images()))
    processor = json.loads((out / "preprocessor_config.json").read_text())
    assert (processor["size"], processor["crop_size"]) == ({"shortest_edge": 32}, {"height": 32, "width": 32})
    image = odd_images()[0]  # of 23 x 7 pixels: the centre's 7 x 7
    image = image.resize((32, 32), processor["resample"], box=(8, 0, 15, 7))
    pixels = np.asarray(image, np.float64).transpose(2, 0, 1) * processor["rescale_factor"]
    mean, std = (np.array(processor[f"image_{name}"])[:, None, None] for name in ("mean", "std"))
    np.testing.assert_allclose((pixels - mean) / std, normalised(made)[0], atol=1e-5)
    with pytest.raises(CheckpointError, match="README"):
        ocssl.load_encoder(out)


@pytest.mark.slow
def test_an_encoder_of_transformers_goes_back_to_it(tmp_path: Path, capsys: Capsys) -> None:
    library = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    own = learner(**RESNET)
    folder = exported(own, "hf", tmp_path, capsys)
    made = learner(**{"encoder.name": f"hf:{folder}"})
    (tmp_path / "second").mkdir()
    out = exported(made, "hf", tmp_path / "second", capsys)
    model = library.AutoModel.from_pretrained(str(out)).eval()
    with torch.no_grad():
        same(model(pixel_values=normalised(made)).pooler_output.flatten(1), made.transform(odd_images()))
    (tmp_path / "third").mkdir()
    back = exported(made, "safetensors", tmp_path / "third", capsys)
    same(ocssl.load_encoder(back)(odd_images()), made.transform(odd_images()))


def by_card(card: Path, **names: Any) -> dict[str, Any]:
    """What the code of an export's card leaves, given some names; FOLDER is the card's."""
    code = card.read_text().split("```python")[1].split("```")[0].replace("FOLDER", str(card.parent))
    assert '[read("image.jpg")]' in code
    with torch.no_grad():
        exec(code.replace('[read("image.jpg")]', "[read(path) for path in paths]"), names)
    return names


def odd_files(folder: Path) -> list[Path]:
    """Files of odd sizes and modes: also turned by EXIF, large enough that a JPEG is decoded at a part of its size."""
    folder.mkdir()
    paths = []
    for number, image in enumerate(odd_images()):
        paths.append(folder / f"{number}.{'tif' if image.mode == 'CMYK' else 'png'}")
        image.save(paths[-1])
    upright = Image.Exif()
    upright[0x0112] = 6
    rough = random_images(1, size=8)[0].permute(1, 2, 0).numpy()
    large = Image.fromarray(rough).resize((501, 333), Image.Resampling.BICUBIC)
    for mode in ("RGB", "L", "CMYK"):
        paths.append(folder / f"{mode}.jpg")
        large.convert(mode).save(paths[-1], exif=upright)
    large.convert("P").save(folder / "clear.gif", transparency=3)
    return [*paths, folder / "clear.gif"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [RESNET, VIT, {**VIT, "encoder.pool": "mean"}])
def test_the_card_of_an_export_for_transformers_gives_the_features(
    settings: dict[str, Any], tmp_path: Path, capsys: Capsys
) -> None:
    pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    made, paths = learner(**settings), odd_files(tmp_path / "images")
    out = exported(made, "hf", tmp_path, capsys)
    found = by_card(out / "README.md", paths=paths)
    same(found["features"], made.transform(paths))
    assert settings is RESNET or found["model"].pooler is None
    if settings.get("encoder.pool") != "mean":
        again = learner(**{"encoder.name": f"hf:{out}"})
        (tmp_path / "second").mkdir()
        second = exported(again, "hf", tmp_path / "second", capsys)
        same(by_card(second / "README.md", paths=paths)["features"], again.transform(paths))


@pytest.mark.slow
@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_the_card_of_an_onnx_file_gives_the_features_with_pillow_alone(
    fit: Any, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    settings = {**{key: value for key, value in SMALL.items() if key != "terms.overlap.k"}, "terms.overlap.k": 6}
    made, paths = ocssl.Learner("solar", image_size=21, settings=settings, fit=fit), odd_files(tmp_path / "images")
    out = exported(made, "onnx", tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    card = out.with_suffix(".md")
    assert "torch" not in card.read_text()
    assert "import ocssl" not in card.read_text()
    same(by_card(card, paths=paths)["features"], made.transform(paths))


@pytest.mark.slow
def test_the_fingerprint_follows_the_config_of_transformers(tmp_path: Path, capsys: Capsys) -> None:
    pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    made = learner(**VIT)
    folder = exported(made, "hf", tmp_path, capsys)
    table = json.loads((folder / "config.json").read_text())

    def fingerprint(**more: Any) -> str:
        (folder / "config.json").write_text(json.dumps({**table, **more}))
        own = {key: value for key, value in SMALL.items() if not key.startswith("encoder.")}
        settings = {**own, "terms.overlap.k": 6, "encoder.name": f"hf:{folder}"}
        return ocssl.load_encoder(ocssl.Learner("solar", image_size=32, settings=settings)).fingerprint

    first = fingerprint()
    assert fingerprint(hidden_act="relu") != first
    assert fingerprint(layer_norm_eps=1e-3) != first
    same_features: list[dict[str, Any]] = [
        {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
        {"_name_or_path": "elsewhere", "transformers_version": "4.0.0", "architectures": ["ViTForImageClassification"]},
        {"dtype": "float16"},
        {"id2label": {"0": "cat", "1": "dog"}, "label2id": {"cat": 0, "dog": 1}},
        {"output_attentions": False, "return_dict": True},  # as every config has it
    ]
    for more in same_features:
        assert fingerprint(**more) == first, more


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "resnet10"])
def test_timm_loads_the_folder_and_gives_the_same(name: str, tmp_path: Path, capsys: Capsys) -> None:
    standin = pytest.importorskip("torchvision_standin")
    timm = timm_or_skip(standin)
    made = learner(**{"encoder.name": name, "encoder.width": 64, "encoder.stem": "large"})
    out = exported(made, "timm", tmp_path, capsys)
    model = timm.create_model(f"local-dir:{out}", pretrained=True, num_classes=0).eval()
    with torch.no_grad():
        same(model(normalised(made)), made.transform(odd_images()))


def timm_or_skip(standin: Any) -> Any:
    from importlib.util import find_spec

    if find_spec("timm") is None:
        pytest.skip("timm is not installed")
    return standin.import_timm()


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"encoder.name": "resnet10", "encoder.width": 4}, "hf", "encoder.stem=large"),
        ({"encoder.name": "resnet10", "encoder.width": 4}, "timm", "encoder.stem=large"),
        (RESNET, "timm", "use --format hf"),
        (VIT, "timm", "--format hf"),
        ({**VIT, "encoder.patch": 5}, "hf", "whole patches"),
    ],
)
def test_what_a_library_cannot_compute_is_refused(
    settings: dict[str, Any], kind: str, said: str, tmp_path: Path, capsys: Capsys
) -> None:
    learner(**settings).save(tmp_path / "saved")
    code, _, err = call(capsys, "export", tmp_path / "saved", "--format", kind, "-o", tmp_path / "out")
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"saved"}


def test_an_export_never_overwrites_what_is_none(tmp_path: Path, capsys: Capsys) -> None:
    run, folder = saved(tmp_path / "run"), photos(tmp_path / "photos", 2)
    code, _, err = call(capsys, "export", run, "--format", "safetensors", "-o", folder)
    assert code == 2
    assert "name another folder" in err
    assert len(list(folder.rglob("*.png"))) == 2


def test_a_custom_encoder_is_passed_again(tmp_path: Path) -> None:
    from ocssl.embed.export import export

    def network() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 16))

    made = ocssl.Learner("finetune", image_size=8, encoder=network(), settings={"objective.projection": 16})
    export(ocssl.load_encoder(made), "safetensors", tmp_path / "out")
    with pytest.raises(CheckpointError, match="pass encoder="):
        ocssl.load_encoder(tmp_path / "out")
    same(ocssl.load_encoder(tmp_path / "out", encoder=network())(random_images(3)), made.transform(random_images(3)))


@pytest.mark.parametrize("fault", ["weights", "json", "size", "architecture", "option", "preprocessing", "fingerprint"])
def test_a_damaged_export_is_refused(fault: str, tmp_path: Path, capsys: Capsys) -> None:
    out = exported(learner(**{"encoder.name": "resnet10", "encoder.width": 2}), "safetensors", tmp_path, capsys)
    path = out / "encoder.json"
    facts = json.loads(path.read_text())
    if fault == "weights":
        content = bytearray((out / "model.safetensors").read_bytes())
        content[-3] ^= 1
        (out / "model.safetensors").write_bytes(content)
    elif fault == "json":
        path.write_text("[" * 5000)
    else:
        wrong: dict[str, Any] = {
            "size": {"preprocessing": {**facts["preprocessing"], "image_size": 10**9}},
            "architecture": {"architecture": {"name": "none"}},
            "option": {"architecture": {**facts["architecture"], "width": 4096}},
            "preprocessing": {"preprocessing": {**facts["preprocessing"], "std": [0, 1, 1]}},
            "fingerprint": {"fingerprint": "0" * 32},
        }
        path.write_text(json.dumps({**facts, **wrong[fault]}))
    with pytest.raises((CheckpointError, DataError, ocssl.errors.SettingError)) as caught:
        ocssl.load_encoder(out)
    assert str(caught.value).isprintable()


def test_an_export_embeds_and_searches_as_its_run(tmp_path: Path, capsys: Capsys) -> None:
    made = learner(**{"encoder.name": "resnet10", "encoder.width": 2})
    out = exported(made, "safetensors", tmp_path, capsys)
    folder, vectors = photos(tmp_path / "photos", 5), tmp_path / "v.parquet"
    assert call(capsys, "embed", out, folder, "-o", vectors)[0] == 0
    assert call(capsys, "embed", tmp_path / "saved", folder, "-o", vectors, "--update")[0] == 0
    image = folder / "even" / "000.png"
    assert call(capsys, "search", vectors, image, "--encoder", tmp_path / "saved")[0] == 0
    same(read_vectors(vectors).vector[0], made.transform([read_vectors(vectors).path[0]])[0])
