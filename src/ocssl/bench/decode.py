"""How fast images are decoded, beside the plain way.

Files of smooth noise: JPEG of 500 x 375, as photographs often are, and PNG of 32 x 32. The plain way is
`Image.open(path).convert("RGB").resize(...)` in this process. Beside it: decoding in this process; by worker processes,
their start and end included; and reading the same images from the cache, in random order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ocssl.bench.rows import Effort, Row
from ocssl.bench.timing import Work, interleaved, ratio, spread
from ocssl.data.decode.cache import CachedPictures, build
from ocssl.data.decode.encoded import Packed
from ocssl.data.decode.folder_files import FolderFiles
from ocssl.data.decode.live import LivePictures
from ocssl.errors import OcsslError

CUT, WORKERS, TEAM = 64, 2, "two workers"
ALIKE = 6.0  # mean difference, of 255, that smoothing by another filter leaves between two ways of the same image


def rows(effort: Effort) -> Iterator[Row]:
    """The files are few, and each is decoded several times: writing them would take longest."""
    rounds = effort.rounds(5, 3)
    with tempfile.TemporaryDirectory() as name:
        photographs = made(Path(name) / "photographs", "JPEG", 500, 375, 100)
        yield from compared("JPEG 500 x 375", photographs, 64, effort.rounds(10, 3), rounds)
        if not effort.quick:
            yield from compared("JPEG 500 x 375", photographs, 224, 10, rounds)
        small = made(Path(name) / "small", "PNG", 32, 32, 1000)
        yield from compared("PNG 32 x 32", small, 32, effort.rounds(10, 1), rounds)


def made(folder: Path, kind: str, width: int, height: int, count: int) -> FolderFiles:
    """Files with smooth noise in them."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for row in range(count):
        rough = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC), np.int16)
        pixels = (smooth + rng.integers(-6, 7, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / str(row), kind)
    return FolderFiles(folder, Packed([str(row).encode() for row in range(count)]))


def compared(kind: str, files: FolderFiles, size: int, times: int, rounds: int) -> Iterator[Row]:
    """Images a second of each way, and how many times the plain way's that is. Each file is taken so many times."""
    cache = files.root.with_suffix(f".{size}.pixels")
    build(cache, files, size, "squash")
    order = torch.randperm(times * len(files), generator=torch.Generator().manual_seed(0)) % len(files)
    require_alike(files, size)
    ways: dict[str, Work] = {
        "plain Pillow": lambda: [plain(files, row, size) for row in order.tolist()],
        "this process": lambda: walked(LivePictures(files, size, "squash"), order),
        TEAM: lambda: walked(LivePictures(files, size, "squash", WORKERS), order),
        "cache": lambda: walked(CachedPictures(cache), order),
    }
    found = interleaved(ways, rounds)
    what = f"{kind} to {size} px"
    for way, seconds in found.items():
        note = f"{len(order):,} images of {len(files):,} files"
        if way == TEAM:
            note += "; starting the processes counts"
        yield Row("decode", f"{what}, {way}", spread([len(order) / s for s in seconds]), "images/s", note=note)
        if way != "plain Pillow":
            faster = ratio(found, "plain Pillow", way)
            yield Row("decode", f"{what}, {way}, faster than plain Pillow", faster, "x", faster=True, note=note)


def plain(files: FolderFiles, row: int, size: int) -> npt.NDArray[np.uint8]:
    with Image.open(files.root / str(row)) as image:
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(resized).transpose(2, 0, 1).copy()


def walked(pictures: LivePictures | CachedPictures, order: Tensor) -> None:
    """Go through the images of these rows."""
    if sum(len(images) for images, _ in pictures.walk(order.split(CUT))) != len(order):
        raise OcsslError("some of the images that were to be timed could not be read.")


def require_alike(files: FolderFiles, size: int) -> None:
    """Refuse to time ways that do not show the same images."""
    few = torch.arange(min(8, len(files)))
    ((images, _),) = LivePictures(files, size, "squash").walk([few])
    theirs = torch.from_numpy(np.stack([plain(files, row, size) for row in few.tolist()]))
    if images.shape != theirs.shape or (images.float() - theirs.float()).abs().mean() > ALIKE:
        raise OcsslError("decoding and its plain form do not show the same images.")
