"""Files from somebody else are opened only if they are plain ones, and at once refused if not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ocssl._files.untrusted import read_regular


def test_a_plain_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path) == read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="it is too large"):
        read_regular(path, 4)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "b")


def test_links_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "endless"):
        with pytest.raises(OSError, match="it is a link"):
            read_regular(tmp_path / name)
    assert read_regular(tmp_path / "link", links=True) == b"secret"
    for name, links in (("endless", True), ("pipe", False), (".", False)):
        with pytest.raises(OSError, match="it is not a plain file"):
            read_regular(tmp_path / name, links=links)
