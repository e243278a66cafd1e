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
from ocssl.embed.image_encoder import load_encoder
from ocssl.errors import CheckpointError, SettingError
from ocssl.runs.initial_weights import read_weights

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


def with_tensor(end: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], State]:
    """The first tensor of the encoder with this end, or the one of that name, as something else."""

    def change(state: State) -> State:
        name = end if end in state[0] else first(state[0], end)
        return {**state[0], name: make(state[0][name])}, state[1]

    return change


def full(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: torch.full_like(tensor, value)


def cast(dtype: torch.dtype, value: float | complex | None = None) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: t.to(dtype) if value is None else torch.full_like(t, value, dtype=dtype)


def momentum(state: State) -> str:
    return next(name for name in state[0] if name.startswith("momentum.") and state[0][name].ndim > 1)


def with_momentum(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], State]:
    return lambda state: with_tensor(momentum(state), make)(state)


def scalar(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=tensor.dtype)


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
    "float8 weight": (with_tensor("weight", cast(torch.float8_e4m3fn)), "has a type that is not read"),
    "complex weight": (with_tensor("weight", cast(torch.complex64, complex("nan"))), "is complex64 .*ask for float32"),
    "complex variance": (with_tensor("running_var", cast(torch.complex64)), "is complex64"),
    "float64 beyond float32": (with_tensor("weight", cast(torch.float64, 1e300)), "is float64"),
    "boolean weight": (with_tensor("weight", lambda t: t.bool()), "is bool"),
    "complex momentum": (with_momentum(cast(torch.complex64)), "is complex64"),
    "float64 momentum": (with_momentum(cast(torch.float64, 1e300)), "is float64"),
    "scalar momentum": (with_momentum(scalar), "wanted float32"),
    "float generator": (with_tensor("generator.views", lambda t: t.float()), "is float32"),
    "scalar column": (with_tensor("memory.column.id", scalar), "is int64 .*at most 24 rows"),
    "float column": (with_tensor("memory.column.born", lambda t: t.float()), "is float32"),
    "shorter column": (with_tensor("memory.column.born", lambda t: t[:2]), "is int64"),
    "NaN feature": (with_tensor("memory.column.feature", full(float("nan"))), "is not finite"),
    "infinite loss": (with_tensor("memory.column.loss", full(float("inf"))), "is not finite"),
    "negative arrival": (with_tensor("memory.column.born", full(-(2**63))), "born is out of range"),
    "late arrival": (with_tensor("memory.column.born", full(2**62)), "born is out of range"),
    "negative draws": (with_tensor("memory.column.draws", full(-1)), "draws is out of range"),
    "seen by the memory": (with_tensor("memory.seen", full(2**63 - 1)), "memory.seen is out of range"),
    "negative memory": (with_tensor("memory.seen", full(-1)), "memory.seen is out of range"),
    "complex count": (with_tensor("memory.seen", cast(torch.complex64)), "memory.seen is out of range"),
    "many memories": (with_tensor("memory.seen", lambda t: torch.zeros(5, dtype=t.dtype)), "memory.seen is int64"),
    "seen": (with_fact("seen", 2**63 - 1), "out of range"),
    "steps": (with_fact("steps", 2**63 - 1), "out of range"),
    "large tile": (lambda s: ({**s[0], "tile.image": torch.zeros(10**7, dtype=torch.uint8)}, s[1]), "more numbers"),
    "custom encoder": (with_fact("own_encoder", True), "pass encoder= to load it"),
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


@pytest.mark.parametrize("kind", ["NaN weight", "negative variance"])
@pytest.mark.parametrize("load", [load_encoder, read_weights])
def test_wrong_numbers_are_no_encoder_and_no_weights_to_start_from(
    kind: str, load: Callable[[Path], object], state: State, tmp_path: Path
) -> None:
    change, expected = WRONG[kind]
    folder = write(tmp_path / "wrong", *change(state))
    with pytest.raises((CheckpointError, SettingError), match=expected):
        load(folder)


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


def rewritten(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A tensor file with another header before the same numbers."""
    length = int.from_bytes(content[:8], "little")
    table = json.loads(content[8 : 8 + length])
    change(table)
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


@pytest.mark.parametrize("kind", ["offsets", "tile", "own", "overlap", "gap", "end"])
@pytest.mark.parametrize("load", [Learner.load, load_encoder, read_weights])
def test_a_file_that_says_less_than_it_holds_is_not_read(
    kind: str, load: Callable[[Path], object], state: State, tmp_path: Path
) -> None:
    more = 2**36
    facts = state[1] if kind != "own" else changed(state[1], "own_encoder", True)
    folder = write(tmp_path / "wrong", state[0], facts)
    (file,) = folder.glob("*.safetensors")

    def change(table: dict[str, Any]) -> None:
        table.pop("__metadata__", None)
        last = max(table, key=lambda name: table[name]["data_offsets"][1])
        end = table[last]["data_offsets"][1]
        if kind == "offsets":
            table[last]["data_offsets"][1] += more
        elif kind == "gap":
            table[last]["data_offsets"] = [place + more for place in table[last]["data_offsets"]]
        elif kind == "overlap":
            table["tile.id"] = {"dtype": "U8", "shape": [more + end], "data_offsets": [0, more + end]}
        elif kind != "end":
            table["tile.x"] = {"dtype": "U8", "shape": [more], "data_offsets": [end, end + more]}

    content = rewritten(file.read_bytes(), change)
    packed(folder, content, len(content) + more)
    with pytest.raises((CheckpointError, SettingError), match=r"is no tensor file|more numbers|pass encoder="):
        load(folder)


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
        header([-1, -1], 4) + bytes(4),
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
