"""What is kept of a learner at an evaluation: a snapshot to inspect later, and its memory in a few numbers.

A snapshot is a checkpoint without momentum, generators and stored images (but for thumbnails of some): enough to
encode, to measure and to show, not to resume. Checkpoints are inspected in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core import checkpoint
from ocssl._core.host_memory import check_memory
from ocssl._files.atomic import remove_folder
from ocssl._training.assembly import usable_device, without_weights
from ocssl._training.checkpoint_checks import check_state, check_values
from ocssl.data import Benchmark
from ocssl.errors import CheckpointError, RunFolderError
from ocssl.learner import Learner
from ocssl.memory import Memory
from ocssl.runs.folder import CHECKPOINTS, SNAPSHOTS, complete_checkpoints
from ocssl.settings import LearnerSettings, validate

NETWORK, COLUMN, TILE = "network.", "memory.column.", "tile."
MOST_TILES, TILE_SIDE = 120, 32
BINS = 20  # of each histogram, at most
LEAST_BIN = 3  # images of a part of the stream; of fewer, parts would differ by chance
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_CLASSES = 1000  # classes above which they are not counted one by one


@dataclass(frozen=True)
class Snapshot:
    """A learner as it was after some minibatch: its network, and its memory as a table."""

    position: int  # minibatches that had passed
    learner: Learner  # with an empty memory
    memory: dict[str, Tensor]  # columns of the filled slots: id, loss, angle, draws, born, and what the recipe keeps


def write_snapshot(folder: Path, learner: Learner, position: int) -> None:
    """Keep the learner as it is now."""
    wanted = {
        name: tensor
        for name, tensor in learner.tensors().items()
        if name.startswith(NETWORK) or (name.startswith(COLUMN) and name != f"{COLUMN}image")
    }
    wanted |= {f"{TILE}{name}": tensor for name, tensor in tiles(learner.memory).items()}
    checkpoint.write(folder / SNAPSHOTS / f"{position:08d}", wanted, {**learner.facts(), "snapshot": position})


def thin_out(folder: Path, positions: Sequence[int], most: int) -> None:
    """Keep the snapshots of every evaluation, or of every second, fourth ... so that there are at most `most`.

    The last one always stays. What stays depends on the evaluations alone, so that a killed run keeps the same.
    """
    for position in set(positions) - set(kept(positions, most)):
        place = folder / SNAPSHOTS / f"{position:08d}"
        if place.is_dir() and not place.is_symlink():
            remove_folder(place)


def kept(positions: Sequence[int], most: int) -> list[int]:
    """The positions whose snapshots stay.

    >>> kept([0, 10, 20, 30, 40, 50], most=4)
    [0, 20, 40, 50]
    """
    step = 1
    while len(positions[:-1:step]) + 1 > most:
        step *= 2
    return [*positions[:-1:step], *positions[-1:]]


def tiles(memory: Memory) -> dict[str, Tensor]:
    """Thumbnails of stored images, of the same slots every time, with their ids and slots."""
    slots = torch.arange(0, len(memory), max(1, -(-memory.store.capacity // MOST_TILES)))
    images = memory.store["image"][slots].cpu()
    side = max(images.shape[2:])
    if side > TILE_SIDE and len(slots):
        size = [max(1, length * TILE_SIDE // side) for length in images.shape[2:]]
        images = nn.functional.interpolate(images.float(), size, mode="area").round().byte()
    return {"image": images, "id": memory.store["id"][slots].cpu(), "slot": slots}


def saved_states(folder: Path) -> dict[int, Path]:
    """The checkpoints and snapshots of a run, by the minibatches that had passed."""
    found = [*complete_checkpoints(folder, CHECKPOINTS), *complete_checkpoints(folder, SNAPSHOTS)]
    return {int(path.name): path for path in found if path.name.isdecimal()}


def select_states(folder: Path, wanted: str) -> dict[int, Path]:
    """The states that `all`, `last` or minibatch numbers such as `50,100` name."""
    known = dict(sorted(saved_states(folder).items()))
    if not known:
        raise RunFolderError(f"{folder} has no checkpoint or snapshot.")
    if wanted == "all":
        return known
    if wanted == "last":
        return {max(known): known[max(known)]}
    try:
        return {number: known[number] for number in map(int, wanted.split(","))}
    except (KeyError, ValueError):
        numbers = ", ".join(map(str, known))
        raise RunFolderError(f"{folder} has no checkpoint {wanted!r}; it has all, last, {numbers}.") from None


def load_snapshot(path: Path, device: str = "cpu") -> Snapshot:
    """Read a snapshot or a checkpoint."""
    learner, tensors = load_network(path, device)
    memory = {name.removeprefix(COLUMN): t for name, t in tensors.items() if name.startswith(COLUMN)}
    return Snapshot(int(path.name), learner, memory)


def load_network(
    path: Path, device: str = "cpu", encoder: nn.Module | None = None
) -> tuple[Learner, dict[str, Tensor]]:
    """A learner with the network of a snapshot, checkpoint or saved learner, to encode with, and all tensors of it."""
    place = usable_device(device)  # or the checkpoint would be blamed
    tensors, facts = checkpoint.read(path, partial(check_state, encoder=encoder))
    check_values(tensors)
    if facts["own_encoder"] and encoder is None:
        raise CheckpointError(f"{path} has a custom encoder: pass encoder= to load it.")
    try:
        alone = {**facts["settings"].get("compute", {}), "ranks": 1}  # it is not resumed
        settings = validate(LearnerSettings, {**facts["settings"], "compute": alone})
        learner = Learner(
            facts["method"],
            image_size=facts["image_size"],
            seed=facts["seed"],
            settings=without_weights(settings),
            encoder=encoder,
            device=place,
            fit=facts.get("fit", "squash"),
        )
        network = {name.removeprefix(NETWORK): t for name, t in tensors.items() if name.startswith(NETWORK)}
        learner.network.load_state_dict(network)
        learner.settings = settings
        learner.steps, learner.seen = facts["steps"], facts["seen"]
    except torch.OutOfMemoryError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        check_memory(error)
        raise CheckpointError(f"{path} does not fit this version: {error}.") from None
    return learner, tensors


def memory_summary(memory: Memory, benchmark: Benchmark, images: int, unusable: int = 0) -> dict[str, Any]:
    """Histograms of a memory on a stream of `images` images, of which some are known not to be usable.

    Labels only serve to count classes.
    """
    if not len(memory):
        return {"stored": 0}
    born, loss = memory.store["born"].cpu().double(), memory.store["loss"].cpu().double()
    loss = loss[loss.isfinite()]
    found: dict[str, Any] = {
        "stored": len(memory),
        "age": _quantiles(memory.seen - born),
        # of equal parts of the stream, each of a few images at least; as many at every evaluation
        "born": _counts(born, 0.0, float(max(images - unusable, memory.seen)), max(1, min(BINS, images // LEAST_BIN))),
    }
    if len(loss):
        low, high = loss.min().item(), loss.max().item()
        found |= {"loss": _quantiles(loss), "losses": {"low": low, "high": high, "counts": _counts(loss, low, high)}}
    if benchmark.classes and len(benchmark.classes) <= MOST_CLASSES:
        labels = _labels(memory.store["id"].cpu(), benchmark)
        found["classes"] = torch.bincount(labels[labels >= 0], minlength=len(benchmark.classes)).tolist()
    return found


def _quantiles(values: Tensor) -> list[float]:
    return [float(torch.quantile(values, q)) for q in QUANTILES]


def _counts(values: Tensor, low: float, high: float, bins: int = BINS) -> list[int]:
    """How many values lie in each of the equal parts of a range, its end included."""
    place = (values - low) / ((high - low) or 1.0) * bins
    return torch.bincount(place.long().clamp(0, bins - 1), minlength=bins).tolist()


def _labels(ids: Tensor, benchmark: Benchmark) -> Tensor:
    """The labels of stored images, -1 where there is none."""
    part = benchmark.train
    ordered, rows = part.ids.sort()
    place = torch.searchsorted(ordered, ids).clamp(max=len(ordered) - 1)
    return torch.where(ordered[place] == ids, part.labels[rows[place]], -1)
