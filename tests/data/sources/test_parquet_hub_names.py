from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ocssl.data.decode.arrow_files import ArrowFiles
from ocssl.data.decode.files import silent
from ocssl.data.sources.parquet_hub import Hub, Parquet
from ocssl.data.sources.source import SourceImages
from ocssl.errors import OcsslError, install
from ocssl.settings import StreamSettings

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and a cache of its own."""
    datasets = pytest.importorskip("datasets")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def write(path: Path, count: int, **columns: Any) -> Path:
    images = pa.array([{"bytes": b"%d" % n, "path": f"{n}.jpg"} for n in range(count)], IMAGE)
    names = {
        "info": {"features": {"image": {"_type": "Image"}, "label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}
    }
    table = pa.table({"image": images, **columns}).replace_schema_metadata({"huggingface": json.dumps(names)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=3)
    return path.parent


def find(root: Path | None, **options: Any) -> SourceImages:
    return Hub(**options).find(root, StreamSettings.model_validate({}), silent)


def refused(root: Path | None, message: str, **options: Any) -> None:
    with pytest.raises(OcsslError, match=message) as caught:
        find(root, **options)
    assert str(caught.value).isprintable()


def contents(found: SourceImages, part: str) -> list[tuple[bytes, str]]:
    collection = getattr(found, part)
    labels = [found.classes[label] for label in collection.labels]
    return [(collection.images.read(row), label) for row, label in enumerate(labels)]


@pytest.mark.slow
def test_a_local_folder_is_found_as_parquet_finds_it(tmp_path: Path) -> None:
    root = write(tmp_path / "set" / "train-00000-of-00001.parquet", 7, label=[0, 1, 1, 0, 1, 0, 0])
    write(tmp_path / "set" / "test-00000-of-00001.parquet", 2, label=[1, 0])
    found = find(root)
    same = Parquet().find(root, StreamSettings.model_validate({}), silent)
    assert found.classes == same.classes == ["ant", "bee"]
    for part in ("train", "test"):
        assert contents(found, part) == contents(same, part)
    assert find(root, label="none").train.labels is None
    refused(root, "did you mean 'label'", label="labels")


def test_its_images_go_to_another_process_and_are_subset(tmp_path: Path) -> None:
    root = write(tmp_path / "set" / "train.parquet", 5, label=[0] * 5)
    images = find(root).train.images
    assert isinstance(images, ArrowFiles)
    part = pickle.loads(pickle.dumps(images.subset(np.array([4, 1, 1]))))
    assert [part.read(row) for row in range(3)] == [b"4", b"1", b"1"]
    assert part.name(0) == "row 4 (4.jpg)"
    assert len(pickle.dumps(images)) < 2000
    inner = part.subset(np.array([1]))
    assert inner.read(0) == b"1"
    assert len({images.fingerprint(), part.fingerprint(), inner.fingerprint()}) == 3
    assert images.fingerprint(times=True) != images.fingerprint() == find(root).train.images.fingerprint()  # type: ignore[union-attr]
    os.utime(images.paths[0], ns=(1, 1))
    assert images.fingerprint() == find(root).train.images.fingerprint()  # type: ignore[union-attr]
    for row in (-1, 5):
        with pytest.raises(IndexError):
            images.read(row)


def test_a_folder_of_pictures_is_read_from_their_files(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("train/cat/1.png", "train/dog/2.png"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(path)
    found = find(tmp_path / "pets")
    assert contents(found, "train") == [
        ((tmp_path / "pets" / name).read_bytes(), label)
        for name, label in (("train/cat/1.png", "cat"), ("train/dog/2.png", "dog"))
    ]


def arrow_file(path: Path, rows: list[Any]) -> Path:
    table = pa.table({"image": pa.array(rows, IMAGE)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, 2)
    return path


def test_a_row_may_name_a_file_only_in_the_folders_of_its_set(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(b"inside")
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    paths = [
        str(tmp_path / "in" / "a.jpg"),
        str(tmp_path / "secret.jpg"),
        "../secret.jpg",
        str(tmp_path / "in" / "b.jpg"),
    ]
    rows: list[Any] = [{"bytes": None, "path": path} for path in paths]
    files = ArrowFiles([arrow_file(tmp_path / "x.arrow", [*rows, None, {"bytes": b"x"}])], "image", [tmp_path / "in"])
    assert files.read(0) == b"inside"
    assert files.read(5) == b"x"
    for row, message in ((1, "outside"), (2, "outside"), (3, "No such file"), (4, "no image in this row")):
        with pytest.raises(OSError, match=message):
            files.read(row)
    assert files.name(4) == "row 4"


def test_an_arrow_file_that_is_gone_or_damaged_is_told(tmp_path: Path) -> None:
    path = arrow_file(tmp_path / "x.arrow", [{"bytes": b"x"}] * 5)
    files = pickle.loads(pickle.dumps(ArrowFiles([path], "image")))
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(OSError, match="cannot be read"):
        files.read(0)
    told = 0
    for cut in range(0, len(whole) - 8, 40):
        path.write_bytes(whole[:cut])
        try:
            assert len(ArrowFiles([path], "image")) < 5  # the beginning of a stream is a shorter stream
        except OcsslError:
            told += 1
    assert told > 5


def test_what_cannot_be_loaded_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(None, "hf:NAME")
    refused(Path("no/such-set"), "datasets cannot reach 'no/such-set' .*: connect, or name a folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "datasets cannot load .*empty")
    root = write(tmp_path / "set" / "train.parquet", 2, label=[0, 1])
    refused(root, "datasets cannot load .*other", config="other")
    shutil.copy(root / "train.parquet", tmp_path / "test.parquet")
    (tmp_path / "only").mkdir()
    shutil.move(tmp_path / "test.parquet", tmp_path / "only" / "test.parquet")
    refused(tmp_path / "only", "has no split train, only test")
    (root / "train.parquet").write_bytes(b"PAR1 junk")
    refused(root, "datasets cannot load")
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(root, re.escape(f"needs datasets: {install('data')}"))
