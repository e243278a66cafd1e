"""The file of decoded images: what direct decoding gives, whole or not there, and nothing damaged is handed out."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import struct
import time
import zlib
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import Harmful, MemoryFiles, mixed_files

from ocssl.data.decode import cache, decoder
from ocssl.data.decode.cache import HEADER, CachedImages, build, needed_bytes
from ocssl.data.decode.decoder import BadImage, Fit, decode
from ocssl.errors import DataError


def all_images(cached: CachedImages) -> tuple[torch.Tensor, torch.Tensor]:
    [both] = cached.walk([torch.arange(len(cached))])
    return both


def start_builder(path: Path, count: int, row: int, deed: str, workers: int = 0) -> ForkProcess:
    """Build in another process, from files of which one row does something else than to be read."""
    files = Harmful(mixed_files(count).contents, row, deed, path.parent)
    process = multiprocessing.get_context("fork").Process(target=build, args=(path, files, 8, "squash", workers))
    process.start()
    return process


def ended(process: ForkProcess) -> int | None:
    process.join(60)
    return process.exitcode


def until(happens: Callable[[], bool]) -> None:
    for _ in range(3000):
        if happens():
            return
        time.sleep(0.01)
    pytest.fail("it has not happened")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images of 8 px a chunk."""
    monkeypatch.setattr("ocssl.data.decode.decode_processes.PIECE", 4 * 3 * 8 * 8)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_it_holds_what_decoding_gives(tmp_path: Path, fit: Fit) -> None:
    files = mixed_files(50)
    path = tmp_path / "deep" / "er" / "a.pixels"
    told: list[tuple[str, int, int]] = []
    build(path, files, 8, fit, report=lambda *words: told.append(words))
    cached = CachedImages(path)
    assert len(cached) == 50
    assert path.stat().st_size >= needed_bytes(files, 8)
    rows = torch.tensor([49, 3, 0, 10, 0, 17, 48])
    [(images, usable)] = cached.walk([rows])
    expected, mask = [], []
    for row in rows.tolist():
        try:
            expected.append(torch.from_numpy(decode(files.read(row), 8, fit)))
            mask.append(True)
        except (BadImage, OSError):
            mask.append(False)
    assert torch.equal(images, torch.stack(expected))
    assert usable.tolist() == mask == [True, False, True, False, True, False, True]
    assert told[0] == ("decoding", 0, 50)
    assert told[-1] == ("decoding", 50, 50)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


@pytest.mark.usefixtures("small_pieces")
def test_faults_are_named_with_their_reasons_in_the_order_of_rows(tmp_path: Path) -> None:
    build(tmp_path / "a", mixed_files(30), 8, "squash")
    faults = CachedImages(tmp_path / "a").faults
    assert list(faults) == [3, 10, 17, 24]
    assert [fault.name for fault in faults.values()] == ["image-3", "image-10", "image-17", "image-24"]
    reasons = [fault.reason for fault in faults.values()]
    assert reasons[0] == "the file is empty"
    assert "truncated" in reasons[1]
    assert reasons[2] == "it cannot be read (No such file or directory)"


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.slow
def test_any_number_of_workers_writes_the_same_file(tmp_path: Path) -> None:
    for workers in (0, 3):
        build(tmp_path / str(workers), mixed_files(50), 8, "crop", workers)
    contents = {(tmp_path / str(workers)).read_bytes() for workers in (0, 3)}
    assert len(contents) == 1


def test_no_images_at_all(tmp_path: Path) -> None:
    build(tmp_path / "a", MemoryFiles([]), 8, "squash")
    images, usable = all_images(CachedImages(tmp_path / "a"))
    assert images.shape == (0, 3, 8, 8)
    assert usable.shape == (0,)
    assert (tmp_path / "a").stat().st_size == needed_bytes(MemoryFiles([]), 8)


# Damage


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    build(tmp_path / "a", mixed_files(5), 6, "squash")
    content = bytearray((tmp_path / "a").read_bytes())
    damaged = tmp_path / "b"
    damaged.write_bytes(content)
    rng = np.random.default_rng(0)
    with open(damaged, "r+b", buffering=0) as file:
        for place in range(len(content)):
            os.pwrite(file.fileno(), bytes([content[place] ^ 1 << int(rng.integers(8))]), place)
            with pytest.raises(DataError, match="delete this file"):
                all_images(CachedImages(damaged))
            os.pwrite(file.fileno(), content[place : place + 1], place)
    assert len(all_images(CachedImages(damaged))[0]) == 4


@pytest.mark.usefixtures("small_pieces")
def test_damage_is_noticed_when_its_chunk_is_first_touched(tmp_path: Path) -> None:
    build(tmp_path / "a", mixed_files(12), 8, "squash")
    with open(tmp_path / "a", "r+b") as file:
        file.seek(HEADER + 9 * 3 * 8 * 8 + 5)  # row 9, in the third chunk
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 16]))
    cached = CachedImages(tmp_path / "a")
    walk = cached.walk(torch.tensor([0, 2, 7, 8, 1]).split(1))
    for _ in range(3):
        next(walk)
    with pytest.raises(DataError, match=r"a checksum is wrong: delete this file"):
        next(walk)


def test_a_file_that_is_cut_off_or_goes_on_is_noticed(tmp_path: Path) -> None:
    build(tmp_path / "a", mixed_files(5), 6, "squash")
    content = (tmp_path / "a").read_bytes()
    for length in (0, 1, 15, 16, 100, HEADER - 1, HEADER, HEADER + 7, len(content) - 30, len(content) - 1):
        (tmp_path / "b").write_bytes(content[:length])
        with pytest.raises(DataError, match=rf"{tmp_path / 'b'}, .*: delete this file"):
            CachedImages(tmp_path / "b")
    (tmp_path / "b").write_bytes(content + b"\0")
    with pytest.raises(DataError, match="not whole"):
        CachedImages(tmp_path / "b")


def test_a_file_that_is_cut_off_while_it_is_open_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    build(tmp_path / "a", mixed_files(5), 6, "squash")
    cached = CachedImages(tmp_path / "a")
    os.truncate(tmp_path / "a", HEADER + 50)
    with pytest.raises(DataError, match="not whole"):
        all_images(cached)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n" * 2000)
    with pytest.raises(DataError, match="it is no such file"):
        CachedImages(tmp_path / "text")
    with pytest.raises(DataError, match="No such file"):
        CachedImages(tmp_path / "missing")
    with pytest.raises(DataError, match="not a regular file"):
        CachedImages(tmp_path)
    build(tmp_path / "a", mixed_files(5), 6, "squash")
    with pytest.raises(DataError, match="other images"):
        CachedImages(tmp_path / "a", "0" * 64)


def forged(folder: Path, faults: Any = (), **facts: Any) -> Path:
    """A file with right checksums and facts that are not."""
    layout = {"version": 1, "key": "k", "fit": "crop", "rows": 2, "size": 2, "chunk": 5, **facts}
    text = json.dumps({name: value for name, value in layout.items() if value is not None}).encode()
    rest = (struct.pack("<I", len(text)) + text).ljust(HEADER - 12, b"\0")
    head = b"ocssl\0px" + struct.pack("<I", zlib.crc32(rest)) + rest
    pixels = bytes(2 * 12)
    listed = faults if isinstance(faults, bytes) else json.dumps(faults).encode()
    tables = struct.pack("<I", zlib.crc32(pixels)) + listed
    foot = struct.pack("<QI8s", len(tables) - 4, zlib.crc32(tables), b"px\0ocssl")
    (folder / "forged").write_bytes(head + pixels + tables + foot + struct.pack("<I", zlib.crc32(foot)))
    return folder / "forged"


def test_the_forger_forges_well(tmp_path: Path) -> None:
    cached = CachedImages(forged(tmp_path, [[1, "x", "y"]]))
    assert all_images(cached)[1].tolist() == [True, False]


@pytest.mark.parametrize(
    "facts",
    [
        {"version": 2},
        {"version": None},
        {"rows": None},
        {"rows": -1},
        {"rows": 2**70},
        {"rows": 2.0},
        {"rows": True},
        {"size": 0, "rows": 2**60},
        {"size": 2**40},
        {"size": "2"},
        {"chunk": 0},
        {"chunk": 1},
        {"faults": [[2, "x", "y"]]},
        {"faults": [[-1, "x", "y"]]},
        {"faults": [[0, "x"]]},
        {"faults": {"0": 1}},
        {"faults": b"[" * 100_000},
        {"faults": b"\xff\xfe"},
    ],
)
def test_a_forged_file_is_refused(tmp_path: Path, facts: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="delete this file"):
        CachedImages(forged(tmp_path, **facts))


# Building


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.slow
def test_told_to_stop_it_stops_at_the_first_bad_row_and_leaves_nothing(tmp_path: Path, workers: int) -> None:
    with pytest.raises(DataError, match=r"^cannot use the image image-3: the file is empty; .*data.bad_images=skip\.$"):
        build(tmp_path / "a", mixed_files(30), 8, "squash", workers, bad_images="stop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_pieces")
def test_an_error_of_the_reader_passes_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="the reader has a defect"):
        build(tmp_path / "a", Harmful(mixed_files(30).contents, 20, "fail"), 8, "squash")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_killed_while_it_builds_it_leaves_a_part_that_the_next_build_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a.pixels"
    assert ended(start_builder(path, 40, 30, "die")) == -9
    assert [p.name for p in tmp_path.iterdir()] == [".a.pixels.part"]
    (tmp_path / ".a.pixels.part").write_bytes(b"what a killed process has left" * 9999)
    build(path, mixed_files(40), 8, "squash")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pixels"]
    build(tmp_path / "other", mixed_files(40), 8, "squash")
    assert path.read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    assert ended(start_builder(tmp_path / "a", 40, 30, "kill_parent", workers=2)) == -9
    worker = Path("/proc") / (tmp_path / "worker").read_text()
    until(lambda: not worker.exists())


def test_of_two_that_build_at_once_one_waits_for_the_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    first = start_builder(path, 12, 5, "wait_for_go")
    until((tmp_path / "started").exists)
    told = []

    def report(what: str, done: int, total: int) -> None:
        told.append(what)
        (tmp_path / "go").touch()

    build(path, Harmful(mixed_files(12).contents, 0, "fail"), 8, "squash", report=report)
    assert ended(first) == 0
    assert told == ["waiting for another process that decodes"]
    assert len(CachedImages(path)) == 12
    assert {p.name for p in tmp_path.iterdir()} == {"a", "go", "started"}


def test_the_one_that_waits_takes_over_when_the_other_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    first = start_builder(path, 12, 5, "wait_for_go")
    until((tmp_path / "started").exists)
    told = []

    def report(what: str, done: int, total: int) -> None:
        told.append(what)
        first.kill()

    build(path, mixed_files(12), 8, "squash", report=report)
    assert ended(first) == -9
    assert told[:2] == ["waiting for another process that decodes", "decoding"]
    assert len(CachedImages(path)) == 12
    assert {p.name for p in tmp_path.iterdir()} == {"a", "started"}


def test_a_folder_that_cannot_be_written_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"--cache DIR, or keep none with --set data.decode=live\.$"):
        build(tmp_path / "file" / "a", mixed_files(5), 8, "squash")


def test_too_small_a_disk_is_noticed_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = mixed_files(5)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: usage._replace(free=needed_bytes(files, 8) - 1))
    with pytest.raises(DataError, match=r"decoded images need 0.0 GiB, and .* has 0.0 GiB left: name another folder"):
        build(tmp_path / "a", Harmful(files.contents, 0, "fail"), 8, "squash")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.slow
def test_a_disk_that_fills_up_on_the_way_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER + 20_000, hard))
    try:
        with pytest.raises(DataError, match=r"cannot keep decoded images in .*: name another folder"):
            build(tmp_path / "a", mixed_files(200), 8, "squash")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_was_made_with_other_formats_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of HEIC files must not outlive the installation of pillow-heif."""
    files = mixed_files(3)
    found = set()
    for formats in (("JPEG", "PNG"), ("JPEG", "PNG", "HEIF"), ("HEIF", "PNG", "JPEG")):
        monkeypatch.setattr(decoder, "FORMATS", formats)
        found.add(cache.cache_key(files, 8, "squash"))
    assert len(found) == 2
