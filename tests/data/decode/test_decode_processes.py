"""Images decoded on the way: what the cache gives, in order, with a bounded look ahead and no process left over."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from image_files import Harmful, MemoryFiles, mixed_files
from torch import Tensor

from ocssl.data.decode import decode_processes as workers_module
from ocssl.data.decode.cache import CachedImages, build
from ocssl.data.decode.image_set import LiveImages
from ocssl.errors import DataError

pytestmark = pytest.mark.process

WALKER = Path(__file__).parent / "walker.py"


def children() -> set[str]:
    """Processes that this one has started and that are still there."""
    tasks = Path("/proc/self/task").iterdir()
    return {child for task in tasks for child in (task / "children").read_text().split()}


@pytest.fixture(autouse=True)
def no_process_is_left_over() -> Iterator[None]:
    gc.collect()  # of what other tests have left
    before, handles = children(), len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == handles


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images of 8 px a piece."""
    monkeypatch.setattr("ocssl.data.decode.decode_processes.PIECE", 4 * 3 * 8 * 8)


def some_cuts(count: int) -> list[Tensor]:
    """Cuts of several lengths, one of them empty, with rows that come again."""
    generator = torch.Generator().manual_seed(0)
    order = torch.cat([torch.randperm(count, generator=generator) for _ in range(2)])
    return list(order.split_with_sizes([1, 9, 0, 30, 2 * count - 40]))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [0, 3])
def test_images_order_and_faults_are_those_of_the_cache(tmp_path: Path, workers: int) -> None:
    files = mixed_files(60)
    build(tmp_path / "a", files, 8, "crop")
    kept = CachedImages(tmp_path / "a")
    live = LiveImages(files, 8, "crop", workers)
    assert len(live) == 60
    cuts = some_cuts(60)
    pairs = list(zip(live.walk(cuts), kept.walk(cuts), strict=True))
    assert len(pairs) == len(cuts)
    for (images, usable), (expected, mask) in pairs:
        assert torch.equal(images, expected)
        assert torch.equal(usable, mask)
    assert dict(live.faults) == dict(kept.faults)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_fault_is_known_when_its_cut_has_been_handed_out(workers: int) -> None:
    live = LiveImages(mixed_files(60), 8, "squash", workers)
    order = torch.arange(59, -1, -1)
    known: list[int] = []
    for cut, _ in zip(order.split(5), live.walk(order.split(5)), strict=True):
        known += [row for row in cut.tolist() if row % 7 == 3]
        assert list(live.faults) == known
    assert len(known) == 9


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [0, 2])
def test_told_to_stop_it_names_the_image_when_its_cut_is_due(workers: int) -> None:
    live = LiveImages(mixed_files(60), 8, "squash", workers, bad_images="stop")
    walk = live.walk(torch.tensor([0, 1, 2, 20, 17, 3, 4]).split(2))
    next(walk)
    next(walk)
    with pytest.raises(DataError, match=r"cannot use the image image-17: it cannot be read"):
        next(walk)


@pytest.mark.usefixtures("small_pieces")
def test_it_looks_ahead_by_a_bounded_number_of_cuts() -> None:
    taken = 0

    def cuts() -> Iterator[Tensor]:
        nonlocal taken
        for row in range(60):
            taken += 1
            yield torch.tensor([row])

    for workers in (0, 2):
        taken = 0
        walk = LiveImages(mixed_files(60), 8, "squash", workers).walk(cuts())
        for number, _ in enumerate(walk):
            assert taken <= number + 1 + 2 * workers
            if number == 20:
                assert taken > number + workers
        assert taken == 60


def test_it_looks_ahead_by_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "PIECE", 3 * 8 * 8)
    monkeypatch.setattr(workers_module, "AHEAD", 3 * 3 * 8 * 8)
    taken = 0

    def cuts() -> Iterator[Tensor]:
        nonlocal taken
        for row in range(30):
            taken += 1
            yield torch.tensor([row])

    for number, _ in enumerate(LiveImages(mixed_files(60), 8, "squash", 8).walk(cuts())):
        assert taken <= number + 4


@pytest.mark.usefixtures("small_pieces")
def test_a_walk_that_is_left_ends_its_processes() -> None:
    live = LiveImages(mixed_files(60), 8, "squash", 1)
    before = children()
    walk = live.walk(torch.arange(60).split(5))
    next(walk)
    assert len(children() - before) == 1
    walk.close()  # type: ignore[attr-defined]
    assert children() == before
    walk = live.walk(torch.arange(60).split(5))
    next(walk)
    assert len(children() - before) == 1
    del walk
    gc.collect()
    assert children() == before


@pytest.mark.usefixtures("small_pieces")
def test_two_walks_at_once_do_not_disturb_each_other() -> None:
    files = mixed_files(40)
    live, plain = LiveImages(files, 8, "squash", 1), LiveImages(files, 8, "squash", 0)
    cuts = torch.arange(40).split(5)
    expected = [images for images, _ in plain.walk(cuts)]
    for number, ((a, _), (b, _)) in enumerate(zip(live.walk(cuts), live.walk(cuts[::-1]), strict=True)):
        assert torch.equal(a, expected[number])
        assert torch.equal(b, expected[-1 - number])


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("deed", ["die", "die_while_answering"])
def test_a_worker_that_dies_is_one_clear_error(deed: str) -> None:
    live = LiveImages(Harmful(mixed_files(60).contents, 30, deed), 8, "squash", 2)
    with pytest.raises(DataError, match=r"^a process that decodes images .* ended unexpectedly.*data.workers=1\.$"):
        list(live.walk(torch.arange(60).split(5)))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_reader_passes_at_its_cut(workers: int) -> None:
    live = LiveImages(Harmful(mixed_files(60).contents, 8, "fail"), 8, "squash", workers)
    walk = live.walk(torch.arange(60).split(4))
    next(walk)
    next(walk)
    with pytest.raises(KeyError, match="the reader has a defect"):
        next(walk)


@pytest.mark.usefixtures("small_pieces")
def test_files_that_a_worker_cannot_import_are_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    own = type("OwnFiles", (MemoryFiles,), {"__module__": "__main__"})
    monkeypatch.setattr(main, "OwnFiles", own, raising=False)
    with pytest.raises(AttributeError, match="OwnFiles"):
        list(LiveImages(own(mixed_files(60).contents), 8, "squash", 1).walk(torch.arange(60).split(5)))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_printed_about_damaged_files(workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    from test_fuzzed_images import fuzzed

    live = LiveImages(MemoryFiles(list(fuzzed(130))), 8, "squash", workers)
    assert len(list(live.walk(torch.arange(130).split(10)))) == 13
    assert len(live.faults) > 20
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


@pytest.fixture(scope="module")
def growth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """MiB that became resident, by what was walked over; all images are 29 MiB in `live` and 117 in `cache`."""
    command = [sys.executable, str(WALKER), str(tmp_path_factory.mktemp("walker"))]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


@pytest.mark.parametrize("kind", ["cache", "live"])
def test_resident_memory_does_not_grow_with_the_number_of_images(growth: dict[str, float], kind: str) -> None:
    assert growth[f"{kind}, few"] < 10
    assert growth[f"{kind}, many"] < 10


@pytest.mark.parametrize("kind", ["cache, mapped", "live, kept"])
def test_memory_that_does_grow_would_be_seen(growth: dict[str, float], kind: str) -> None:
    assert growth[kind] > 20
