"""How fast images are decoded, beside the plain way, interleaved in one process.

    python benchmarks/decode.py --rounds 5

Files of smooth noise: JPEG of 500 x 375, as photographs often are, and PNG of 32 x 32. The plain way is
`Image.open(path).convert("RGB").resize(...)` in this process. Beside it: decoding in this process; by worker processes,
their start and end included; and reading the same images from a cache, in random order.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ocssl.pictures.cache import CachedPictures, build
from ocssl.pictures.files import Packed
from ocssl.pictures.folder import FolderFiles
from ocssl.pictures.live import LivePictures

CUT = 64


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


def plain(files: FolderFiles, size: int) -> None:
    for row in range(len(files)):
        with Image.open(files.root / str(row)) as image:
            np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1).copy()


def walked(pictures: LivePictures | CachedPictures, order: torch.Tensor) -> None:
    for images, _ in pictures.walk(order.split(CUT)):
        if not len(images):
            raise SystemExit("no images")


def told(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:10,.{digits}f} (quartiles {low:,.{digits}f} to {high:,.{digits}f})"


def compare(title: str, files: FolderFiles, size: int, rounds: int, workers: int, folder: Path) -> None:
    path = folder / f"{title}.pixels"
    build(path, files, size, "squash")
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
    ways: dict[str, Callable[[], None]] = {
        "plain Pillow": lambda: plain(files, size),
        "this process": lambda: walked(LivePictures(files, size, "squash"), order),
        f"{workers} workers": lambda: walked(LivePictures(files, size, "squash", workers), order),
        "cache": lambda: walked(CachedPictures(path), order),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            ways[way]()
            if number:  # the first round warms up
                seconds[way].append(time.perf_counter() - start)
    print(f"{title}: {len(files)} images to {size} px, {rounds} rounds")
    for way, times in seconds.items():
        print(f"  {way:<14} images/s {told([len(files) / s for s in times])}")
        if way != "plain Pillow":
            ratios = [p / s for p, s in zip(seconds["plain Pillow"], times, strict=True)]
            print(f"  {'':<14} as fast as plain, times {told(ratios, 2)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="times that each is timed, at least 2")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=1000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rounds = max(2, args.rounds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs = made(folder / "photographs", "JPEG", 500, 375, args.images)
        compare("JPEG 500 x 375", photographs, 64, rounds, args.workers, folder)
        compare("the same", photographs, 224, rounds, args.workers, folder)
        small = made(folder / "small", "PNG", 32, 32, 10 * args.images)
        compare("PNG 32 x 32", small, 32, rounds, args.workers, folder)


if __name__ == "__main__":
    main()
