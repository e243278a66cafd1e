"""`ocssl.images`: every usable image of a folder once, with ids that lead back to its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ocssl
from conftest import small_learner
from ocssl.data import load_benchmark
from ocssl.data.decode.decoder import decode
from ocssl.errors import DataError, OcsslError
from ocssl.settings import DataSettings, StreamSettings


def photographs(root: Path, count: int = 7) -> Path:
    """Images of one colour each, whose red is their number; the third is damaged."""
    for number in range(count):
        path = root / ("cat", "dog")[number % 2] / f"{number} \xe9.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (number, 0, 0)).save(path)
    (root / "cat" / "2 \xe9.png").write_bytes(b"nothing")
    return root


@pytest.mark.parametrize("workers", [0, 2])
def test_every_usable_image_comes_once_with_its_path(tmp_path: Path, workers: int) -> None:
    batches = list(ocssl.images(photographs(tmp_path), size=8, batch=3, workers=workers))
    assert [len(batch.images) for batch in batches] == [2, 3, 1]
    ids = torch.cat([batch.ids for batch in batches])
    assert ids.tolist() == [0, 2, 3, 4, 5, 6]  # of the sorted files
    for batch in batches:
        assert batch.images.shape[1:] == (3, 8, 8)
        assert len(batch.paths) == len(batch.ids) == len(batch.labels)
        for image, path in zip(batch.images, batch.paths, strict=True):
            assert np.array_equal(image.numpy(), decode(Path(path).read_bytes(), 8, "crop"))
            assert int(image[0, 0, 0]) == int(Path(path).name[0])


def test_train_and_test_images_have_ids_of_their_own(tmp_path: Path) -> None:
    for name in ("train/a/0.png", "train/a/1.png", "test/a/2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    found = list(ocssl.images(str(tmp_path), size=8))
    assert [batch.ids.tolist() for batch in found] == [[0, 1], [2]]
    assert [Path(path).name for batch in found for path in batch.paths] == ["0.png", "1.png", "2.png"]


def test_a_learner_takes_them_and_knows_their_ids(tmp_path: Path) -> None:
    learner = small_learner("er-fifo")
    for batch in ocssl.images(photographs(tmp_path), size=8):
        learner.partial_fit(batch.images, ids=batch.ids)
    assert sorted(learner.memory.table()["id"].tolist()) == [0, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("nowhere", {}, "there is no folder nowhere"),
        ("", {}, "folder"),
        ("parquet:nowhere", {}, "nowhere"),
        (".", {"size": 4}, "size is 4"),
        (".", {"size": True}, "size is True"),
        (".", {"batch": 0}, "batch is 0"),
        (".", {"fit": "stretch"}, "wanted crop or squash"),
        (".", {"bad_images": "no"}, "wanted skip or stop"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_at_once(
    source: str, options: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photographs(tmp_path))
    with pytest.raises(OcsslError, match=said):
        ocssl.images(source, **options)


def test_a_damaged_image_can_stop_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 .*png"):
        list(ocssl.images(photographs(tmp_path), size=8, bad_images="stop"))


@pytest.mark.parametrize("decoding", ["cache", "live"])
def test_a_stream_and_its_benchmark_name_the_files_of_ids(tmp_path: Path, decoding: str) -> None:
    settings = StreamSettings.model_validate({"image_size": 8, "fit": "crop", "order": "iid", "test_share": 0.3})
    data = DataSettings.model_validate({"cache": str(tmp_path / "cache"), "decode": decoding})
    benchmark = load_benchmark(f"folder:{photographs(tmp_path / 'photos', 12)}", settings, data)
    seen = 0
    for batch in benchmark.stream(3, seed=0, drop_last=False).batches():
        assert len(batch.paths) == len(batch.ids)
        for image, number, path in zip(batch.images, batch.ids.tolist(), batch.paths, strict=True):
            assert np.array_equal(image.numpy(), decode(Path(path).read_bytes(), 8, "crop"))
            assert benchmark.path(number) == path
            seen += 1
    assert seen == len(benchmark.train) - sum("2 " in fault.name for fault in benchmark.train.faults())
    with pytest.raises(DataError, match="has the id 999"):
        benchmark.path(999)
