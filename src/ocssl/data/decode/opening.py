"""Encoded images become images of one size: out of a cache of decoded ones, or decoded on the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from ocssl.data.decode import cache as cached
from ocssl.data.decode.cache import CachedPictures, needed_bytes
from ocssl.data.decode.decoder import Fit
from ocssl.data.decode.encoded import Files
from ocssl.data.decode.images import Pictures, Report, silent
from ocssl.data.decode.live import LivePictures
from ocssl.data.decode.workers import unusable

__all__ = ["cache_folder", "needed_bytes", "open_pictures"]

MOST_WORKERS = 8  # where nobody says how many: beyond these, disks and pipes decide


def open_pictures(
    files: Files,
    *,
    size: int,
    fit: Fit,
    decode: Literal["cache", "live"],
    workers: int = 0,
    cache: Path | None = None,
    bad_images: Literal["skip", "stop"] = "skip",
    report: Report = silent,
) -> Pictures:
    """Images of `size`, the same either way. `workers` is the number of decoding processes; 0: one a core, at most 8.

    A cache is made by the first call for these files, size and fit, and opened at once by the next. With "stop", an
    image that cannot be used is a DataError: here with a cache, when its cut is handed out without.
    """
    workers = workers or min(MOST_WORKERS, os.cpu_count() or 1)
    if decode == "live":
        return LivePictures(files, size, fit, workers, bad_images)
    key = cached.key(files, size, fit)
    path = (cache or cache_folder()) / f"{key[:32]}.pixels"
    cached.build(path, files, size, fit, workers if workers > 1 else 0, report, bad_images)
    pictures = CachedPictures(path, key)
    if bad_images == "stop" and pictures.faults:
        first = pictures.faults[min(pictures.faults)]
        raise unusable(first.name, first.reason)
    return pictures


def cache_folder() -> Path:
    """Where decoded images are kept: $OCSSL_CACHE, or the user's folder for caches."""
    own = os.environ.get("OCSSL_CACHE")
    if own:
        return Path(own)
    everyone = os.environ.get("XDG_CACHE_HOME")
    return (Path(everyone) if everyone else Path("~/.cache").expanduser()) / "ocssl"
