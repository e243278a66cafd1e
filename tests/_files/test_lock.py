"""A lock keeps other processes out, and ends with the process that holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ocssl._files.lock import locked

HOLD = """
import sys, time
from pathlib import Path
from ocssl._files.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


@pytest.mark.process
def test_another_process_is_refused_until_the_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    with holder(path) as process:
        try:
            with pytest.raises(BlockingIOError, match="another process holds the lock"), locked(path):
                pass
        finally:
            process.kill()
    with locked(path) as file:
        assert file.read() == b"content"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.process
def test_another_process_waits_until_the_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    with holder(path) as process, locked(path, waiting=lambda: os.kill(process.pid, signal.SIGKILL)):
        assert process.wait() == -signal.SIGKILL


def test_a_read_only_file_in_a_read_only_folder_can_be_locked(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    path.touch(0o400)
    path.parent.chmod(0o500)
    with locked(path), pytest.raises(BlockingIOError), locked(path):
        pass
    path.parent.chmod(0o700)


def test_the_lock_is_on_the_file_that_is_there_in_the_end(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"old")
    other.write_bytes(b"new")
    with locked(path) as first:

        def replace() -> None:
            os.replace(other, path)
            first.close()

        with locked(path, waiting=replace) as file:
            assert file.read() == b"new"


def test_a_missing_file_is_not_made_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "a"):
        pass
    with locked(tmp_path / "a", "ab") as file:
        file.write(b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
