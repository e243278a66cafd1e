"""A messy folder of 171 files: counted right to the file by check and run, and the same stream however it is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from messy_folder import FILES, KINDS, count, encoded, write_messy

import ocssl
from conftest import SMALL
from ocssl.cli import main
from ocssl.data import Benchmark, load_benchmark
from ocssl.data.decode import decoder, files
from ocssl.errors import DataError
from ocssl.settings import DataSettings, StreamSettings

pytestmark = pytest.mark.slow
pytest.importorskip("pillow_heif", reason="HEIC files need pillow-heif")

RUN = {**SMALL, "terms.overlap.k": 6, "stream.image_size": 16, "evaluate.latent_samples": 6, "evaluate.latent_views": 2}
WORDS = [word for key, value in RUN.items() for word in ("--set", f"{key}={value}")]


def call(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[str]]:
    root = tmp_path_factory.mktemp("messy") / "photos"
    without = write_messy(root)
    assert count(root) == FILES
    return root, without


def test_check_counts_every_file_by_reason_and_writes_nothing(
    photos: tuple[Path, Counter[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    root, without = photos
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    assert call("check", str(root), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["files"], found["used"]) == (FILES, FILES - without.total())
    assert found["skipped"] == dict(without)
    assert Counter(one["kind"] for one in found["list"]) == without
    assert sum(found["formats"].values()) == found["used"]
    assert len(found["formats"]) >= 9
    assert found["formats"]["HEIF"] == 2
    assert (found["widths"], found["heights"]) == ([40, 40, 500], [30, 30, 375])
    assert found["classes"] == {}
    assert found["experiences"] == 1
    full, small = found["runs"]
    assert full["steps"] > small["steps"] > 0
    assert full["seconds"] > small["seconds"] > 0
    assert full["bytes"] > small["bytes"] > 0
    assert found["command"].startswith(f"ocssl run solar-c {root}")
    assert not list(tmp_path.iterdir())


def test_a_run_of_it_starts_at_the_first_try_and_uses_every_image(
    photos: tuple[Path, Counter[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root, without = photos
    out = tmp_path / "run"
    assert call("run", "solar", str(root), "--out", str(out), "--cache", str(tmp_path / "cache"), *WORDS) == 0
    printed = capsys.readouterr().out
    assert f"used {FILES - without.total()} of {FILES}: " in printed
    for reason, files_of_it in without.items():
        assert f"{files_of_it} {reason}" in printed
    listed = (out / "skipped.tsv").read_text().splitlines()
    assert Counter(line.split("\t")[0] for line in listed) == without
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["seen"] == FILES - without.total()
    assert metrics["final_accuracy"] is None


def load(root: Path, cache: Path, decode: str = "cache", workers: int = 0) -> Benchmark:
    options = {"image_size": 24, "fit": "crop", "drop_last": False}
    data = DataSettings.model_validate({"decode": decode, "workers": workers, "cache": str(cache)})
    return load_benchmark(f"folder:{root}", StreamSettings.model_validate(options), data)


def stream(benchmark: Benchmark) -> list[tuple[torch.Tensor, list[int], list[str]]]:
    batches = benchmark.stream(10, seed=0, drop_last=False).batches()
    return [(batch.images, batch.ids.tolist(), list(batch.paths)) for batch in batches]


def by_pillow(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    def only_damage(data: bytes, image: Any) -> None:
        own(data, image)

    own = decoder._jpeg
    monkeypatch.setattr(decoder, "_jpeg", only_damage)
    return load(root, cache / "pillow")


READINGS: dict[str, Callable[[Path, Path, pytest.MonkeyPatch], Benchmark]] = {
    "cache again": lambda root, cache, _: load(root, cache),
    "live": lambda root, cache, _: load(root, cache, "live", 1),
    "live, two processes": lambda root, cache, _: load(root, cache, "live", 2),
    "Pillow's JPEG decoder": by_pillow,
}


@pytest.mark.parametrize("reading", READINGS)
def test_it_is_the_same_stream_however_it_is_read(
    reading: str, photos: tuple[Path, Counter[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, without = photos
    usual = stream(load(root, tmp_path))
    assert sum(len(ids) for _, ids, _ in usual) == FILES - without.total()
    other = stream(READINGS[reading](root, tmp_path, monkeypatch))
    assert len(usual) == len(other)
    for (images, ids, paths), (images2, ids2, paths2) in zip(usual, other, strict=True):
        assert (ids, paths) == (ids2, paths2)
        assert torch.equal(images, images2)
    if "Pillow" not in reading:
        again = load(root, tmp_path, *(("cache", 0) if "cache" in reading else ("live", 2)))
        stream(again)
        assert Counter(fault.kind for fault in again.skipped()) == without


def test_images_of_it_lead_back_to_their_files(photos: tuple[Path, Counter[str]]) -> None:
    root, without = photos
    found = [path for batch in ocssl.images(root, size=16) for path in batch.paths]
    assert len(set(found)) == len(found) == FILES - without.total()
    assert all(Path(path).exists() for path in found)


def test_without_pillow_heif_its_files_are_counted_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "heif_known", lambda: False)
    without = write_messy(tmp_path / "photos", with_heif=False)
    found = load(tmp_path / "photos", tmp_path / "cache")
    assert Counter(fault.kind for fault in found.skipped()) == without
    assert without[".heic (pip install pillow-heif)"] == 2
    assert "2 .heic (pip install pillow-heif)" in found.usage()


@pytest.mark.parametrize("decode", ["cache", "live"])
def test_a_run_whose_test_images_are_all_damaged_goes_on_without_a_probe(
    decode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [
        "train/cat/1.png",
        "train/cat/2.png",
        "train/dog/1.png",
        "train/dog/2.png",
        "test/cat/1.png",
        "test/dog/1.png",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(1, KINDS[4]) if "train" in name else b"nothing")
    out = tmp_path / "run"
    words = ["--cache", str(tmp_path / "cache"), "--set", f"data.decode={decode}", *WORDS]
    with pytest.warns(UserWarning, match="none of the test images of .* can be used: there is no probe"):
        assert call("run", "solar", str(tmp_path), "--out", str(out), *words) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert (metrics["final_accuracy"], metrics["seen"]) == (None, 4)
    assert "2 bad images skipped" in capsys.readouterr().out
    assert call("evaluate", str(out)) == 2
    assert "none of the test images" in capsys.readouterr().err


def test_a_folder_where_nothing_can_be_used_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(b"nothing")
    assert call("check", str(tmp_path)) == 2
    said = capsys.readouterr().err
    assert "the only image cannot be used: a.png: it is no image of a known format." in said
    assert call("check", str(tmp_path / "nowhere")) == 2
    assert "there is no folder" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"a\.png"):
        list(ocssl.images(tmp_path, bad_images="stop"))
