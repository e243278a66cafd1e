"""A folder as people have them: nested, ten formats and more modes, damaged, empty, links, odd names; 171 files."""

from __future__ import annotations

import io
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features

FILES = 171
Kind = tuple[str, str, str, dict[str, Any]]  # suffix, format, mode, options

KINDS: list[Kind] = [
    (".jpg", "JPEG", "RGB", {}),
    (".JPG", "JPEG", "L", {"quality": 95}),
    (".jpeg", "JPEG", "CMYK", {}),
    (".jpg", "JPEG", "RGB", {"progressive": True}),
    (".png", "PNG", "RGB", {}),
    (".png", "PNG", "RGBA", {}),
    (".png", "PNG", "LA", {}),
    (".png", "PNG", "P", {}),
    (".png", "PNG", "1", {}),
    (".png", "PNG", "I;16", {}),
    (".webp", "WEBP", "RGB", {}),
    (".webp", "WEBP", "RGBA", {"lossless": True}),
    (".bmp", "BMP", "RGB", {}),
    (".gif", "GIF", "P", {}),
    (".tif", "TIFF", "RGB", {}),
    (".tiff", "TIFF", "CMYK", {"compression": "tiff_lzw"}),
    (".ppm", "PPM", "RGB", {}),
    (".jp2", "JPEG2000", "RGB", {}),
]
if features.check("avif"):
    KINDS.append((".avif", "AVIF", "RGB", {}))


def encoded(number: int, kind: Kind, size: tuple[int, int] = (40, 30)) -> bytes:
    """A smooth image of its own."""
    rng = np.random.default_rng(number)
    rough = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    _, form, mode, options = kind
    image = rough.convert("L").convert("I;16") if mode == "I;16" else rough.convert(mode)
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def heic(number: int) -> bytes:
    """An image as a telephone writes it; pillow-heif must be there."""
    import pillow_heif

    image = Image.open(io.BytesIO(encoded(number, KINDS[4])))
    file = io.BytesIO()
    pillow_heif.from_pillow(image).save(file, quality=90)
    return file.getvalue()


def write_messy(root: Path, with_heif: bool = True) -> Counter[str]:
    """Fill a folder, and what stands beside it; how many files are not used, by reason. The others are images."""
    outside = root.parent / "outside"
    outside.mkdir(parents=True)
    (outside / "out.png").write_bytes(encoded(1000, KINDS[4]))
    deep = root / "holiday" / "2024 sommer" / "T\u00fcrkiye"
    for folder in (deep, root / "phone", root / "empty", root / ".thumbnails"):
        folder.mkdir(parents=True)
    places = [root, root / "holiday", deep, root / "phone"]
    without: Counter[str] = Counter()

    def put(path: Path | bytes, data: bytes, reason: str = "") -> None:
        with open(path, "xb") as file:
            file.write(data)
        if reason:
            without[reason] += 1

    # images of every kind, the large one first
    put(root / "large.jpg", encoded(0, KINDS[0], (500, 375)))
    odd = [" space .jpg", "-rf.jpg", "new\nline.jpg", "'quote\".jpg", "100%.jpg", "\u00e9\u4e2d\U0001f600.jpg"]
    odd.append("x" * 240 + ".jpg")
    for number, name in enumerate(odd):
        put(places[number % 4] / name, encoded(100 + number, KINDS[0]))
    put(os.fsencode(deep) + b"/\xff\xfe.jpg", encoded(110, KINDS[0]))
    put(root / "phone" / "IMG_0001", encoded(111, KINDS[0]))  # no extension, and an image
    put(root / "phone" / "IMG_0002", encoded(112, KINDS[4]))
    put(root / "holiday" / "wrong.jpg", encoded(113, KINDS[4]))  # a PNG
    (root / "linked.png").symlink_to("holiday/inside.png")
    put(root / "holiday" / "inside.png", encoded(114, KINDS[4]))
    for number in range(2):
        data = heic(120 + number) if with_heif else b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(range(200))
        put(root / "phone" / f"IMG_{number}.HEIC", data, "" if with_heif else ".heic (pip install pillow-heif)")

    # what is none, or none that can be used
    whole = encoded(130, KINDS[0])
    put(root / "cut.jpg", whole[: len(whole) // 2], "damaged")
    put(root / "phone" / "cut.png", encoded(131, KINDS[4])[:-20], "damaged")
    put(root / "phone" / "text.png", b"no image at all", "damaged")
    put(root / "zeroed.jpg", whole[: len(whole) - 200] + bytes(198) + b"\xff\xd9", "suspicious")
    put(root / "empty.png", b"", "empty")
    put(deep / "empty.jpg", b"", "empty")
    put(root / "empty_without_extension", b"", "empty")
    put(root / "README", b"some words", "no extension")
    put(root / "notes.txt", b"some words", ".txt")
    put(root / "phone" / "film.MOV", b"\0\0\0\x14ftypqt  ", ".mov")
    put(root / "phone" / "IMG_1.AAE", b"<xml/>", ".aae")
    put(root / ".DS_Store", b"\0\0\0\1Bud1", "hidden")
    (root / "dangling.jpg").symlink_to("nothing.jpg")
    (root / "out.png").symlink_to(outside / "out.png")
    (root / "out").symlink_to(outside)
    (root / "again").symlink_to("holiday")
    os.mkfifo(root / "pipe.jpg")
    without.update(
        {"dangling link": 1, "link out of the folder": 2, "link to a folder inside": 1, "not a regular file": 1}
    )
    put(root / ".thumbnails" / "1.png", encoded(140, KINDS[4]))  # in a hidden folder, which is left out as one
    without["hidden"] += 1

    # the rest are images of all kinds in all places
    number = 0
    while count(root) < FILES:
        kind = KINDS[number % len(KINDS)]
        put(places[number % 4] / f"{number:03d}{kind[0]}", encoded(number, kind))
        number += 1
    return without


def count(root: Path) -> int:
    """All that a folder shows: files and links of any kind, and a hidden folder as one."""
    found = 0
    for place, folders, files in os.walk(os.fsencode(root)):
        hidden = [name for name in folders if name.startswith(b".")]
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        found += len(files) + len(hidden) + len(links)
        folders[:] = [name for name in folders if name not in hidden]
    return found
