"""Damaged files of common formats: an image of the right shape or a reason comes out, nothing else, and it ends."""

from __future__ import annotations

import faulthandler
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from image_files import encode
from PIL import Image, UnidentifiedImageError

from ocssl.data.decode.decoder import BadImage, decode

LONGEST = 30  # seconds for one file, after which the process ends with a traceback


def sound_files() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)).resize((40, 30))
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = {"save_all": True, "append_images": [image.rotate(90)], "duration": 10}
    return {
        "jpeg": encode(image, "JPEG", exif=exif),
        "progressive jpeg": encode(image, "JPEG", progressive=True),
        "cmyk jpeg": encode(image.convert("CMYK"), "JPEG"),
        "png": encode(image, "PNG", exif=exif),
        "palette png": encode(image.quantize(16), "PNG", transparency=3),
        "animated png": encode(image, "PNG", **frames),
        "webp": encode(image, "WEBP"),
        "lossless webp": encode(image, "WEBP", lossless=True, exif=exif),
        "gif": encode(image, "GIF", **frames),
        "bmp": encode(image, "BMP"),
        "tiff": encode(image, "TIFF", exif=exif),
        "lzw tiff": encode(image, "TIFF", compression="tiff_lzw"),
        "deflate tiff": encode(image.convert("I;16"), "TIFF", compression="tiff_adobe_deflate"),
    }


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """One of five kinds of damage."""
    changed = bytearray(data)
    kind = rng.integers(5)
    if kind == 0:  # a few bits
        for _ in range(rng.integers(1, 12)):
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    elif kind == 1:  # the header
        for _ in range(rng.integers(1, 4)):
            changed[rng.integers(4, min(64, len(changed)))] = rng.integers(256)
    elif kind == 2:  # the end is missing
        del changed[rng.integers(1, len(changed)) :]
    elif kind == 3:  # a part is missing
        start = int(rng.integers(len(changed)))
        del changed[start : start + int(rng.integers(1, 40))]
    else:  # a number became as large, or as small, as it can be
        start = int(rng.integers(len(changed)))
        changed[start : start + 4] = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff")[rng.integers(3)]
    return bytes(changed)


def fuzzed(count: int) -> Iterator[bytes]:
    sound = list(sound_files().values())
    for number in range(count):
        yield damage(sound[number % len(sound)], np.random.default_rng(number))


def test_sound_files_are_decoded() -> None:
    for name, data in sound_files().items():
        assert decode(data, 16, "crop").any(), name


@pytest.mark.slow
def test_damaged_files_give_an_image_or_a_reason() -> None:
    images, reasons = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, data in enumerate(fuzzed(520)):
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            try:
                image = decode(data, 16, "squash" if number % 2 else "crop")
                assert image.shape == (3, 16, 16)
                assert image.dtype == np.uint8
                images += 1
            except BadImage as error:
                reasons.append(str(error))
            finally:
                faulthandler.cancel_dump_traceback_later()
    assert images > 50
    assert len(reasons) > 50
    assert all(reason.isprintable() for reason in reasons)


@pytest.mark.slow
def test_the_damage_is_such_that_plain_pillow_raises_and_warns_in_many_ways() -> None:
    seen: set[Any] = set()
    for data in fuzzed(520):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with Image.open(io.BytesIO(data)) as image:
                    image.getexif()
                    image.convert("RGB")
            except Exception as error:
                seen.add(type(error))
        seen.update(warning.category for warning in told)
    assert len(seen - {OSError, UnidentifiedImageError}) >= 2, seen


def test_the_same_damaged_file_gives_the_same_reason() -> None:
    def reasons() -> list[str]:
        found = []
        for data in fuzzed(104):
            try:
                decode(data, 8, "squash")
            except BadImage as error:
                found.append(str(error))
        return found

    assert reasons() == reasons()
