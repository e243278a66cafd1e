"""CIFAR-100 is the same in every form in which it is found, and what is not CIFAR-100 is refused with a way out."""

from __future__ import annotations

import http.server
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from cifar_files import META, Small, md5, png, python2, records, snapshot, tar, write_parquet, zipped
from PIL import Image

from conftest import REAL_DATA
from ocssl.data.decode.arrow_files import ParquetFiles
from ocssl.data.decode.files import silent
from ocssl.data.sources.cifar import (
    ARCHIVE,
    CLASS_ORDER,
    CLASSES,
    SUPERCLASS_OF,
    SUPERCLASSES,
    Cifar100,
    Release,
    find_release,
    official_order,
)
from ocssl.data.sources.source import BENCHMARKS, Collection, SourceImages
from ocssl.errors import DataError, install
from ocssl.settings import StreamSettings

REAL = REAL_DATA / "cifar100"


@pytest.fixture(scope="module")
def small() -> Small:
    return Small()


@pytest.fixture(autouse=True)
def _no_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCSSL_DATA", str(tmp_path / "downloads"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def put(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def pixels(collection: Collection) -> npt.NDArray[np.uint8]:
    """All images of a collection, decoded: uint8 [n, 3, 32, 32]."""
    images = collection.images
    if isinstance(images, torch.Tensor):
        assert images.dtype == torch.uint8
        return images.numpy()
    assert isinstance(images, ParquetFiles)
    decoded = np.empty((len(images), 3, 32, 32), np.uint8)
    for row in range(len(images)) if images.rows is None else images.rows.argsort():  # as they stand in the file
        decoded[row] = np.asarray(Image.open(io.BytesIO(images.read(int(row)))).convert("RGB")).transpose(2, 0, 1)
    return decoded


def check(found: SourceImages, small: Small, rows: dict[str, list[int]] | None = None) -> None:
    """That these are the images and labels of the small release, in its order or in another."""
    assert found.test is not None
    for part, collection in (("train", found.train), ("test", found.test)):
        order = np.array(rows[part] if rows else range(len(small.fine[part])))
        assert collection.labels is not None
        assert collection.labels.dtype == collection.groups["taxonomy"].dtype == np.int64
        assert np.array_equal(collection.labels, np.array(small.fine[part])[order])
        assert np.array_equal(collection.groups["taxonomy"], np.array(small.coarse(part))[order])
        assert np.array_equal(pixels(collection), small.pixels[part].reshape(-1, 3, 32, 32)[order])
    assert tuple(found.classes) == CLASSES
    assert tuple(found.group_names["taxonomy"]) == SUPERCLASSES
    assert found.class_order == CLASS_ORDER


def parquet(folder: Path, small: Small, numbered: bool = True, **more: Any) -> dict[str, list[int]]:
    """The small release as parquet files, shuffled; the order of its rows by part."""
    names = more.pop("names", ("image", "label"))
    rows = {part: np.random.default_rng(5).permutation(len(small.fine[part])).tolist() for part in small.fine}
    write_parquet(folder / "train-00000-of-00002.parquet", small, "train", rows["train"][:90], names, numbered, **more)
    write_parquet(folder / "train-00001-of-00002.parquet", small, "train", rows["train"][90:], names, numbered, **more)
    write_parquet(folder / "test-00000-of-00001.parquet", small, "test", rows["test"], names, numbered, **more)
    return rows


# ---- tables


def test_the_class_order_is_that_of_the_authors() -> None:
    generator = torch.Generator().manual_seed(42)
    assert torch.randperm(100, generator=generator).tolist() == list(CLASS_ORDER)


def test_the_names_are_those_of_the_official_meta_file() -> None:
    assert md5(META) == Release().sums["meta"]  # written from CLASSES and SUPERCLASSES
    assert sorted(CLASSES) == list(CLASSES)
    assert np.bincount(SUPERCLASS_OF).tolist() == [5] * 20
    fish = [CLASSES[label] for label in range(100) if SUPERCLASSES[SUPERCLASS_OF[label]] == "fish"]
    assert fish == ["aquarium_fish", "flatfish", "ray", "shark", "trout"]


def test_it_is_a_benchmark_without_settings_of_its_own() -> None:
    assert BENCHMARKS["cifar100"] is Cifar100
    assert BENCHMARKS.options("cifar100") == {}
    assert BENCHMARKS.summary("cifar100").startswith("CIFAR-100")


# ---- forms

FORMS: dict[str, Callable[[Small], dict[str, bytes]]] = {
    "binary": Small.binary,
    "python": Small.python,
    "python without meta": lambda s: {name: content for name, content in s.python().items() if name != "meta"},
    "binary archive": lambda s: {"cifar-100-binary.tar.gz": tar(s.binary(), folder="cifar-100-binary/")},
    "python archive": lambda s: {ARCHIVE: tar(s.python())},
    "both archives": lambda s: {
        ARCHIVE: b"broken",
        "cifar-100-binary.tar.gz": tar(s.binary(), folder="cifar-100-binary/"),
    },
    "an archive beside matlab's": lambda s: {"cifar-100-matlab.tar.gz": b"broken", ARCHIVE: tar(s.python())},
    "tar": lambda s: {"cifar-100-python.tar": tar(s.python(), packed=False)},
    "zip": lambda s: {"CIFAR100.zip": zipped(s.python())},
    "zip of binary files": lambda s: {"cifar_100.zip": zipped(s.binary(), folder="")},
    "one half unpacked beside the archive": lambda s: {"train": b"half", "meta": META, ARCHIVE: tar(s.python())},
}

SUMS = {
    ARCHIVE: md5(tar(Small().python())),
    "cifar-100-binary.tar.gz": md5(tar(Small().binary(), folder="cifar-100-binary/")),
}


@pytest.mark.parametrize("below", ["", "cifar-100-python", "cifar-100-binary", "cifar100", "data"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(small: Small, tmp_path: Path, form: str, below: str) -> None:
    put(tmp_path / "x" / below, FORMS[form](small))
    before = snapshot(tmp_path)
    check(find_release(tmp_path / "x", silent, small.release(SUMS)), small)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("form", FORMS)
def test_a_file_or_an_empty_folder_beside_is_as_good_as_the_folder(small: Small, tmp_path: Path, form: str) -> None:
    put(tmp_path / "x", FORMS[form](small))
    if "half" not in form and "both" not in form and "matlab" not in form:
        for path in (tmp_path / "x").iterdir():
            if path.name != "meta":
                check(find_release(path, silent, small.release()), small)
    (tmp_path / "x" / "cifar-100-python").mkdir()
    check(find_release(tmp_path / "x" / "cifar-100-python", silent, small.release(SUMS)), small)


def test_an_archive_of_any_name_is_read_when_it_is_named(small: Small, tmp_path: Path) -> None:
    put(tmp_path, {"mine.tgz": tar(small.binary(), folder="")})
    check(find_release(tmp_path / "mine.tgz", silent, small.release()), small)
    with pytest.raises(DataError, match="no CIFAR-100 in"):
        find_release(tmp_path, silent, small.release())


def test_reading_an_archive_is_told(small: Small, tmp_path: Path) -> None:
    told: list[str] = []
    put(tmp_path, FORMS["python archive"](small))
    find_release(tmp_path, lambda what, done, total: told.append(what), small.release())
    assert set(told) == {f"reading {ARCHIVE}"}


@pytest.mark.parametrize("below", ["", "cifar100", "data"])
@pytest.mark.parametrize("names", [("image", "label"), ("img", "fine_label")])
def test_parquet_is_put_into_the_official_order(
    small: Small, tmp_path: Path, below: str, names: tuple[str, str]
) -> None:
    parquet(tmp_path / "x" / below, small, names=names)
    found = find_release(tmp_path / "x", silent, small.release())
    assert not isinstance(found.train.images, torch.Tensor)  # still encoded
    check(found, small)


def test_parquet_whose_paths_say_nothing_stays_in_its_order(small: Small, tmp_path: Path) -> None:
    rows = parquet(tmp_path, small, numbered=False)
    check(find_release(tmp_path, silent, small.release()), small, rows)


def test_superclasses_need_not_be_in_the_parquet_files(small: Small, tmp_path: Path) -> None:
    parquet(tmp_path, small, coarse=False)
    check(find_release(tmp_path / "train-00000-of-00002.parquet", silent, small.release()), small)


def test_parquet_without_pyarrow_says_what_to_install(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path, small)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DataError, match=re.escape(f"reading parquet needs pyarrow: {install('data')}")):
        find_release(tmp_path, silent, small.release())


@pytest.mark.parametrize(
    ("paths", "order"),
    [
        (["train_2.png", "train_0.png", "train_1.png"], [1, 2, 0]),
        (["2", "0", "1"], [1, 2, 0]),
        (["a/00002.jp2", "b/00000.jp2", "00001.jp2"], [1, 2, 0]),
        (["7_2.webp", "7_0.webp", "8_1.webp"], [1, 2, 0]),
        ([], []),
        (["1", "2", "3"], None),  # not from 0 on
        (["0", "1", "1"], None),
        (["0", "1", None], None),
        (["0", "1", "two"], None),
        (["0", "1", "9" * 5000], None),
        (["0", "1", "1000000000002"], None),
        (["0", "1", "-2x"], None),
        (["cat_s_000.png", "cat_s_001.png", "dog_s_001.png"], None),
    ],
)
def test_the_official_order_is_only_taken_from_paths_that_have_each_number_once(
    paths: list[str | None], order: list[int] | None
) -> None:
    found = official_order(paths)
    assert (None if found is None else found.tolist()) == order


# ---- what is wrong


def refusal(where: Path | None, release: Release) -> str:
    """The one sentence with which a place is refused."""
    with pytest.raises(DataError) as caught:
        find_release(where, silent, release)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


def test_an_empty_or_wrong_place_says_what_was_looked_for(small: Small, tmp_path: Path) -> None:
    put(tmp_path, {"data_batch_1": b"CIFAR-10", "train/0/a.png": b"", "test/0/b.png": b""})
    message = refusal(tmp_path, small.release())
    assert message.startswith(f"no CIFAR-100 in {tmp_path}: wanted there, or in cifar-100-binary, ")
    for wanted in ("train.bin and test.bin", "train-*.parquet", "cifar-100-*.tar.gz", "--data DIR"):
        assert wanted in message
    assert "there is no folder or file" in refusal(tmp_path / "nothing", small.release())
    os.mkfifo(tmp_path / "pipe")
    assert "there is no folder or file" in refusal(tmp_path / "pipe", small.release())


@pytest.mark.parametrize(
    "name", ["train.bin", "test.bin", "train", "test", "meta", "train-0.parquet", "test-0.parquet"]
)
def test_one_part_alone_is_named(small: Small, tmp_path: Path, name: str) -> None:
    put(tmp_path / "data", {name: b"x"})
    assert f", only {name} is in {tmp_path / 'data'}:" in refusal(tmp_path, small.release())


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_an_unpacked_file_with_another_checksum_is_refused(small: Small, tmp_path: Path, name: str) -> None:
    contents = small.python()
    sums = {file: md5(content) for file, content in contents.items()}
    put(tmp_path, contents)
    check(find_release(tmp_path, silent, small.release(sums)), small)
    put(tmp_path, {name: contents[name] + b"!"})
    message = f"{tmp_path / name} is not the official {name} (md5 {md5(contents[name] + b'!')}, wanted {sums[name]})"
    assert refusal(tmp_path, small.release(sums)) == f"{message}: fetch it again."


@pytest.mark.parametrize("name", [ARCHIVE, "cifar-100-binary.tar.gz"])
def test_an_archive_with_another_checksum_is_refused(small: Small, tmp_path: Path, name: str) -> None:
    packed = tar(small.binary() if "binary" in name else small.python())
    put(tmp_path, {name: packed})
    check(find_release(tmp_path, silent, small.release({name: md5(packed), "train": "not asked"})), small)
    message = f"{tmp_path / name} is not the official {name} (md5 {md5(packed)}, wanted 0): fetch it again."
    assert refusal(tmp_path, small.release({name: "0"})) == message
    assert refusal(tmp_path / name, small.release({name: "0"})) == message


def test_files_in_an_archive_of_another_kind_are_checked_themselves(small: Small, tmp_path: Path) -> None:
    put(tmp_path, {"cifar-100.zip": zipped(small.python())})
    assert "cifar-100.zip/test is not the official test" in refusal(tmp_path, small.release({"test": "0"}))


def test_the_official_checksums_are_the_published_ones(small: Small, tmp_path: Path) -> None:
    put(tmp_path / "a", small.python())
    assert "wanted 16019d7e3df5f24257cddd939b257f8d" in refusal(tmp_path / "a", Release())
    put(tmp_path / "b", FORMS["python archive"](small))
    assert "wanted eb9058c3a382ffc7106e4002c42a8d85" in refusal(tmp_path / "b", Release())
    put(tmp_path / "c", FORMS["binary archive"](small))
    assert "wanted 03b5dce01913d631647c71ecec9e9cb8" in refusal(tmp_path / "c", Release())
    put(tmp_path / "d", small.binary())
    assert "has 200 images and 200 labels, not 50000" in refusal(tmp_path / "d", Release())


def changed(small: Small, part: str, fine: Callable[[list[int]], None], coarse: bool = True) -> dict[str, list[int]]:
    labels = list(small.fine[part])
    fine(labels)
    return {"fine": labels, "coarse": [SUPERCLASS_OF[x] if x < 100 and coarse else 0 for x in labels]}


def other_class(labels: list[int]) -> None:
    labels[0] = (labels[0] + 1) % 100


def no_class(labels: list[int]) -> None:
    labels[0] = 100


def nothing(labels: list[int]) -> None:
    pass


WRONG = {
    "one of another class": (other_class, True, "it has not 2 images of each class"),
    "one of no class": (no_class, True, "it has other classes or superclasses"),
    "other superclasses": (nothing, False, "it has other classes or superclasses"),
}


@pytest.mark.parametrize("form", ["binary", "python", "parquet"])
@pytest.mark.parametrize("case", WRONG)
def test_labels_that_cannot_be_are_refused(tmp_path: Path, case: str, form: str) -> None:
    small = Small()
    change, coarse, message = WRONG[case]
    labels = changed(small, "train", change, coarse)
    if form == "binary":
        content = records(small.pixels["train"], labels["fine"], labels["coarse"])
        put(tmp_path, small.binary() | {"train.bin": content})
    else:
        small.fine["train"] = labels["fine"]
        small.coarse = lambda part: labels["coarse"] if part == "train" else Small.coarse(small, part)  # type: ignore[method-assign]
        if form == "parquet":
            parquet(tmp_path, small)
        else:
            put(tmp_path, small.python())
    assert message in refusal(tmp_path, small.release())


@pytest.mark.parametrize("name", ["train.bin", "test.bin"])
@pytest.mark.parametrize("lost", [1, 3073, 3074])
def test_a_file_cut_off_is_refused(small: Small, tmp_path: Path, name: str, lost: int) -> None:
    put(tmp_path, small.binary())
    (tmp_path / name).write_bytes(small.binary()[name][:-lost])
    message = refusal(tmp_path, small.release())
    assert message.startswith(f"{tmp_path / name} ")
    assert ("labels, not" in message) == (lost == 3074)


PICKLES: dict[str, tuple[str, dict[bytes, Any], str]] = {
    "nothing": ("train", {}, "it lacks images"),
    "no images": ("train", {b"data": b"x"}, "it lacks images"),
    "images of another size": ("train", {b"data": np.zeros((200, 3071), np.uint8)}, "it lacks images"),
    "too few images": ("train", {b"data": np.zeros((199, 3072), np.uint8)}, "has 199 images and 200 labels"),
    "too few labels": ("train", {b"fine_labels": [1]}, "has 200 images and 1 labels"),
    "too few superclasses": ("train", {b"coarse_labels": [1]}, "other classes or superclasses"),
    "labels that are words": ("train", {b"fine_labels": [b"cat"] * 200}, "it lacks images, fine or coarse labels"),
    "labels that are an array": ("train", {b"fine_labels": np.zeros((1, 200), np.uint8)}, "it lacks images, fine"),
    "no names": ("meta", {}, "it has no list of 100 names"),
    "numbers for names": ("meta", {b"fine_label_names": [1] * 100}, "it has no list of 100 names"),
    "too few names": ("meta", {b"fine_label_names": [b"x"] * 100, b"coarse_label_names": [b"x"] * 19}, "20 names"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_a_pickle_that_lacks_something_is_refused(small: Small, tmp_path: Path, case: str) -> None:
    name, content, message = PICKLES[case]
    usual = {
        b"data": small.pixels["train"],
        b"fine_labels": small.fine["train"],
        b"coarse_labels": small.coarse("train"),
    }
    whole = content if name == "meta" or not content else usual | content
    put(tmp_path, small.python() | {name: python2(whole)})
    found = refusal(tmp_path, small.release())
    assert found.startswith(f"{tmp_path / name} ")
    assert message in found


def test_a_file_that_runs_something_when_it_is_unpickled_does_not(small: Small, tmp_path: Path) -> None:
    command = f"touch {tmp_path / 'it-ran'}".encode()
    hostile = b"\x80\x02}U\x04datacos\nsystem\nT" + len(command).to_bytes(4, "little") + command + b"\x85Rs."
    for contents in ({"train": hostile}, {"meta": hostile}):
        put(tmp_path, small.python() | contents)
        assert "it names something other than arrays" in refusal(tmp_path, small.release())
        assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"train.bin": b"x"}, "has neither train.bin and test.bin nor train and test"),
        ({"data_batch_1": b"x"}, "has neither train.bin and test.bin nor train and test"),
        ({"train.bin": b"x", "test.bin": b"x"}, "cut off or something else"),
        ({"a/train": b"x", "b/train": b"x", "test": b"x"}, "holds train twice"),
    ],
)
def test_an_archive_of_something_else_is_refused(
    small: Small, tmp_path: Path, contents: dict[str, bytes], message: str
) -> None:
    put(tmp_path, {ARCHIVE: tar(contents)})
    assert message in refusal(tmp_path, small.release())


def test_a_file_that_is_too_large_is_not_read(small: Small, tmp_path: Path) -> None:
    put(tmp_path, small.binary())
    os.truncate(tmp_path / "train.bin", 10**12)
    assert "train.bin: larger than 200,000,000 bytes" in refusal(tmp_path, small.release())


@pytest.mark.parametrize("lost", ["train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"])
def test_parquet_with_a_file_missing_is_refused(small: Small, tmp_path: Path, lost: str) -> None:
    parquet(tmp_path, small)
    (tmp_path / f"{lost}.parquet").unlink()
    message = refusal(tmp_path, small.release())
    assert ("labels, not 200" if "train" in lost else "only train-00000-of-00002.parquet is in") in message


def test_parquet_of_another_layout_is_refused(small: Small, tmp_path: Path) -> None:
    parquet(tmp_path / "a", small, names=("picture", "label"))
    assert "picture" in refusal(tmp_path / "a", small.release())
    parquet(tmp_path / "b", small, names=("image", "class"))
    assert "has no column 'label'" in refusal(tmp_path / "b", small.release())
    put(tmp_path / "c", {"train-0.parquet": b"PAR1", "test-0.parquet": b"PAR1"})
    assert "cannot be read as parquet" in refusal(tmp_path / "c", small.release())


# ---- download


@pytest.fixture
def served(small: Small, tmp_path: Path) -> Iterator[tuple[Release, list[str]]]:
    """A release whose archive is on a server, and what the server was asked for."""
    folder = put(tmp_path / "served", {ARCHIVE: tar(small.python())})
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args: Any) -> None:
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    packed = (folder / ARCHIVE).read_bytes()
    url = f"http://127.0.0.1:{server.server_address[1]}/{ARCHIVE}"
    yield small.release({ARCHIVE: md5(packed)}, url=url, size=len(packed)), asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_without_a_place_it_is_downloaded_once(small: Small, tmp_path: Path, served: tuple[Release, list[str]]) -> None:
    release, asked = served
    for _ in range(2):
        check(find_release(None, silent, release), small)
        assert [path.name for path in (tmp_path / "downloads").iterdir()] == [ARCHIVE]
    assert asked == [f"/{ARCHIVE}"]


def test_a_download_that_was_damaged_since_is_fetched_again(
    small: Small, tmp_path: Path, served: tuple[Release, list[str]]
) -> None:
    release, asked = served
    put(tmp_path / "downloads", {ARCHIVE: bytes(release.size)})
    check(find_release(None, silent, release), small)
    assert len(asked) == 1


def test_without_the_net_the_way_by_hand_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(
        DataError, match=r"cannot download https://www\.cs\.toronto\.edu/~kriz/cifar-100-python\.tar\.gz \(.*--data DIR"
    ):
        Cifar100().find(None, StreamSettings(), silent)


# ---- the real images


@pytest.fixture(scope="module")
def real() -> SourceImages:
    if not REAL.is_dir():
        pytest.skip("needs shared/data/cifar100, which is not here")
    return Cifar100().find(REAL, StreamSettings(), silent)


def test_the_real_data_are_whole_and_in_the_official_order(real: SourceImages) -> None:
    assert real.test is not None
    assert real.train.labels is not None
    assert real.test.labels is not None
    assert (len(real.train), len(real.test)) == (50_000, 10_000)
    assert np.bincount(real.train.labels).tolist() == [500] * 100
    assert np.bincount(real.test.labels).tolist() == [100] * 100
    names = [CLASSES[label] for label in real.train.labels[:5]]
    assert names == ["cattle", "dinosaur", "apple", "boy", "aquarium_fish"]  # as in every tutorial
    assert isinstance(real.train.images, ParquetFiles)
    first, *_ = pixels(Collection(real.train.images.subset(np.arange(1))))
    assert first.reshape(-1)[[0, 1, 2, -3, -2, -1]].tolist() == [255, 255, 255, 10, 59, 79]


def test_real_images_are_the_same_as_binary_and_as_python_files(real: SourceImages, tmp_path: Path) -> None:
    """Ten of each class as training part, and the same again as test part."""
    images, labels = real.train.images, real.train.labels
    assert isinstance(images, ParquetFiles)
    assert images.rows is not None
    assert labels is not None
    near = images.rows < 8000  # few row groups, so that not all of the file is read
    rows = np.sort(np.concatenate([np.flatnonzero((labels == label) & near)[:10] for label in range(100)]))
    chosen = Collection(images.subset(rows), labels[rows])
    some = Small()
    some.pixels = dict.fromkeys(("train", "test"), pixels(chosen).reshape(-1, 3072))
    some.fine = dict.fromkeys(("train", "test"), labels[rows].tolist())
    release = Release(per_class={"train": 10, "test": 10}, sums={})
    for number, contents in enumerate((some.binary(), some.python(), {ARCHIVE: tar(some.python())})):
        check(find_release(put(tmp_path / str(number), contents), silent, release), some)


def test_the_encoded_images_of_these_tests_are_lossless(small: Small) -> None:
    decoded = np.asarray(Image.open(io.BytesIO(png(small.pixels["test"][0])))).transpose(2, 0, 1)
    assert np.array_equal(decoded.reshape(-1), small.pixels["test"][0])
