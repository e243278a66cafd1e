"""Folders of images and saved learners for the tests of embedding, search and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import random_images, small_learner
from ocssl.cli import main

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


def photos(folder: Path, count: int = 30, first: int = 0) -> Path:
    """A folder of small pictures in two sub-folders; each is a coarse random pattern."""
    for n in range(first, first + count):
        place = folder / ("even" if n % 2 == 0 else "odd") / f"{n:03d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(n).integers(0, 256, (4, 3, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((13 + n % 5, 11), Image.Resampling.BICUBIC).save(place)
    return folder


def messy(folder: Path) -> Path:
    """The same with images of odd modes, and files that are none."""
    photos(folder, 10)
    for n, image in enumerate(odd_images()):
        image.save(folder / f"odd-{n}.{'tif' if image.mode == 'CMYK' else 'png'}")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    (folder / "empty.png").write_bytes(b"")
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


def saved(folder: Path, seed: int = 0, **more: Any) -> Path:
    """A saved learner that has seen a few images."""
    learner = small_learner(seed=seed, **more)
    learner.partial_fit(random_images(10, seed=seed))
    learner.save(folder)
    return folder


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """The exit code of a command, and what it prints to standard output and error."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err
