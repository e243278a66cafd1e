"""How fast images are decoded, beside plain Pillow: `Image.open(path).convert("RGB").resize(...)` in this process.

Files of smooth noise: JPEG of 500 x 375, as photographs often are, and PNG of 32 x 32. Compared: decoding in this
process; by worker processes, their start and end included; reading the same images from the cache, in random order.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ocssl.bench.timing import Bar, Effort, Row, Workload, interleaved, ratio, spread
from ocssl.data.decode.cache import CachedImages, build
from ocssl.data.decode.files import FolderFiles, Packed
from ocssl.data.decode.image_set import LiveImages
from ocssl.errors import OcsslError

CUT, WORKERS, TEAM = 64, 2, "two workers"
LIMIT = Bar(1.8, at_least=True)
ALIKE = 6.0  # mean difference, of 255, that smoothing by another filter leaves between two ways of the same image


def decode_rows(effort: Effort) -> Iterator[Row]:
    """A few files, each decoded several times: writing more would take longest."""
    rounds = effort.rounds(5, 3)
    with tempfile.TemporaryDirectory() as name:
        photographs = write_files(Path(name) / "photographs", "JPEG", 500, 375, 100)
        yield from compared("JPEG 500 x 375", photographs, 64, effort.rounds(10, 3), rounds, LIMIT)
        if not effort.quick:
            yield from compared("JPEG 500 x 375", photographs, 224, 10, rounds)
        small = write_files(Path(name) / "small", "PNG", 32, 32, 1000)
        yield from compared("PNG 32 x 32", small, 32, effort.rounds(10, 1), rounds)


def write_files(folder: Path, kind: str, width: int, height: int, count: int) -> FolderFiles:
    """Files with smooth noise in them."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for row in range(count):
        rough = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC), np.int16)
        pixels = (smooth + rng.integers(-6, 7, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / str(row), kind)
    return FolderFiles(folder, Packed([str(row).encode() for row in range(count)]))


def compared(
    kind: str, files: FolderFiles, size: int, times: int, rounds: int, bar: Bar | None = None
) -> Iterator[Row]:
    """Images a second of each way, and how many times those of plain Pillow. Each file is read `times` times.

    `bar` is of this process beside plain Pillow, one core each.
    """
    cache = files.root.with_suffix(f".{size}.pixels")
    build(cache, files, size, "squash")
    order = torch.randperm(times * len(files), generator=torch.Generator().manual_seed(0)) % len(files)
    require_alike(files, size)
    ways: dict[str, Workload] = {
        "plain Pillow": lambda: [with_pillow(files, row, size) for row in order.tolist()],
        "this process": lambda: read_all(LiveImages(files, size, "squash"), order),
        TEAM: lambda: read_all(LiveImages(files, size, "squash", WORKERS), order),
        "cache": lambda: read_all(CachedImages(cache), order),
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
            limit = bar if way == "this process" else None
            name = f"{what}, {way}, faster than plain Pillow"
            yield Row("decode", name, faster, "x", bar=limit, faster=True, note=note)


def with_pillow(files: FolderFiles, row: int, size: int) -> npt.NDArray[np.uint8]:
    with Image.open(files.root / str(row)) as image:
        resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(resized).transpose(2, 0, 1).copy()


def read_all(pictures: LiveImages | CachedImages, order: Tensor) -> None:
    """Read the images of these rows."""
    if sum(len(images) for images, _ in pictures.walk(order.split(CUT))) != len(order):
        raise OcsslError("some of the images that are timed could not be read.")


def require_alike(files: FolderFiles, size: int) -> None:
    """Refuse to time ways that do not show the same images."""
    few = torch.arange(min(8, len(files)))
    ((images, _),) = LiveImages(files, size, "squash").walk([few])
    theirs = torch.from_numpy(np.stack([with_pillow(files, row, size) for row in few.tolist()]))
    if images.shape != theirs.shape or (images.float() - theirs.float()).abs().mean() > ALIKE:
        raise OcsslError("decoding and plain Pillow do not show the same images.")
