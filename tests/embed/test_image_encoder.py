"""The encoder that comes out: the same features as `transform`, from any kind of image, with a fingerprint."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from made import MODES, odd_images
from PIL import Image
from safetensors.torch import save_file

import ocssl
from conftest import SMALL as SMALL_ALL
from conftest import SMALL_STREAM, random_images, small_learner
from ocssl.cli import main
from ocssl.data.decode.decoder import decode
from ocssl.data.decode.pixels import pixels_of
from ocssl.errors import DataError, OcsslError

SMALL = {key: value for key, value in SMALL_ALL.items() if not key.startswith("encoder.")}


@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_features_equal_those_of_transform(fit: str, tmp_path: Path) -> None:
    learner = small_learner()
    learner.fit = fit  # type: ignore[assignment]
    learner.partial_fit(random_images(20))
    encoder = ocssl.load_encoder(learner)
    assert not encoder.training
    images = random_images(5, seed=1)
    wanted = learner.transform(images)
    for given in (images, images.numpy(), images.permute(0, 2, 3, 1), images.numpy().transpose(0, 2, 3, 1)):
        np.testing.assert_allclose(encoder(given).numpy(), wanted, rtol=1e-5, atol=1e-7)
    odd = odd_images()
    np.testing.assert_allclose(encoder(odd).numpy(), learner.transform(odd), rtol=1e-5, atol=1e-7)
    paths = [tmp_path / f"{n}.png" for n in range(len(odd)) if odd[n].mode != "CMYK"]
    kept = [image for image in odd if image.mode != "CMYK"]
    for path, image in zip(paths, kept, strict=True):
        image.save(path)
    np.testing.assert_allclose(encoder(paths).numpy(), encoder(kept).numpy(), rtol=1e-5, atol=1e-7)
    read = np.stack([decode(path.read_bytes(), 8, encoder.fit) for path in paths])
    np.testing.assert_allclose(encoder(paths).numpy(), learner.transform(read), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("side", [(300, 200), (3000, 2000)])
@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
def test_a_large_jpeg_gives_the_same_pixels_as_a_path_and_as_an_image(
    side: tuple[int, int], kind: str, tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (side[1] // 20, side[0] // 20, 3), dtype=np.uint8)
    exif, path = Image.Exif(), tmp_path / "photo.jpg"
    exif[0x0112] = 6
    large = Image.fromarray(noise).resize(side, Image.Resampling.BICUBIC)
    large.save(
        path, kind, exif=exif, quality=95, **({"save_all": True, "append_images": [large]} if kind == "MPO" else {})
    )
    wanted = pixels_of([path], 64, "crop")
    with Image.open(path) as image:
        np.testing.assert_array_equal(pixels_of([image], 64, "crop"), wanted)
        np.testing.assert_array_equal(pixels_of([image], 64, "crop"), wanted)
        image.load()
        near = pixels_of([image], 64, "crop").astype(int) - wanted
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        np.testing.assert_array_equal(pixels_of([image], 64, "crop"), wanted)
    assert np.abs(near).mean() < 5  # loaded: another resampling of the same image
    assert np.abs(near).max() > 0


def test_arrays_of_another_size_are_resized_as_images_are() -> None:
    encoder = ocssl.load_encoder(small_learner())
    pixels = np.random.default_rng(0).integers(0, 256, (2, 17, 11, 3), dtype=np.uint8)
    listed = encoder([Image.fromarray(image) for image in pixels])
    np.testing.assert_allclose(encoder(pixels).numpy(), listed.numpy(), rtol=1e-5, atol=1e-7)


def test_the_fingerprint_follows_weights_and_preprocessing_only(tmp_path: Path) -> None:
    learner = small_learner()
    first = ocssl.load_encoder(learner).fingerprint
    learner.transform(random_images(3))
    learner.save(tmp_path / "saved")
    assert ocssl.load_encoder(learner).fingerprint == ocssl.load_encoder(tmp_path / "saved").fingerprint == first
    other = ocssl.load_encoder(learner)
    other.fit = "squash"
    assert other.fingerprint != first
    learner.partial_fit(random_images(20))
    assert ocssl.load_encoder(learner).fingerprint != first


def test_the_encoder_is_a_copy_that_learning_does_not_change() -> None:
    learner = small_learner()
    encoder = ocssl.load_encoder(learner)
    before = encoder(random_images(3))
    learner.partial_fit(random_images(20))
    assert torch.equal(encoder(random_images(3)), before)
    assert learner.encoder.training


def test_an_empty_batch_gives_an_empty_result() -> None:
    learner = small_learner()
    encoder, empty = ocssl.load_encoder(learner), (0, learner.objective.dimension)
    for none in ([], np.empty((0, 3, 8, 8), np.uint8), torch.empty(0, 8, 8, 3, dtype=torch.uint8)):
        assert learner.transform(none).shape == tuple(encoder(none).shape) == empty


def test_a_learner_learns_from_pil_images_and_refuses_an_empty_list() -> None:
    learner = small_learner()
    assert learner.partial_fit(odd_images()).seen == len(MODES)
    with pytest.raises(DataError, match="empty batch"):
        learner.partial_fit([])


def test_wrong_images_are_refused_in_one_sentence(tmp_path: Path) -> None:
    encoder = ocssl.load_encoder(small_learner())
    (tmp_path / "torn.png").write_bytes(b"no image")
    for given, said in (
        (np.zeros((2, 3, 8, 8)), "float64"),
        ([1], "int"),
        ([tmp_path / "torn.png"], "torn.png"),
        ([tmp_path / "none.png"], "none.png"),
    ):
        with pytest.raises(DataError, match=said):
            encoder(given)
    with pytest.raises(OcsslError, match="no checkpoint"):
        ocssl.load_encoder(tmp_path)


def test_equal_weights_of_another_architecture_have_another_fingerprint() -> None:
    vit = {"encoder.name": "vit", "encoder.patch": 4, "encoder.dim": 8, "encoder.depth": 1, "encoder.heads": 1}
    pools = [{**SMALL, **vit, "encoder.pool": pool, "terms.overlap.k": 6} for pool in ("cls", "mean")]
    made = [ocssl.load_encoder(ocssl.Learner("solar", image_size=8, settings=settings)) for settings in pools]
    for (name, first), (other, second) in zip(*(e.state_dict().items() for e in made), strict=True):
        assert name == other
        assert torch.equal(first, second)
    assert made[0].fingerprint != made[1].fingerprint


def test_a_run_gives_a_learner_and_an_encoder_of_its_newest_state(tmp_path: Path) -> None:
    sets = {**SMALL_ALL, **SMALL_STREAM, "encoder.name": "resnet10", "stream.fit": "crop"}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    with pytest.raises(SystemExit) as ended:
        main(["run", "er-fifo", "synthetic", "--out", str(tmp_path / "run"), "--quiet", *words])
    assert ended.value.code == 0
    learner = ocssl.Learner.load(tmp_path / "run")
    encoder = ocssl.load_encoder(tmp_path / "run")
    assert learner.fit == encoder.fit == "crop"
    odd = odd_images()
    np.testing.assert_allclose(encoder(odd).numpy(), learner.transform(odd), rtol=1e-5, atol=1e-7)
    assert encoder.fingerprint == ocssl.load_encoder(learner).fingerprint
    shown = f"Learner('er-fifo', image_size=8, steps={learner.steps}, seen={learner.seen}, memory=24 of 24 slots)"
    assert learner.seen > 24
    assert repr(learner) == shown


@pytest.mark.filterwarnings("ignore:encoder.weights .* does not say")
def test_the_file_that_weights_came_from_is_not_needed_afterwards(tmp_path: Path) -> None:
    learner = small_learner()
    weights = tmp_path / "start.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in learner.encoder.state_dict().items()}, weights)
    small_learner(encoder__weights=str(weights)).save(tmp_path / "saved")
    weights.unlink()
    assert ocssl.load_encoder(tmp_path / "saved").fingerprint == ocssl.load_encoder(learner).fingerprint


def test_an_encoder_that_cannot_learn_warns() -> None:
    frozen = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16)).requires_grad_(False)
    with pytest.warns(UserWarning, match="only heads learn"):
        ocssl.Learner("solar", image_size=8, encoder=frozen, settings={**SMALL, "terms.overlap.k": 6})
