"""Snapshots: the network and the memory's statistics at an evaluation, kept so that a run can be looked at later.

A snapshot is a checkpoint without momentum, generators and stored images (but for small pictures of some): enough to
encode, to measure and to show, not to go on. Checkpoints can be looked at in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ocssl._core import checkpoint
from ocssl._training.assembly import usable_device
from ocssl.errors import CheckpointError, RunFolderError
from ocssl.learner import Learner
from ocssl.memory import Memory
from ocssl.runs.folder import CHECKPOINTS, SNAPSHOTS, whole_checkpoints
from ocssl.settings import LearnerSettings, validate

NETWORK, COLUMN, TILE = "network.", "memory.column.", "tile."
MOST_TILES, TILE_SIDE = 120, 32


@dataclass(frozen=True)
class Look:
    """A learner as it was at some minibatch: its network is there, its memory as a table."""

    position: int  # minibatches that had passed
    learner: Learner  # with an empty memory
    memory: dict[str, Tensor]  # columns of the filled slots: id, loss, angle, draws, born, and what the recipe keeps


def write_snapshot(folder: Path, learner: Learner, position: int) -> None:
    """Keep the learner as it is now for later looks."""
    wanted = {
        name: tensor
        for name, tensor in learner.tensors().items()
        if name.startswith(NETWORK) or (name.startswith(COLUMN) and name != f"{COLUMN}image")
    }
    wanted |= {f"{TILE}{name}": tensor for name, tensor in tiles(learner.memory).items()}
    checkpoint.write(folder / SNAPSHOTS / f"{position:08d}", wanted, {**learner.facts(), "snapshot": position})


def tiles(memory: Memory) -> dict[str, Tensor]:
    """Small pictures of stored images to show, of the same slots every time, with their ids and slots."""
    slots = torch.arange(0, len(memory), max(1, -(-memory.store.capacity // MOST_TILES)))
    images = memory.store["image"][slots].cpu()
    side = max(images.shape[2:])
    if side > TILE_SIDE and len(slots):
        size = [max(1, length * TILE_SIDE // side) for length in images.shape[2:]]
        images = nn.functional.interpolate(images.float(), size, mode="area").round().byte()
    return {"image": images, "id": memory.store["id"][slots].cpu(), "slot": slots}


def places(folder: Path) -> dict[int, Path]:
    """Where a run can be looked at: minibatches passed, and the folder that holds the state there."""
    found = [*whole_checkpoints(folder, CHECKPOINTS), *whole_checkpoints(folder, SNAPSHOTS)]
    return {int(path.name): path for path in found if path.name.isdecimal()}


def chosen(folder: Path, wanted: str) -> dict[int, Path]:
    """The places that `all`, `last` or minibatch numbers such as `50,100` name."""
    known = dict(sorted(places(folder).items()))
    if not known:
        raise RunFolderError(f"{folder} has no checkpoint or snapshot to look at.")
    if wanted == "all":
        return known
    if wanted == "last":
        return {max(known): known[max(known)]}
    try:
        return {number: known[number] for number in map(int, wanted.split(","))}
    except (KeyError, ValueError):
        numbers = ", ".join(map(str, known))
        raise RunFolderError(f"{folder} has no checkpoint {wanted!r}; it has all, last, {numbers}.") from None


def look(path: Path, device: str = "cpu") -> Look:
    """Read a snapshot or a checkpoint."""
    place = usable_device(device)  # or the checkpoint would be blamed
    tensors, facts = checkpoint.read(path)
    try:
        alone = {**facts["settings"].get("compute", {}), "ranks": 1}  # it is not to go on
        settings = validate(LearnerSettings, {**facts["settings"], "compute": alone})
        learner = Learner(
            facts["method"], image_size=facts["image_size"], seed=facts["seed"], settings=settings, device=place
        )
        network = {name.removeprefix(NETWORK): t for name, t in tensors.items() if name.startswith(NETWORK)}
        learner.network.load_state_dict(network)
        learner.steps, learner.seen = facts["steps"], facts["seen"]
    except torch.OutOfMemoryError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this version: {error}.") from None
    memory = {name.removeprefix(COLUMN): t for name, t in tensors.items() if name.startswith(COLUMN)}
    return Look(int(path.name), learner, memory)
