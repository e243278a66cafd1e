"""Checkpoints with right checksums and wrong content: one sentence, at once, and nothing is built of them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import random_images, small_settings
from ocssl import Learner
from ocssl._core import checkpoint
from ocssl.errors import CheckpointError

State = tuple[dict[str, torch.Tensor], dict[str, Any]]
SECONDS = 20  # nobody waits so long for a tiny checkpoint; the encoder that is asked for below takes longer


def write(folder: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> Path:
    checkpoint.write(folder, tensors, facts)
    return folder


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    learner = Learner("solar", image_size=8, settings=small_settings("solar"))
    for seed in range(4):
        learner.partial_fit(random_images(10, seed=seed))
    folder = tmp_path_factory.mktemp("good") / "saved"
    learner.save(folder)
    return checkpoint.read(folder)


def changed(facts: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(facts))
    place = copy
    *path, last = key.split("/")
    for name in path:
        place = place[name]
    place[last] = value
    return copy


def first(tensors: dict[str, torch.Tensor], end: str) -> str:
    return next(name for name in tensors if name.startswith("network.objective.encoder") and name.endswith(end))


def with_value(value: float, end: str) -> Callable[[State], State]:
    def change(state: State) -> State:
        tensors = {name: tensor.clone() for name, tensor in state[0].items()}
        tensors[first(tensors, end)].view(-1)[0] = value
        return tensors, state[1]

    return change


def with_fact(key: str, value: Any) -> Callable[[State], State]:
    return lambda state: (state[0], changed(state[1], key, value))


def without(state: State) -> State:
    return {name: t for name, t in state[0].items() if name != first(state[0], "weight")}, state[1]


def with_more(state: State) -> State:
    return {**state[0], "network.objective.encoder.extra": torch.zeros(1)}, state[1]


def with_large_column(state: State) -> State:
    return {**state[0], "memory.column.loss": torch.zeros(10**6)}, state[1]


def with_large_other(state: State) -> State:
    return {**state[0], "momentum.other": torch.zeros(10**7)}, state[1]


WRONG: dict[str, tuple[Callable[[State], State], str]] = {
    "NaN weight": (with_value(float("nan"), "weight"), "is not finite"),
    "infinite weight": (with_value(float("inf"), "weight"), "is not finite"),
    "infinite mean": (with_value(float("-inf"), "running_mean"), "is not finite"),
    "negative variance": (with_value(-1.0, "running_var"), "is a variance, and negative"),
    "steps as text": (with_fact("steps", "many"), "its steps is 'many', which is no int"),
    "negative steps": (with_fact("seen", -1), "out of range"),
    "seed as number": (with_fact("seed", 1.5), "its seed is 1.5"),
    "no method": (with_fact("method", None), "its method is None"),
    "settings as list": (with_fact("settings", []), "its settings is"),
    "unknown setting": (with_fact("settings/encoder/depth", 3), "its settings cannot be used: unknown setting"),
    "wide": (with_fact("settings/encoder/width", 4096), "and its settings ask for"),
    "wide head": (with_fact("settings/objective/projection", 10**6), "and its settings ask for|cannot be used"),
    "other images": (with_fact("image_size", 1024), "and its settings ask for"),
    "missing": (without, "is missing"),
    "unknown": (with_more, "is unknown"),
    "long column": (with_large_column, "at most 24 rows"),
    "much more": (with_large_other, "more numbers than a learner"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_content_is_one_sentence_at_once(kind: str, state: State, tmp_path: Path) -> None:
    change, expected = WRONG[kind]
    folder = write(tmp_path / "wrong", *change(state))
    began = time.process_time()
    with pytest.raises(CheckpointError, match=expected) as caught:
        Learner.load(folder)
    assert "\n" not in str(caught.value)
    assert time.process_time() - began < SECONDS


def test_the_good_one_loads(state: State, tmp_path: Path) -> None:
    assert Learner.load(write(tmp_path / "good", *state)).seen == 40


def packed(folder: Path, content: bytes, size: int | None = None) -> Path:
    """A checkpoint with these bytes as its tensor file, of a larger size if asked for, its checksums right."""
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text())
    manifest.pop("checksum")
    path = folder / manifest["tensors"]
    path.write_bytes(content)
    if size:
        os.truncate(path, size)
    else:
        manifest["sha256"] = hashlib.sha256(content).hexdigest()
    text = {**manifest, "checksum": hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()}
    (folder / checkpoint.MANIFEST).write_text(json.dumps(text))
    return folder


def header(shape: list[int], end: int) -> bytes:
    text = json.dumps({"network.x": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize("size", [2 * 10**10, 10**13])
def test_a_sparse_file_is_not_read(size: int, state: State, tmp_path: Path) -> None:
    for number, content in enumerate([b"", header([1], 4), header([size // 4], size - 8 - len(header([1], 1)) + 8)]):
        folder = packed(write(tmp_path / str(number), *state), content, size)
        with pytest.raises(CheckpointError, match=r"is no tensor file|is unknown|is missing"):
            Learner.load(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 64,
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        struct.pack("<Q", 12) + b'{"a": 12345}',
        header([-1], 4) + bytes(4),
        header([1], 2**62) + bytes(4),
    ],
)
def test_a_header_that_is_none_is_refused(content: bytes, state: State, tmp_path: Path) -> None:
    folder = packed(write(tmp_path / "wrong", *state), content)
    with pytest.raises(CheckpointError, match="is no tensor file"):
        Learner.load(folder)


def test_a_run_passes_over_a_checkpoint_with_wrong_weights(state: State, tmp_path: Path) -> None:
    """The file as safetensors writes it, with a checksum that fits: what counts is inside."""
    tensors, facts = WRONG["NaN weight"][0](state)
    folder = write(tmp_path / "wrong", tensors, facts)
    (file,) = folder.glob("*.safetensors")
    assert torch.isnan(load_file(file)[first(tensors, "weight")]).any()
    save_file(load_file(file), tmp_path / "again.safetensors")
    with pytest.raises(CheckpointError, match="is not finite"):
        Learner.restore(tensors, facts)
