"""The encoder that comes out: the same features as `transform`, from any kind of image, with a fingerprint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ocssl
from conftest import random_images, small_learner
from ocssl.data.decode.decoder import decode
from ocssl.errors import DataError, OcsslError

MODES = ("RGB", "L", "RGBA", "P", "1", "CMYK", "I;16", "LA")


def odd_images() -> list[Image.Image]:
    """Images of odd sizes and of every mode."""
    made = []
    for seed, mode in enumerate(MODES):
        pixels = np.random.default_rng(seed).integers(0, 256, (7 + 3 * seed, 23 - 2 * seed, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        if mode == "I;16":
            made.append(Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257))
        else:
            made.append(image.convert("L").convert(mode) if mode == "LA" else image.convert(mode))
    return made


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
    other.fit = "crop"
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
    assert learner.transform([]).shape == ocssl.load_encoder(learner)([]).shape == (0, learner.objective.dimension)


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
