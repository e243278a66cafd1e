"""Damaged files that decode: what can be seen is refused, and clean files are not."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from ocssl.data.decode.decoder import FORMATS, BadImage, decode

Change = Callable[[bytes, np.random.Generator], bytes]


def photo(seed: int, side: int = 160) -> Image.Image:
    """Blurred noise: compresses about as photographs do."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2))


def packed(seed: int, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    photo(seed).save(file, kind, **options)
    return file.getvalue()


def place(data: bytes, generator: np.random.Generator) -> int:
    return int(generator.integers(len(data) // 2, len(data) * 8 // 10))


def cut(data: bytes, generator: np.random.Generator) -> bytes:
    return data[: place(data, generator)] + b"\xff\xd9"


def zeroed_tail(data: bytes, generator: np.random.Generator) -> bytes:
    at = place(data, generator)
    return data[:at] + bytes(len(data) - at)


def zeroed_block(data: bytes, generator: np.random.Generator) -> bytes:
    at = place(data, generator)
    return data[:at] + bytes(120) + data[at + 120 :]


JPEGS = {"baseline": {"quality": 85}, "progressive": {"quality": 85, "progressive": True}, "grey": {"quality": 60}}


@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS)
@pytest.mark.parametrize("change", [cut, zeroed_tail, zeroed_block])
def test_a_jpeg_that_was_cut_or_zeroed_is_refused(change: Change, options: dict[str, Any]) -> None:
    for seed in range(20):
        with pytest.raises(BadImage):
            decode(change(packed(seed, "JPEG", **options), np.random.default_rng(seed)), 16, "squash")


@pytest.mark.parametrize("kind", ["WEBP", "BMP", "TIFF", "AVIF", "PPM"])
def test_a_zeroed_tail_is_refused_in_formats_without_checksums(kind: str) -> None:
    if kind not in FORMATS:
        pytest.skip(f"this Pillow has no {kind}")
    for seed in range(10):
        with pytest.raises(BadImage):
            decode(zeroed_tail(packed(seed, kind), np.random.default_rng(seed)), 16, "squash")


@pytest.mark.parametrize("kind", FORMATS)
def test_clean_files_are_not_suspicious(kind: str) -> None:
    for seed in range(10):
        assert decode(packed(seed, kind), 16, "squash").shape == (3, 16, 16)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("colour", ["black", "white", "red"])
def test_images_of_one_colour_are_not_suspicious(kind: str, colour: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (200, 200), colour).save(file, kind)
    assert decode(file.getvalue(), 16, "squash").shape == (3, 16, 16)


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "PPM"])
def test_black_bars_above_and_below_are_not_suspicious(kind: str) -> None:
    wide = Image.new("RGB", (160, 240), "black")
    wide.paste(photo(0), (0, 40))
    file = io.BytesIO()
    wide.save(file, kind)
    assert decode(file.getvalue(), 16, "squash").shape == (3, 16, 16)


def test_profiles_and_thumbnails_with_zeros_are_not_suspicious() -> None:
    exif = Image.Exif()
    exif[0x010E] = "a camera"
    thumbnail = packed(1, "JPEG", quality=20)
    for kind in ("JPEG", "WEBP"):
        data = packed(0, kind, icc_profile=bytes(500), exif=exif.tobytes() + thumbnail + bytes(300))
        assert decode(data, 16, "squash").shape == (3, 16, 16)
    assert decode(packed(0, "JPEG") + bytes(400), 16, "squash").shape == (3, 16, 16)  # what some phones append


def test_a_few_bytes_between_segments_are_harmless() -> None:
    data = packed(0, "JPEG")
    assert decode(data[:-2] + b"\0" * 4 + data[-2:], 16, "squash").shape == (3, 16, 16)


def test_what_pillow_alone_lets_pass() -> None:
    """The check is needed: without it these files are images."""
    data = cut(packed(0, "JPEG"), np.random.default_rng(0))
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.size == (160, 160)
