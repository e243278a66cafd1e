"""Checkpoints: whole or not at all, refused when damaged, and never executed."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ocssl
from conftest import random_images, small_learner
from ocssl._core import checkpoint
from ocssl.errors import CheckpointError

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2], dtype=torch.uint8)}
FACTS = {"steps": 3, "name": "x"}


def parts(folder: Path) -> tuple[Path, Path]:
    return folder / checkpoint.MANIFEST, next(folder.glob("*.safetensors"))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "c", TENSORS, FACTS)
    tensors, facts = checkpoint.read(tmp_path / "c")
    assert facts == FACTS
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "gone", "junk", "longer"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, victim: int, damage: str) -> None:
    checkpoint.write(tmp_path, TENSORS, FACTS)
    path = parts(tmp_path)[victim]
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {
                "cut": content[:middle],
                "empty": b"",
                "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
                "junk": os.urandom(len(content)),
                "longer": content + b"0",
            }[damage]
        )
    with pytest.raises(CheckpointError, match=str(tmp_path)) as caught:
        checkpoint.read(tmp_path)
    assert "\n" not in str(caught.value)


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_any_flipped_bit_is_found_or_without_effect(tmp_path: Path, place: int, bit: int) -> None:
    checkpoint.write(tmp_path, TENSORS, FACTS)
    path = parts(tmp_path)[place % 2]
    content = bytearray(path.read_bytes())
    content[place // 2 % len(content)] ^= 1 << bit
    path.write_bytes(bytes(content))
    try:
        tensors, facts = checkpoint.read(tmp_path)
    except CheckpointError:
        return
    assert facts == FACTS  # white space in the JSON may change without harm
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (checkpoint.MANIFEST, "state-0.safetensors"):
        Path(name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path)
    assert not Path("executed").exists()


def resigned(folder: Path, **changes: Any) -> None:
    """Change the manifest and give it a right checksum, as an attacker would."""
    path = folder / checkpoint.MANIFEST
    body = json.loads(path.read_text()) | changes
    body.pop("checksum")
    path.write_text(json.dumps({**body, "checksum": checkpoint._checksum(body)}))


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", "", ".", "..", 5, None, ["x"]])
def test_a_tensor_file_outside_the_folder_is_refused(tmp_path: Path, name: Any) -> None:
    (tmp_path / "outside").write_bytes(b"secret")
    checkpoint.write(tmp_path / "c", TENSORS, FACTS)
    resigned(tmp_path / "c", tensors=name)
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path / "c")


def test_a_huge_manifest_is_refused_unread(tmp_path: Path) -> None:
    with open(tmp_path / checkpoint.MANIFEST, "wb") as file:
        file.truncate(checkpoint.LARGEST_MANIFEST + 1)
    with pytest.raises(CheckpointError, match="larger than"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize(
    ("version", "advice"), [(99, "update ocssl"), (0, "older ocssl"), (None, "older"), ("1", "older"), ([1], "older")]
)
def test_a_format_version_that_cannot_be_read_is_named_in_one_sentence(
    tmp_path: Path, version: object, advice: str
) -> None:
    checkpoint.write(tmp_path, TENSORS, FACTS)
    resigned(tmp_path, version=version)
    said = rf"format version {re.escape(repr(version))}, and this ocssl reads versions 1 to 1: .*{advice}.*\.$"
    with pytest.raises(CheckpointError, match=said):
        checkpoint.read(tmp_path)


def test_an_older_format_is_migrated_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def renamed(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> checkpoint.State:
        return {f"new.{name}": tensor for name, tensor in tensors.items()}, facts

    def counted(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> checkpoint.State:
        return tensors, {**facts, "tensors": sorted(tensors)}

    checkpoint.write(tmp_path, TENSORS, FACTS)
    monkeypatch.setattr(checkpoint, "VERSION", 3)
    monkeypatch.setattr(checkpoint, "MIGRATIONS", {1: renamed, 2: counted})
    tensors, facts = checkpoint.read(tmp_path)
    assert facts == {**FACTS, "tensors": ["new.a", "new.b"]}
    assert torch.equal(tensors["new.a"], TENSORS["a"])
    resigned(tmp_path, version=2)  # from its own version on, and no further back
    assert checkpoint.read(tmp_path)[1]["tensors"] == ["a", "b"]
    checkpoint.write(tmp_path, TENSORS, FACTS)  # today's needs none
    assert checkpoint.read(tmp_path)[1] == FACTS


def test_a_learner_of_an_older_format_loads_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner()
    learner.partial_fit(random_images(4))
    facts = learner.facts()
    old = {**facts, "extra": {}, "rate": facts["lr"]}  # a made-up format 0, in which the learning rate had another name
    del old["lr"]

    def rate_is_lr(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> checkpoint.State:
        return tensors, {**facts, "lr": facts.pop("rate")}

    checkpoint.write(tmp_path, learner.tensors(), old)
    resigned(tmp_path, version=0)
    with pytest.raises(CheckpointError, match="format version 0"):
        ocssl.Learner.load(tmp_path)
    monkeypatch.setitem(checkpoint.MIGRATIONS, 0, rate_is_lr)
    loaded = ocssl.Learner.load(tmp_path)
    assert loaded.lr == learner.lr
    assert loaded.partial_fit(random_images(4, seed=1)) == learner.partial_fit(random_images(4, seed=1))


def test_migrations_lead_from_every_earlier_version_to_todays() -> None:
    oldest = min([*checkpoint.MIGRATIONS, checkpoint.VERSION])
    assert sorted(checkpoint.MIGRATIONS) == list(range(oldest, checkpoint.VERSION))


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": {}},
        {"facts": []},
        {"facts": None},
        {"sha256": None},
    ],
)
def test_a_learner_refuses_a_manifest_that_is_none_of_its_own(tmp_path: Path, changes: dict[str, Any]) -> None:
    small_learner().save(tmp_path)
    resigned(tmp_path, **changes)
    with pytest.raises(CheckpointError):
        ocssl.Learner.load(tmp_path)


def test_a_learner_refuses_tensors_of_another_shape(tmp_path: Path) -> None:
    learner = small_learner()
    learner.partial_fit(random_images(4))
    tensors, facts = learner.tensors(), learner.facts()
    for name in (
        "memory.column.image",
        "memory.column.loss",
        "network.objective.projector.0.weight",
        "generator.views",
    ):
        tensor = tensors[name]
        wrong = {**tensors, name: tensor[:, None].repeat(1, 2) if tensor.ndim == 1 else tensor[:1]}
        checkpoint.write(tmp_path / name, wrong, {**facts, "extra": {}})
        with pytest.raises(CheckpointError, match="does not fit"):
            ocssl.Learner.load(tmp_path / name)
        without = {key: tensor for key, tensor in tensors.items() if key != name}
        checkpoint.write(tmp_path / name, without, {**facts, "extra": {}})
        with pytest.raises(CheckpointError, match="does not fit"):
            ocssl.Learner.load(tmp_path / name)


@pytest.mark.parametrize("moment", range(2))
def test_a_save_that_dies_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    checkpoint.write(tmp_path, TENSORS, FACTS)
    replace, calls = os.replace, []

    def dying(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) > moment:
            raise OSError("no space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying)
    with pytest.raises(CheckpointError, match="no space"):
        checkpoint.write(tmp_path, {"a": torch.zeros(3)}, {"steps": 4})
    tensors, facts = checkpoint.read(tmp_path)
    assert facts == FACTS
    assert torch.equal(tensors["a"], TENSORS["a"])


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(CheckpointError, match="is a file"):
        checkpoint.write(tmp_path / "f", TENSORS, FACTS)


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        checkpoint.read(tmp_path)


def test_a_manifest_that_could_not_be_loaded_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="keep less in extra"):
        checkpoint.write(tmp_path / "saved", {}, {"extra": "x" * checkpoint.LARGEST_MANIFEST})
    assert not (tmp_path / "saved").exists()
