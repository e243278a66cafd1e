"""Run folders that come from another machine: nothing else than a run folder's files, and none half."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocssl.errors import RunFolderError
from ocssl.launch.ray_worker import FolderWatcher, Update, apply_update, pack, unpack
from ocssl.runs.folder import CHECKPOINTS, EVENTS, complete_checkpoints


@pytest.mark.parametrize(
    "path",
    [
        "../run.toml",
        "/etc/passwd",
        "checkpoints/../../x",
        "checkpoints/.hidden",
        "checkpoints//x",
        "checkpoints/a b",
        "run.toml/x",
        "notes.txt",
        "checkpoints",
        "snapshots\\x",
        "",
        "wandb/" + "x" * 300,
        "wandb/" + "a/" * 9 + "b",
        "tensorboard/x\n",
    ],
)
def test_files_that_are_none_of_a_run_folder_are_refused_before_any_is_written(path: str, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="refused"):
        unpack({"run.toml": b"fine", path: b"x"}, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl.launch.ray_worker.LARGEST", 10)
    with pytest.raises(RunFolderError, match="too large"):
        unpack({"run.toml": b"x" * 11}, tmp_path)


def state(folder: Path, position: int, content: bytes = b"state") -> None:
    place = folder / CHECKPOINTS / f"{position:08d}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "state-0.safetensors").write_bytes(content)
    (place / "checkpoint.json").write_text(f"{position}")


def test_a_folder_is_mirrored_look_by_look_also_when_the_events_are_cut_back(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
        (folder / EVENTS).write_bytes(b"1\n2\n3\n")
    watcher = FolderWatcher(there, pack(there))

    def look(ended: bool = False) -> Update | None:
        update = watcher.update(ended)
        apply_update(update, here, keep=2)
        return update if update.files or update.events else None

    assert look() is None
    (there / EVENTS).write_bytes(b"1\n2\n")  # a resumed run cuts what comes after its checkpoint
    assert look() is None
    (there / EVENTS).write_bytes(b"1\n2\n3 again\n4")
    look()
    assert (here / EVENTS).read_bytes() == b"1\n2\n3 again\n"  # whole lines only
    for position in (2, 4, 6):
        state(there, position)
        (there / EVENTS).write_bytes((there / EVENTS).read_bytes() + b"\n")
        update = look()
        assert update is not None
        assert update.position == position
    assert [path.name for path in complete_checkpoints(here)] == ["00000004", "00000006"]
    assert look() is None
    state(there, 6, b"the same place, saved once more")
    (there / CHECKPOINTS / "00000006" / "checkpoint.json").write_text("6 again")  # it names and sums up its tensors
    assert look() is not None
    assert (here / CHECKPOINTS / "00000006" / "state-0.safetensors").read_bytes().startswith(b"the same")
    (there / "metrics.json").write_text("{}")
    (there / "tensorboard").mkdir()
    (there / "tensorboard" / "events.1").write_text("curve")
    (there / "tensorboard" / "link").symlink_to("/etc/passwd")
    assert look() is None
    look(ended=True)
    assert (here / "metrics.json").read_text() == "{}"
    assert [path.name for path in (here / "tensorboard").iterdir()] == ["events.1"]
    assert (here / EVENTS).read_bytes() == (there / EVENTS).read_bytes()


def test_a_checkpoint_that_was_sent_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, read, read_bytes = FolderWatcher(tmp_path, {}), [], Path.read_bytes

    def reading(path: Path) -> bytes:
        read.extend([path] if path.suffix == ".safetensors" else [])
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    state(tmp_path, 2)
    assert watcher.update().files
    assert not watcher.update().files
    assert len(read) == 1
    state(tmp_path, 4)
    assert watcher.update().files
    assert len(read) == 2


def test_events_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl.launch.ray_worker.LARGEST", 10)
    with pytest.raises(RunFolderError, match="too large"):
        apply_update(Update(events=b"x" * 11), tmp_path, keep=2)
    assert list(tmp_path.iterdir()) == []


def test_events_that_another_program_has_cut_are_not_patched(tmp_path: Path) -> None:
    (tmp_path / EVENTS).write_bytes(b"1\n")
    with pytest.raises(RunFolderError, match="another program"):
        apply_update(Update(offset=4, events=b"3\n"), tmp_path, keep=2)
