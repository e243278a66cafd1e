"""Opening encoded images with or without a cache: the same images, decoded once where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from image_files import MemoryFiles, mixed_files

from ocssl.data.decode import image_set
from ocssl.data.decode.cache import CachedImages, needed_bytes
from ocssl.data.decode.image_set import LiveImages, cache_folder, open_images
from ocssl.errors import DataError


def sound(count: int) -> MemoryFiles:
    return MemoryFiles([c for row, c in enumerate(mixed_files(count).contents) if row % 7 != 3])


@pytest.mark.slow
def test_cache_and_live_give_the_same(tmp_path: Path) -> None:
    files, cuts = mixed_files(30), torch.arange(30).split(7)
    kept = open_images(files, size=8, fit="crop", decode="cache", workers=1, cache=tmp_path)
    live = open_images(files, size=8, fit="crop", decode="live", workers=1, cache=tmp_path)
    assert isinstance(kept, CachedImages)
    assert isinstance(live, LiveImages)
    for (a, x), (b, y) in zip(kept.walk(cuts), live.walk(cuts), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(x, y)
    assert dict(kept.faults) == dict(live.faults)


def test_the_second_time_nothing_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = mixed_files(10)
    told: list[tuple[str, int, int]] = []
    for _ in range(2):
        open_images(files, size=8, fit="crop", decode="cache", cache=tmp_path, report=lambda *w: told.append(w))
        monkeypatch.setattr(MemoryFiles, "read", lambda self, row: pytest.fail("it was read again"))
    assert told == [("decoding", 0, 10), ("decoding", 10, 10)]


def test_other_files_size_or_fit_have_a_cache_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(count: int = 9, size: int = 8, fit: str = "crop") -> int:
        open_images(sound(count), size=size, fit=fit, decode="cache", cache=tmp_path)  # type: ignore[arg-type]
        return len(list(tmp_path.iterdir()))

    assert [opened(), opened(size=9), opened(fit="squash"), opened(count=10), opened()] == [1, 2, 3, 4, 4]
    monkeypatch.setattr("ocssl.data.decode.decoder.VERSION", 99)
    assert opened() == 5
    assert all(path.suffix == ".pixels" for path in tmp_path.iterdir())


def test_a_cache_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    open_images(sound(9), size=8, fit="crop", decode="cache", cache=tmp_path)
    [first] = tmp_path.iterdir()
    open_images(sound(9), size=8, fit="squash", decode="cache", cache=tmp_path)
    [second] = [path for path in tmp_path.iterdir() if path != first]
    first.replace(second)
    with pytest.raises(DataError, match="other images: delete this file"):
        open_images(sound(9), size=8, fit="squash", decode="cache", cache=tmp_path)


def test_bad_images_stop_a_new_cache_and_an_old_one(tmp_path: Path) -> None:
    files = mixed_files(30)
    words = r"cannot use the image image-3: the file is empty; .*--set data.bad_images=skip"
    for _ in range(2):
        with pytest.raises(DataError, match=words):
            open_images(files, size=8, fit="crop", decode="cache", cache=tmp_path, bad_images="stop")
        assert open_images(files, size=8, fit="crop", decode="cache", cache=tmp_path).faults
    open_images(sound(9), size=8, fit="crop", decode="cache", cache=tmp_path, bad_images="stop")


def test_the_place_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("OCSSL_CACHE", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "ocssl"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "ocssl"
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    open_images(sound(9), size=8, fit="crop", decode="cache")
    assert len(list((tmp_path / "own").iterdir())) == 1


@pytest.mark.parametrize(("asked", "cores", "used"), [(0, 64, 8), (0, 2, 2), (0, None, 1), (3, 64, 3)])
def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch, asked: int, cores: int | None, used: int) -> None:
    monkeypatch.setattr(image_set.os, "cpu_count", lambda: cores)
    live = open_images(sound(9), size=8, fit="crop", decode="live", workers=asked)
    assert isinstance(live, LiveImages)
    assert live.workers == used


def test_needed_bytes_is_the_size_of_a_cache_without_faults(tmp_path: Path) -> None:
    for count, size in ((9, 8), (500, 30)):
        files = MemoryFiles((sound(9).contents * 99)[:count])
        open_images(files, size=size, fit="crop", decode="cache", workers=1, cache=tmp_path / str(count))
        [path] = (tmp_path / str(count)).iterdir()
        assert path.stat().st_size == needed_bytes(files, size)
