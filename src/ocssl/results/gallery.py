"""Memories as pictures: what is kept at the end, and what was evicted on the way."""

from __future__ import annotations

import io
import itertools
import math
from dataclasses import dataclass

import torch
from PIL import Image, features
from torch import Tensor

from ocssl._core import checkpoint
from ocssl.errors import CheckpointError
from ocssl.results.read import Run
from ocssl.runs.folder import SNAPSHOTS, whole_checkpoints

TILE, GAP, COLUMNS, MOST, MOST_EVICTED = 40, 2, 20, 200, 40
LARGEST_PNG = 60_000  # bytes; larger sheets are photographs, which WebP packs ten times smaller
DAMAGE = (CheckpointError, KeyError, TypeError, ValueError, IndexError, RuntimeError)


@dataclass(frozen=True)
class Sheet:
    """A contact sheet, packed."""

    kind: str  # png or webp
    packed: bytes
    width: int
    height: int


@dataclass(frozen=True)
class Evicted:
    """Pictures that the memory held at one evaluation and no longer at the next."""

    sheet: Sheet | None  # None where all were kept
    begin: float | None  # shares of the stream
    end: float | None
    gone: int  # of those that have pictures
    of: int


@dataclass(frozen=True)
class Gallery:
    """The slots of the newest readable checkpoint in numbers, and the first of them as a sheet."""

    sheet: Sheet
    shown: int
    filled: int
    order: str
    loss: float | None  # mean over finite ones; None where stored losses mean nothing
    age: float  # mean number of stream images since arrival
    draws: float  # median


def make_gallery(run: Run) -> tuple[Gallery | None, list[str]]:
    """The memory of the newest checkpoint that is whole, with notes on what could not be read."""
    notes: list[str] = []
    for state in reversed(whole_checkpoints(run.folder)):
        name = state.name
        try:
            tensors, _ = checkpoint.read(state)
            image, loss, born, draws = (tensors[f"memory.column.{key}"] for key in ("image", "loss", "born", "draws"))
            if not len(image):
                return None, ["The memory is empty: this method stores no images."]
            _require_pictures(image, loss, born)
            ranked = run.has_loss and not run.settings.get("schedule.mix") and bool(loss.any())
            rank = loss.nan_to_num(nan=-math.inf) if ranked else born
            order = rank.argsort(descending=True, stable=True)[:MOST]
            gallery = Gallery(
                _contact_sheet(image[order]),
                shown=len(order),
                filled=len(image),
                order="highest stored loss first" if ranked else "newest first",
                loss=float(loss[loss.isfinite()].double().mean()) if ranked else None,
                age=float(tensors["memory.seen"]) - float(born.double().mean()),
                draws=float(draws.double().quantile(0.5)),
            )
            return gallery, notes
        except DAMAGE:
            notes.append(f"Checkpoint {name} is damaged and was passed over.")
    return None, [*notes, "No checkpoint can be read, so the memory is not shown."]


def make_evicted(run: Run) -> list[Evicted]:
    """What was evicted after the first evaluation with a memory, after one in the middle, and before the last."""
    found = [path for path in whole_checkpoints(run.folder, SNAPSHOTS) if path.name.isdecimal()]
    pairs = [pair for pair in itertools.pairwise(found) if int(pair[0].name) > 0]
    wanted = dict.fromkeys([0, (len(pairs) - 1) // 2, len(pairs) - 1]) if pairs else {}
    total = run.minibatches[1]
    evicted = []
    for before, after in (pairs[i] for i in wanted):
        try:
            tiles, ids = checkpoint.read(before)[0], checkpoint.read(after)[0]["memory.column.id"]
            images, names = tiles["tile.image"], tiles["tile.id"]
            if len(images):
                _require_pictures(images, names)
                gone = ~torch.isin(names, ids)
                sheet = _contact_sheet(images[gone][:MOST_EVICTED]) if bool(gone.any()) else None
                begin, end = (100 * int(path.name) / total if total else None for path in (before, after))
                evicted.append(Evicted(sheet, begin, end, int(gone.sum()), len(images)))
        except DAMAGE:
            continue  # an older or a damaged snapshot: the others are shown
    return evicted


def _require_pictures(images: Tensor, *columns: Tensor) -> None:
    fits = images.ndim == 4 and images.shape[1] == 3 and images.numel() and images.dtype == torch.uint8
    if not fits or any(column.ndim != 1 or len(column) != len(images) for column in columns):
        raise ValueError("columns of a memory do not have these shapes")


def _contact_sheet(images: Tensor) -> Sheet:
    """Tiles side by side on a clear ground: small images grow by a whole factor, large ones shrink. [n, 3, H, W]"""
    high, wide = images.shape[2:]
    factor = TILE // max(high, wide) or TILE / max(high, wide)
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    columns = min(COLUMNS, len(images))
    rows = math.ceil(len(images) / columns)
    sheet = Image.new("RGBA", (columns * (size[0] + GAP) - GAP, rows * (size[1] + GAP) - GAP))
    for index, pixels in enumerate(images.permute(0, 2, 3, 1).contiguous().numpy()):
        row, column = divmod(index, columns)
        method = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
        tile = Image.fromarray(pixels).resize(size, method)
        sheet.paste(tile, (column * (size[0] + GAP), row * (size[1] + GAP)))
    kind, packed = _pack(sheet)
    return Sheet(kind, packed, *sheet.size)


def _pack(sheet: Image.Image) -> tuple[str, bytes]:
    """PNG where it is small, else WebP, which the eye cannot tell from it at this size."""
    packed = io.BytesIO()
    sheet.save(packed, "PNG", optimize=True)
    if packed.tell() > LARGEST_PNG and features.check("webp"):
        packed = io.BytesIO()
        sheet.save(packed, "WEBP", quality=80, method=4)
        return "webp", packed.getvalue()
    return "png", packed.getvalue()
