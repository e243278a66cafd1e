"""Pictures of the replay memory: what it holds at the end, and what it evicted during the run."""

from __future__ import annotations

import base64
import io
import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image, ImageDraw, features
from torch import Tensor

from ocssl._core import checkpoint
from ocssl.errors import CheckpointError
from ocssl.results.read_runs import Run
from ocssl.runs.folder import SNAPSHOTS, complete_checkpoints

TILE, GAP, COLUMNS, MOST, MOST_EVICTED = 40, 2, 20, 200, 40
STRIP = 24  # images
FRAME = "#E8A100"  # seen on light and dark ground
LARGEST_PNG = 80_022  # characters of its URL, 60,000 bytes; larger are photographs, which WebP packs ten times smaller
DAMAGE = (CheckpointError, KeyError, TypeError, ValueError, IndexError, RuntimeError)


@dataclass(frozen=True)
class Sheet:
    """A contact sheet."""

    address: str  # the picture itself as a data URL, so that a page holds it
    width: int
    height: int
    alt: str  # what it shows, for who cannot see it


@dataclass(frozen=True)
class Pictures:
    """Some images of a memory, and a sentence on them."""

    sheet: Sheet | None  # None where there are none
    words: str


def make_gallery(run: Run) -> tuple[Pictures | None, list[str]]:
    """The first slots of the newest checkpoint that is whole, all in numbers, and notes on what could not be read."""
    notes: list[str] = []
    for state in reversed(complete_checkpoints(run.folder)):
        try:
            tensors, _ = checkpoint.read(state)
            image, loss, born, draws = (tensors[f"memory.column.{key}"] for key in ("image", "loss", "born", "draws"))
            if not len(image):
                return None, ["The memory is empty: this method stores no images."]
            require_pictures(image, loss, born)
            ranked = run.has_loss and not run.settings.get("schedule.mix") and bool(loss.any())
            order = "highest stored loss first" if ranked else "newest first"
            rank = loss.nan_to_num(nan=-math.inf) if ranked else born
            best = rank.argsort(descending=True, stable=True)[:MOST]
            shown = "all" if len(best) == len(image) else str(len(best))
            words = f"{len(image)} slots filled ({shown} shown, {order}), "
            words += f"mean stored loss {float(loss[loss.isfinite()].double().mean()):.3f}, " if ranked else ""
            words += f"mean age {float(tensors['memory.seen']) - float(born.double().mean()):.0f} stream images, "
            words += f"median draws {float(draws.double().quantile(0.5)):.0f}."
            alt = f"Contact sheet of {len(best)} images in the final memory of {run.label}, {order}"
            return Pictures(contact_sheet(image[best], alt), words), notes
        except DAMAGE:
            notes.append(f"Checkpoint {state.name} is damaged and was skipped.")
    return None, [*notes, "No checkpoint can be read, so the memory is not shown."]


def make_strip(run: Run) -> Pictures | None:
    """Images spread evenly over the final memory, oldest first, to be compared with those of other methods.

    None where no checkpoint can be read.
    """
    for state in reversed(complete_checkpoints(run.folder)):
        try:
            tensors, _ = checkpoint.read(state)
            images, born, seen = (tensors[f"memory.{key}"] for key in ("column.image", "column.born", "seen"))
            if not len(images):
                return None
            require_pictures(images, born)
            order = born.argsort(stable=True)
            chosen = order[evenly(len(order), STRIP)]
            low, middle, high = (100 * float(born.double().quantile(q)) / float(seen) for q in (0.0, 0.5, 1.0))
            words = f"arrived between {low:.0f} and {high:.0f} % of the stream, half of them after {middle:.0f} %"
            alt = f"Images that {run.label} keeps, oldest first: {words}"
            return Pictures(contact_sheet(images[chosen], alt, columns=STRIP), words)
        except DAMAGE:
            continue
    return None


def make_evicted(run: Run) -> list[Pictures]:
    """What was evicted after the first evaluation with a memory, after one in the middle, and before the last."""
    found = [path for path in complete_checkpoints(run.folder, SNAPSHOTS) if path.name.isdecimal()]
    pairs = [pair for pair in itertools.pairwise(found) if int(pair[0].name) > 0]
    wanted = dict.fromkeys([0, (len(pairs) - 1) // 2, len(pairs) - 1]) if pairs else {}
    total = run.minibatches[1]
    evicted = []
    for before, after in (pairs[i] for i in wanted):
        try:
            tiles, ids = checkpoint.read(before)[0], checkpoint.read(after)[0]["memory.column.id"]
            images, names = tiles["tile.image"], tiles["tile.id"]
            require_pictures(images, names)
            gone = images[~torch.isin(names, ids)]
            when = "between two evaluations"
            if total:
                begin, end = (100 * int(path.name) / total for path in (before, after))
                when = f"between {begin:.0f} and {end:.0f} % of the stream"
            cut = f" ({MOST_EVICTED} shown)" if len(gone) > MOST_EVICTED else ""
            words = f"{len(gone)} of {len(images)} pictured images left {when}{cut}."
            alt = f"Images evicted from the memory of {run.label} {when}"
            evicted.append(Pictures(contact_sheet(gone[:MOST_EVICTED], alt) if len(gone) else None, words))
        except DAMAGE:
            continue  # an empty, an older or a damaged snapshot: the others are shown
    return evicted


def require_pictures(images: Tensor, *columns: Tensor) -> None:
    """Raise ValueError if these are no images, or if a column has not a number for each."""
    fits = images.ndim == 4 and images.shape[1] == 3 and images.numel() and images.dtype == torch.uint8
    if not fits or any(column.ndim != 1 or len(column) != len(images) for column in columns):
        raise ValueError("columns of a memory do not have these shapes")


def evenly(count: int, most: int) -> Tensor:
    """Evenly spaced numbers below `count`, at most `most` of them."""
    return torch.linspace(0, count - 1, min(count, most)).round().long()


def contact_sheet(images: Tensor, alt: str, columns: int = COLUMNS, apart: int = 0) -> Sheet:
    """Tiles side by side on a clear ground: small images grow by a whole factor, large ones shrink. [n, 3, H, W]

    With `apart` the first tile of each row has a frame and is separated by that many pixels.
    """
    high, wide = images.shape[2:]
    factor = TILE // max(high, wide) or TILE / max(high, wide)
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    sheet = Image.new("RGBA", (columns * (size[0] + GAP) - GAP + apart, rows * (size[1] + GAP) - GAP))
    for index, pixels in enumerate(images.permute(0, 2, 3, 1).contiguous().numpy()):
        row, column = divmod(index, columns)
        method = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
        tile = Image.fromarray(pixels).resize(size, method)
        place = column * (size[0] + GAP) + (apart if column else 0), row * (size[1] + GAP)
        sheet.paste(tile, place)
        if apart and not column:
            box = (*place, place[0] + size[0] - 1, place[1] + size[1] - 1)
            ImageDraw.Draw(sheet).rectangle(box, outline=FRAME, width=3)
    address = data_url(sheet)
    if len(address) > LARGEST_PNG and features.check("webp"):  # the eye cannot tell them apart at this size
        address = data_url(sheet, "webp", quality=80, method=4)
    return Sheet(address, *sheet.size, alt)


def data_url(picture: Image.Image, kind: str = "png", **options: Any) -> str:
    """A picture as text that a page holds; `options` are those of the encoder."""
    packed = io.BytesIO()
    picture.save(packed, kind, **(options or {"optimize": True}))
    return f"data:image/{kind};base64,{base64.b64encode(packed.getvalue()).decode()}"
