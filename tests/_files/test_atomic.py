"""A file is there whole or not at all, and nothing else stays beside it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ocssl._files.atomic import is_part, new_file, replace_file, write_out, written_once
from ocssl.errors import RunFolderError


def never() -> None:
    raise AssertionError


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)


def test_a_file_is_replaced(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        replace_file(tmp_path / "a", content)
        assert (tmp_path / "a").read_bytes() == content
    assert os.listdir(tmp_path) == ["a"]


def test_threads_that_replace_the_same_file_do_not_meet(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(lambda n: replace_file(tmp_path / "a", bytes([n]) * 1000), range(100)):
            pass
    assert len(set((tmp_path / "a").read_bytes())) == 1
    assert os.listdir(tmp_path) == ["a"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """As root, `-o /dev/full` made a file of the device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunFolderError, match="not a regular file"):
        write_out(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_new_file_leaves_an_older_one_alone(tmp_path: Path) -> None:
    assert new_file(tmp_path / "a", b"old")
    assert not new_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_system_without_links_gets_a_new_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    test_a_new_file_leaves_an_older_one_alone(tmp_path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, full_disk: None) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(RunFolderError, match=r"^cannot write .*a: No space left on device\.$"):
        write_out(tmp_path / "a", b"new")
    with pytest.raises(OSError, match="No space"), written_once(tmp_path / "b", never):
        pass
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_folders_above_a_file_are_made(tmp_path: Path) -> None:
    write_out(tmp_path / "b" / "c" / "a", b"1")
    assert (tmp_path / "b" / "c" / "a").read_bytes() == b"1"
    with pytest.raises(RunFolderError, match="cannot write"):
        write_out(tmp_path / "b" / "c" / "a" / "d", b"1")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    (tmp_path / ".a.part").write_bytes(b"what a killed process has left")
    with written_once(tmp_path / "a", never) as file:
        assert file is not None
        file.write(b"1")
        assert os.listdir(tmp_path) == [".a.part"]
        assert is_part(tmp_path / ".a.part", of=tmp_path / "a")
    with written_once(tmp_path / "a", never) as file:
        assert file is None
    assert (tmp_path / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a"]
