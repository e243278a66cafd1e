"""`ocssl.images`: the images of a folder or another source, in minibatches, without a benchmark or a run."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ocssl._core.exclusive_call import each_in_own_torch_state, own_torch_state
from ocssl.data.decode.decoder import Fit
from ocssl.data.decode.files import Paths, silent
from ocssl.data.decode.image_set import LiveImages
from ocssl.data.sources import BENCHMARKS
from ocssl.data.sources.source import Drawing, SourceImages, own_source, parse_name
from ocssl.data.stream import Batch
from ocssl.errors import SettingError
from ocssl.settings import StreamSettings, checked_int


@own_torch_state()
def images(
    source: str | os.PathLike[str],
    size: int = 64,
    *,
    batch: int = 10,
    fit: Fit = "crop",
    workers: int = 0,
    bad_images: Literal["skip", "stop"] = "skip",
) -> Iterator[Batch]:
    """Every usable image of a folder, or of `parquet:PATH`, `wds:PATTERN` or `hf:NAME`, once and in order.

    A minibatch has `images` (uint8 [b, 3, size, size]), `ids` (row numbers of the sorted files, which do not change as
    long as the files are the same), `paths` and `labels` (-1 where there are none). It is smaller by the images that
    cannot be used, and an empty one is left out; with `bad_images="stop"` such an image is a DataError. `workers` is
    the number of processes that decode; 0: this one.

    >>> for batch in ocssl.images("photos", size=64):  # doctest: +SKIP
    ...     learner.partial_fit(batch.images, ids=batch.ids)
    """
    size, batch = checked_int("size", size, 8, 1024), checked_int("batch", batch, 1, 2**20)
    workers = checked_int("workers", workers, 0, 256)
    for name, value, known in (("fit", fit, ("crop", "squash")), ("bad_images", bad_images, ("skip", "stop"))):
        if value not in known:
            raise SettingError(f"{name} is {value!r}: wanted {known[0]} or {known[1]}.")
    kind, place = parse_name(own_source(os.fspath(source)))
    found = BENCHMARKS.build(kind).find(Path(place) if place else None, StreamSettings(), silent)
    return each_in_own_torch_state(_batches(found, size, batch, fit, workers, bad_images))


def _batches(
    found: SourceImages, size: int, batch: int, fit: Fit, workers: int, bad_images: Literal["skip", "stop"]
) -> Generator[Batch]:
    first = 0
    for part in (found.train, found.test):
        if part is None:
            continue
        files = part.images
        assert not isinstance(files, Tensor | Drawing)  # own images are encoded
        labels = torch.full((len(files),), -1) if part.labels is None else torch.from_numpy(part.labels)
        cuts = torch.arange(len(files)).split(batch)
        walk = LiveImages(files, size, fit, workers, bad_images).walk(cuts)
        for cut, (pixels, usable) in zip(cuts, walk, strict=True):
            rows = cut[usable]
            if len(rows):
                yield Batch(pixels, first + rows, 0, labels[rows], Paths(files, rows.numpy()))
        first += len(files)
