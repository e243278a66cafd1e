"""The memory at the end of a run as a picture: a contact sheet of its slots, in an order that means something."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from ocssl import checkpoint
from ocssl.errors import CheckpointError
from ocssl.report.runs import Run
from ocssl.runs.folder import CHECKPOINTS

TILE, GAP, COLUMNS, MOST = 40, 2, 20, 200


@dataclass(frozen=True)
class Gallery:
    """The slots of the newest readable checkpoint in numbers, and the first of them as PNG."""

    png: bytes
    width: int
    height: int
    shown: int
    filled: int
    order: str
    loss: float | None  # mean over finite ones; None where stored losses mean nothing
    age: float  # mean number of stream images since arrival
    draws: float  # median


def make_gallery(run: Run) -> tuple[Gallery | None, list[str]]:
    """The memory of the newest checkpoint that is whole, with notes on what could not be read."""
    notes: list[str] = []
    for manifest in sorted((run.folder / CHECKPOINTS).glob(f"*/{checkpoint.MANIFEST}"), reverse=True):
        name = manifest.parent.name
        try:
            tensors, _ = checkpoint.read(manifest.parent)
            image, loss, born, draws = (tensors[f"memory.column.{key}"] for key in ("image", "loss", "born", "draws"))
            if not len(image):
                return None, ["The memory is empty: this method stores no images."]
            fits = image.ndim == 4 and image.shape[1] == 3 and image.numel() and len(image) == len(loss) == len(born)
            if image.dtype != torch.uint8 or not fits:
                raise ValueError("columns of a memory do not have these shapes")
            ranked = run.has_loss and not run.settings.get("schedule.mix") and bool(loss.any())
            rank = loss.nan_to_num(nan=-math.inf) if ranked else born
            order = rank.argsort(descending=True, stable=True)[:MOST]
            sheet = _contact_sheet(image[order])
            packed = io.BytesIO()
            sheet.save(packed, "PNG", optimize=True)
            gallery = Gallery(
                packed.getvalue(),
                *sheet.size,
                shown=len(order),
                filled=len(image),
                order="highest stored loss first" if ranked else "newest first",
                loss=float(loss[loss.isfinite()].double().mean()) if ranked else None,
                age=float(tensors["memory.seen"]) - float(born.double().mean()),
                draws=float(draws.double().quantile(0.5)),
            )
            return gallery, notes
        except (CheckpointError, KeyError, TypeError, ValueError, IndexError, RuntimeError):
            notes.append(f"Checkpoint {name} is damaged and was passed over.")
    return None, [*notes, "No checkpoint can be read, so the memory is not shown."]


def _contact_sheet(images: Tensor) -> Image.Image:
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
    return sheet
