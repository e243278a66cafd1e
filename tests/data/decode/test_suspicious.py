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


def test_a_progressive_jpeg_without_its_last_scans_is_refused() -> None:
    """It ends where a scan ends, and is no damage to libjpeg: coarser in places, or without colours."""
    data = packed(0, "JPEG", progressive=True, quality=85)
    starts = [at for at in range(len(data)) if data.startswith(b"\xff\xda", at)]
    assert len(starts) > 4
    for start in starts[1:]:
        segment = data.rindex(b"\xff\xc4", 0, start) if b"\xff\xc4" in data[start - 200 : start] else start
        with pytest.raises(BadImage, match="last scans are missing"):
            decode(data[:segment] + b"\xff\xd9", 16, "squash")


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("quality", [5, 75, 100])
def test_a_whole_progressive_jpeg_is_not_suspicious(mode: str, quality: int) -> None:
    for image in (photo(1), Image.new("RGB", (8, 8), (9, 9, 9))):
        file = io.BytesIO()
        image.convert(mode).save(file, "JPEG", progressive=True, quality=quality)
        assert decode(file.getvalue(), 8, "crop").shape == (3, 8, 8)


def test_heic_is_read_as_it_was_written_and_refused_when_damaged() -> None:
    heif = pytest.importorskip("pillow_heif", reason="HEIC files need pillow-heif")
    file = io.BytesIO()
    heif.from_pillow(photo(0)).save(file, quality=95)
    data = file.getvalue()
    whole = np.asarray(photo(0).resize((32, 32), Image.Resampling.BILINEAR), float).transpose(2, 0, 1)
    assert np.abs(decode(data, 32, "squash") - whole).mean() < 4
    for share in (0.02, 0.3, 0.7, 0.95):
        at = int(share * len(data))
        for damaged in (data[:at], data[:at] + bytes(len(data) - at)):
            with pytest.raises(BadImage):
                decode(damaged, 32, "squash")
