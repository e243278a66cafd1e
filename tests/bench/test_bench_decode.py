"""The benchmark of decoding: its files, its rows, and that all ways show the same images."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ocssl.bench import decode
from ocssl.data.decode.image_set import LiveImages
from ocssl.errors import OcsslError


@pytest.mark.parametrize(("kind", "width", "height"), [("JPEG", 50, 37), ("PNG", 16, 16)])
def test_every_way_is_told_in_images_a_second_and_beside_plain_pillow(
    tmp_path: Path, kind: str, width: int, height: int
) -> None:
    files = decode.write_files(tmp_path / "files", kind, width, height, 3)
    rows = list(decode.compared(kind, files, 16, times=2, rounds=1, bar=decode.LIMIT))
    assert [row.name.partition(", ")[2] for row in rows if row.bar] == ["this process, faster than plain Pillow"]
    assert len({row.key for row in rows}) == len(rows) == 7
    assert [row.unit for row in rows].count("images/s") == 4
    for row in rows:
        assert row.part == "decode"
        assert row.faster == (row.unit == "x")
        assert all(math.isfinite(v) and v > 0 for v in (row.value.low, row.value.middle, row.value.high)), row


def test_files_have_the_kind_and_size_that_are_asked_for(tmp_path: Path) -> None:
    for kind in ("JPEG", "PNG"):
        files = decode.write_files(tmp_path / kind, kind, 40, 24, 2)
        assert len(files) == 2
        with Image.open(files.root / "1") as image:
            assert (image.format, image.size) == (kind, (40, 24))


def test_a_png_of_the_wanted_size_is_the_same_either_way(tmp_path: Path) -> None:
    files = decode.write_files(tmp_path / "files", "PNG", 16, 16, 2)
    ((ours, _),) = LiveImages(files, 16, "squash").walk([torch.arange(2)])
    theirs = np.stack([decode.with_pillow(files, row, 16) for row in range(2)])
    assert np.array_equal(ours.numpy(), theirs)


def turned(files: decode.FolderFiles, row: int, size: int) -> np.ndarray:
    return plain(files, row, size).transpose(0, 2, 1)


def another(files: decode.FolderFiles, row: int, size: int) -> np.ndarray:
    return plain(files, (row + 1) % len(files), size)


plain = decode.with_pillow


@pytest.mark.parametrize("broken", [turned, another])
def test_ways_that_show_other_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken) -> None:
    files = decode.write_files(tmp_path / "files", "JPEG", 100, 75, 4)
    decode.require_alike(files, 16)
    monkeypatch.setattr(decode, "with_pillow", broken)
    with pytest.raises(OcsslError, match="do not show the same images"):
        decode.require_alike(files, 16)


def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    files = decode.write_files(tmp_path / "files", "PNG", 16, 16, 3)
    (tmp_path / "files" / "1").write_bytes(b"nothing")
    with pytest.raises(OcsslError, match="could not be read"):
        decode.read_all(LiveImages(files, 16, "squash"), torch.arange(3))
