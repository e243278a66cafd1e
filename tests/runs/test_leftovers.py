"""What killed processes leave in a run folder is removed; what others own or wrote stays."""

from __future__ import annotations

from pathlib import Path

from ocssl._core import checkpoint
from ocssl._files.lock import locked
from ocssl.runs.folder import CHECKPOINTS, SNAPSHOTS, clean


def write(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_unfinished_files_and_checkpoints_go_and_all_else_stays(tmp_path: Path) -> None:
    good = tmp_path / CHECKPOINTS / "00000004"
    left = [
        write(tmp_path / ".metrics.json.123.part"),
        write(tmp_path / ".run.toml.123.part"),
        write(tmp_path / CHECKPOINTS / "00000008" / ".state-0.safetensors.123.part").parent,
        write(tmp_path / SNAPSHOTS / "00000008" / "state-0.safetensors").parent,
        write(tmp_path / CHECKPOINTS / ".00000002.removed" / checkpoint.MANIFEST).parent,
        write(good / ".checkpoint.json.123.part"),
    ]
    kept = [
        write(tmp_path / "run.toml"),
        write(good / checkpoint.MANIFEST),
        write(tmp_path / CHECKPOINTS / "notes of mine" / "a.txt"),
        write(tmp_path / "part"),
    ]
    clean(tmp_path)
    assert [path for path in left if path.exists()] == []
    assert all(path.exists() for path in kept)


def test_a_file_that_a_process_is_writing_stays(tmp_path: Path) -> None:
    part = write(tmp_path / ".metrics.json.123.part")
    with locked(part):
        clean(tmp_path)
        assert part.exists()
    clean(tmp_path)
    assert not part.exists()
