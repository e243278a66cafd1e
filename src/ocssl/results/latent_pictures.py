"""What encoders of a run see: images as hyperballs in two dimensions, and their nearest neighbours, along the stream.

The images are those that the memory holds at the end. They are encoded by the networks of the first, a middle and the
last snapshot, so no data and no labels are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from ocssl._core import checkpoint
from ocssl._core.random import evaluating, generator_for
from ocssl.errors import OcsslError
from ocssl.evaluate.overlap_metric import overlap_count_from, sample_angles
from ocssl.learner import Learner
from ocssl.results.memory_pictures import DAMAGE, Sheet, contact_sheet, data_url, evenly, require_pictures
from ocssl.results.read_runs import Run
from ocssl.runs.folder import SNAPSHOTS, complete_checkpoints
from ocssl.runs.snapshots import load_network

MOST_IMAGES, LARGE, MOST_LARGE = 120, 96, 40  # images that are encoded; fewer of those with a larger side
QUERIES, NEIGHBOURS, APART = 6, 5, 10  # rows, images beside the first of each, pixels between
BALLS, VIEWS, PIXELS = 14, 10, 2**15  # images in the plane; views of each; pixels of images that are viewed at once
SIDE, MARGIN, THUMB = 300, 24, 22  # of the picture of hyperballs


@dataclass(frozen=True)
class Ball:
    """An image as a circle around its mean feature; the radius is the mean angle between its views."""

    x: float
    y: float
    radius: float
    picture: str  # a data URL


@dataclass(frozen=True)
class Moment:
    """What the encoder sees at one place of the stream."""

    when: str
    balls: list[Ball]
    lines: list[tuple[float, float, float, float]]  # between balls that overlap
    scale: tuple[float, float]  # length of the scale bar in the picture, and in radians
    words: str
    neighbours: Sheet
    stayed: str  # how many neighbours are those of the moment before


def make_moments(run: Run) -> tuple[list[Moment], list[str]]:
    """The first, a middle and the last snapshot, and why there is nothing to show."""
    images = _images(run.folder)
    states = [path for path in complete_checkpoints(run.folder, SNAPSHOTS) if path.name.isdecimal()]
    states = states or complete_checkpoints(run.folder)[-1:]
    if images is None or len(states) == 0:
        return [], ["Neighbours need snapshots and stored images; there are none."]
    chosen = [states[i] for i in dict.fromkeys((0, len(states) // 2, len(states) - 1))]
    moments, notes, before = list[Moment](), list[str](), None
    for path in chosen:
        try:
            learner, _ = load_network(path)
            near = _nearest(learner, images)
            moments.append(_moment(learner, images, near, before, _when(run, path), run.label))
            before = near
        except (OcsslError, *DAMAGE) as error:
            notes.append(f"{SNAPSHOTS}/{path.name} cannot be used: {error}")
    return moments, notes


def _images(folder: Path) -> Tensor | None:
    """Images of the newest checkpoint that is whole, evenly over their arrival; uint8 [n, 3, H, W]."""
    for state in reversed(complete_checkpoints(folder)):
        try:
            tensors, _ = checkpoint.read(state)
            images, born = tensors["memory.column.image"], tensors["memory.column.born"]
            require_pictures(images, born)
        except (OcsslError, *DAMAGE):
            continue
        most = MOST_IMAGES if max(images.shape[2:]) <= LARGE else MOST_LARGE
        if len(images) <= NEIGHBOURS:
            return None
        order = born.argsort(stable=True)
        return images[order[evenly(len(order), most)]]
    return None


def _when(run: Run, path: Path) -> str:
    position, total = int(path.name), run.minibatches[1]
    if position == 0:
        return "untrained"
    return f"{100 * position / total:.0f} % of the stream" if total else f"minibatch {position}"


def _nearest(learner: Learner, images: Tensor) -> Tensor:
    """The nearest neighbours of some images by cosine of their features: [QUERIES, NEIGHBOURS], without themselves."""
    features = torch.from_numpy(learner.transform(images)).double()
    unit = torch.nn.functional.normalize(features, dim=1)
    queries = evenly(len(images), QUERIES)
    cosines = unit[queries] @ unit.T
    cosines[torch.arange(len(queries)), queries] = -2.0
    return cosines.argsort(dim=1, descending=True, stable=True)[:, :NEIGHBOURS]


def _moment(learner: Learner, images: Tensor, near: Tensor, before: Tensor | None, when: str, label: str) -> Moment:
    means, angles = _views(learner, images)
    share = overlap_count_from(means, angles)
    chosen = evenly(len(images), BALLS)
    balls, lines, scale = _balls(images[chosen], means[chosen], angles[chosen])
    words = f"Of {len(images)} stored images, {VIEWS} views each: {100 * share:.0f} % of the pairs of hyperballs meet; "
    words += f"mean radius {float(angles.mean()):.3f} rad."
    queries = evenly(len(images), QUERIES)
    rows = torch.cat([queries[:, None], near], 1).flatten()
    pairs = zip(near.tolist(), [] if before is None else before.tolist(), strict=before is not None)
    kept = sum(len(set(a) & set(b)) for a, b in pairs)
    stayed = "" if before is None else f"{kept} of {near.numel()} neighbours are those of the moment before."
    alt = f"Rows of an image and its nearest neighbours, {label}, {when}"
    sheet = contact_sheet(images[rows], alt, columns=1 + near.shape[1], apart=APART)
    return Moment(when, balls, lines, scale, words, sheet, stayed)


@torch.no_grad()
def _views(learner: Learner, images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean feature [n, d] and angle [n] of each image over random views, the same at every moment."""
    generator, means, angles = generator_for(0, "views"), [], []
    with evaluating(learner.network):
        for block in images.split(max(1, min(32, PIXELS // images[0, 0].numel()))):
            batch = learner.views(block.to(learner.device), generator, VIEWS).flatten(0, 1)
            encoded = learner.encoder(batch).float().unflatten(0, (VIEWS, -1)).transpose(0, 1)  # [b, V, d]
            means.append(encoded.mean(1).cpu())
            angles.append(torch.as_tensor(sample_angles(encoded)).cpu())
    return torch.cat(means), torch.cat(angles)


def _balls(
    images: Tensor, means: Tensor, angles: Tensor
) -> tuple[list[Ball], list[tuple[float, float, float, float]], tuple[float, float]]:
    """Circles in the plane: the angles between means as distances, as far as two dimensions hold them."""
    unit = torch.nn.functional.normalize(means.double(), dim=1)
    between = (unit @ unit.T).clamp(-1, 1).arccos().fill_diagonal_(0.0)
    radius = angles.double()
    places = plane(between)
    low = (places - radius[:, None]).amin(0)
    extent = (places + radius[:, None]).amax(0) - low
    size = float(extent.max()) or 1.0
    grow = (SIDE - 2 * MARGIN) / size
    shown = (places - low + (size - extent) / 2) * grow + MARGIN
    balls = [
        Ball(round(x, 1), round(y, 1), round(r, 1), data_url(_thumb(image)))
        for (x, y), r, image in zip(shown.tolist(), (radius * grow).tolist(), images, strict=True)
    ]
    meet = (radius[:, None] + radius[None] - between > 0).triu(1).nonzero().tolist()
    lines = [(balls[i].x, balls[i].y, balls[j].x, balls[j].y) for i, j in meet]
    step = 10.0 ** math.floor(math.log10(size / 3))
    length = next(step * k for k in (5, 2, 1) if step * k <= size / 2)
    return balls, lines, (round(length * grow, 1), length)


def plane(distances: Tensor) -> Tensor:
    """Points in the plane whose distances are near the wanted ones [n, n]: classical scaling, the sign fixed.

    >>> points = plane(torch.tensor([[0.0, 3.0, 4.0], [3.0, 0.0, 5.0], [4.0, 5.0, 0.0]]))
    >>> [round(distance, 3) for distance in torch.cdist(points, points)[0].tolist()]
    [0.0, 3.0, 4.0]
    """
    count = len(distances)
    centre = torch.eye(count, dtype=torch.float64) - 1.0 / count
    values, vectors = torch.linalg.eigh(-0.5 * centre @ distances.double().square() @ centre)
    points = vectors[:, -2:].flip(1) * values[-2:].flip(0).clamp_min(0).sqrt()
    signs = points[points.abs().argmax(0), torch.arange(points.shape[1])].sign()
    turned: Tensor = points * torch.where(signs == 0, 1.0, signs)
    return turned.to(distances.dtype)


def _thumb(image: Tensor) -> Image.Image:
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    return picture.resize((THUMB, THUMB), Image.Resampling.BOX)
