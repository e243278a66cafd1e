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


JPEGS: dict[str, dict[str, Any]] = {
    "baseline": {"quality": 85},
    "optimised": {"quality": 85, "optimize": True},
    "progressive": {"quality": 85, "progressive": True},
    "grey": {"quality": 60},
    "fine": {"quality": 95, "subsampling": 0},  # libjpeg notices zeros in about half of these
}
SEEDS = 20


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize("change", [cut, zeroed_tail, zeroed_block])
def test_a_jpeg_that_was_cut_or_zeroed_is_refused(change: Change, kind: str) -> None:
    refused = 0
    for seed in range(SEEDS):
        try:
            decode(change(packed(seed, "JPEG", **JPEGS[kind]), np.random.default_rng(seed)), 16, "squash")
        except BadImage:
            refused += 1
    # Zeros inside a progressive JPEG are valid for a plain background, and libjpeg notices nine of ten that are not.
    assert refused >= (SEEDS * 3 // 4 if kind == "progressive" and change is zeroed_block else SEEDS)


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


PLAIN: list[tuple[str, int, dict[str, Any]]] = [
    ("JPEG", 640, {"quality": 85, "progressive": True}),
    ("JPEG", 640, {"quality": 85, "optimize": True}),
    ("JPEG", 640, {"quality": 85}),
    ("JPEG", 640, {"quality": 85, "progressive": True, "restart_marker_rows": 1}),
    ("WEBP", 1600, {"quality": 80}),
    ("WEBP", 1600, {"quality": 20, "method": 0}),
    ("WEBP", 640, {"lossless": True}),
    ("AVIF", 640, {}),
    ("JPEG2000", 640, {}),
    ("TIFF", 640, {"compression": "tiff_lzw"}),
    ("TIFF", 640, {"compression": "tiff_adobe_deflate"}),
    ("TIFF", 640, {"compression": "packbits"}),
    ("TIFF", 640, {"compression": "jpeg"}),
    ("PNG", 640, {}),
    ("GIF", 640, {}),
]


@pytest.mark.parametrize(("kind", "side", "options"), PLAIN)
@pytest.mark.parametrize("colour", ["white", "black", "grey"])
@pytest.mark.parametrize("place", ["centre", "top", "nowhere"])
def test_large_images_on_a_plain_background_are_not_suspicious(
    kind: str, side: int, options: dict[str, Any], colour: str, place: str
) -> None:
    if kind not in FORMATS:
        pytest.skip(f"this Pillow has no {kind}")
    image = Image.new("RGB", (side, side), colour)
    noise = np.random.default_rng(0).integers(0, 256, (side // 3, side // 3, 3), dtype=np.uint8)
    if place != "nowhere":
        image.paste(Image.fromarray(noise), (side // 3, side // 3 if place == "centre" else 0))
    file = io.BytesIO()
    image.save(file, kind, **options)
    assert decode(file.getvalue(), 16, "squash").shape == (3, 16, 16)


def test_a_fax_page_is_not_suspicious() -> None:
    for colour in (0, 1):
        page = Image.new("1", (1700, 2200), colour)
        page.paste(Image.new("1", (300, 30), 1 - colour), (200, 200))
        for compression in ("group3", "group4", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
            file = io.BytesIO()
            page.save(file, "TIFF", compression=compression)
            assert decode(file.getvalue(), 16, "squash").shape == (3, 16, 16), compression


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate"])
@pytest.mark.parametrize("change", [zeroed_tail, zeroed_block, lambda data, generator: data[: place(data, generator)]])
def test_a_compressed_tiff_that_was_cut_or_zeroed_is_refused(change: Change, compression: str) -> None:
    """Pillow hands out what there is of it, though libtiff says that it is damaged."""
    for seed in range(5):
        file = io.BytesIO()
        photo(seed).save(file, "TIFF", compression=compression)
        with pytest.raises(BadImage):
            decode(change(file.getvalue(), np.random.default_rng(seed)), 16, "squash")


def test_zeros_in_a_fax_page_are_refused() -> None:
    for seed in range(5):
        file = io.BytesIO()
        photo(seed).convert("1").save(file, "TIFF", compression="group4")
        with pytest.raises(BadImage, match="zero bytes in a row"):
            decode(zeroed_block(file.getvalue(), np.random.default_rng(seed)), 16, "squash")


def test_a_changed_byte_in_a_deflated_tiff_is_refused_by_its_checksum() -> None:
    file = io.BytesIO()
    photo(0).save(file, "TIFF", compression="tiff_adobe_deflate")
    data = bytearray(file.getvalue())
    data[len(data) // 2] ^= 1
    with pytest.raises(BadImage):
        decode(bytes(data), 16, "squash")


def test_a_deflated_tiff_whose_strip_ends_too_soon_is_refused() -> None:
    file = io.BytesIO()
    photo(0).save(file, "TIFF", compression="tiff_adobe_deflate", strip_size=10**6)
    data = bytearray(file.getvalue())
    start = int.from_bytes(data[4:8], "little")
    (entry,) = (at for at in range(start + 2, len(data) - 12, 12) if data[at : at + 2] == (279).to_bytes(2, "little"))
    count = int.from_bytes(data[entry + 8 : entry + 12], "little")
    data[entry + 8 : entry + 12] = (count // 2).to_bytes(4, "little")
    with pytest.raises(BadImage, match="a strip has no end"):
        decode(bytes(data), 16, "squash")


def scans(side: int, count: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    file = io.BytesIO()
    Image.new("L", (side, side), 90).save(file, "JPEG", progressive=True, quality=30)
    data = file.getvalue()
    starts = [at for at in range(len(data)) if data.startswith(b"\xff\xda", at)]
    return data[:-2] + data[starts[-1] : -2] * (count - len(starts)) + b"\xff\xd9"


def test_many_scans_of_many_pixels_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(BadImage, match=r"it has more than 86 scans"):
        decode(scans(4800, 90), 16, "squash")


def test_many_scans_of_few_pixels_and_what_follows_an_image_are_harmless() -> None:
    assert decode(scans(64, 400), 16, "squash").shape == (3, 16, 16)
    assert decode(packed(0, "JPEG") + b"\xff\xda" * 1000, 16, "squash").shape == (3, 16, 16)  # a film, by chance
