"""`ocssl embed`: what is in the file, what a second call does, and that two encoders are never mixed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from made import call, messy, photos, saved
from PIL import Image

import ocssl
from conftest import ROOT
from ocssl.embed import embed as module
from ocssl.embed.vectors import read_vectors

sys.path.append(str(ROOT / "tests" / "faults"))
from durable import command

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)


def test_every_image_has_a_row_with_its_vector_and_checksum(tmp_path: Path, capsys: Capsys) -> None:
    folder, run, out = messy(tmp_path / "photos"), saved(tmp_path / "run"), tmp_path / "vectors.parquet"
    code, said, _ = call(capsys, "embed", run, folder, "-o", out)
    assert code == 0
    assert "18 vectors" in said
    assert "skipped 4" in said
    columns = pq.read_table(out).to_pydict()
    assert [*columns][:5] == ["id", "path", "sha256", "vector", "encoder"]
    assert columns["path"] == sorted(columns["path"])
    encoder = ocssl.load_encoder(run)
    assert set(columns["encoder"]) == {encoder.fingerprint}
    assert len(set(columns["id"])) == 18
    for path, digest, vector in zip(columns["path"], columns["sha256"], columns["vector"], strict=True):
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
        np.testing.assert_allclose(np.array(vector), encoder([path]).numpy()[0], rtol=1e-5, atol=1e-7)
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "run", "vectors.parquet"}


def test_half_precision_is_half_precision_of_the_same_vectors(tmp_path: Path, capsys: Capsys) -> None:
    folder, run = photos(tmp_path / "photos", 5), saved(tmp_path / "run")
    for dtype in ("float16", "float32"):
        assert call(capsys, "embed", run, folder, "-o", tmp_path / dtype, "--dtype", dtype)[0] == 0
    half, whole = (read_vectors(tmp_path / dtype).vector for dtype in ("float16", "float32"))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, whole.astype(np.float16))


def test_vectors_beyond_half_precision_are_refused_and_leave_no_file(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run, out = photos(tmp_path / "photos", 5), saved(tmp_path / "run"), tmp_path / "v.parquet"
    encode = ocssl.embed.image_encoder.ImageEncoder.encode
    monkeypatch.setattr("ocssl.embed.image_encoder.ImageEncoder.encode", lambda self, x: encode(self, x) + 70_000)
    code, _, said = call(capsys, "embed", run, folder, "-o", out, "--dtype", "float16")
    assert code == 2
    assert "use --dtype float32" in said
    assert not out.exists()


def test_a_second_call_does_nothing_and_says_so(tmp_path: Path, capsys: Capsys) -> None:
    folder, run, out = photos(tmp_path / "photos", 5), saved(tmp_path / "run"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    before = out.stat()
    for more in ([], ["--update"], ["--refresh"]):
        code, said, _ = call(capsys, "embed", run, folder, "-o", out, *more)
        assert code == 0
        assert "up to date" in said
    assert out.stat().st_mtime_ns == before.st_mtime_ns


def test_update_embeds_new_and_changed_images_only(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run, out = photos(tmp_path / "photos", 20), saved(tmp_path / "run"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    before = read_vectors(out)
    photos(folder, 3, first=20)
    changed, gone = folder / "even" / "000.png", folder / "odd" / "001.png"
    Image.new("RGB", (9, 9), "red").save(changed)
    gone.unlink()
    encoded: list[int] = []
    encode = ocssl.embed.image_encoder.ImageEncoder.encode
    monkeypatch.setattr(
        "ocssl.embed.image_encoder.ImageEncoder.encode", lambda self, x: encoded.append(len(x)) or encode(self, x)
    )
    code, said, _ = call(capsys, "embed", run, folder, "-o", out, "--update")
    assert code == 0, said
    assert "22 vectors" in said
    assert "4 of them new, 1 removed" in said
    assert sum(n for n in encoded if n > 1) == 4  # one more, of one image, for the length of vectors
    monkeypatch.undo()
    after = read_vectors(out)
    assert sorted(after.path) == sorted(str(path) for path in folder.rglob("*.png"))
    ids = dict(zip(before.path, before.id, strict=True))
    for path, number, vector in zip(after.path, after.id, after.vector, strict=True):
        assert path not in ids or ids[path] == number
        np.testing.assert_allclose(vector, ocssl.load_encoder(run)([path]).numpy()[0], rtol=1e-5, atol=1e-7)
    assert len(set(after.id.tolist())) == 22


def test_another_encoder_is_refused_until_it_refreshes_or_aligns(tmp_path: Path, capsys: Capsys) -> None:
    folder, out = photos(tmp_path / "photos", 30), tmp_path / "v.parquet"
    old, new = saved(tmp_path / "old"), saved(tmp_path / "new", seed=1)
    assert call(capsys, "embed", old, folder, "-o", out)[0] == 0
    content = out.read_bytes()
    for mode in ([], ["--update"]):
        code, _, said = call(capsys, "embed", new, folder, "-o", out, *mode)
        assert code == 2
        assert "--refresh" in said
        assert said.count("\n") == 1
    assert out.read_bytes() == content
    assert call(capsys, "embed", new, folder, "-o", out, "--refresh")[0] == 0
    fresh = tmp_path / "fresh.parquet"
    assert call(capsys, "embed", new, folder, "-o", fresh)[0] == 0
    assert out.read_bytes() == fresh.read_bytes()


def test_align_maps_what_it_does_not_embed_and_says_its_error(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OVERLAP", 0)
    folder, out = photos(tmp_path / "photos", 120), tmp_path / "v.parquet"
    old, new = saved(tmp_path / "old"), saved(tmp_path / "new", seed=1)
    assert call(capsys, "embed", old, folder, "-o", out)[0] == 0
    gone = folder / "odd" / "001.png"
    gone.unlink()
    code, said, _ = call(capsys, "embed", new, folder, "-o", out, "--align")
    assert code == 0, said
    assert "on 16 others its error is 0." in said
    found, encoder = read_vectors(out), ocssl.load_encoder(new)
    assert len(found) == 120
    assert found.encoders == [encoder.fingerprint]
    aligned = [path for path, was in zip(found.path, found.aligned, strict=True) if was is not None]
    assert str(gone) in aligned
    assert len(aligned) == 40  # 16 dimensions: five times as many are embedded
    assert found.facts["alignment"]["held_out"] == 16
    code, said, _ = call(capsys, "embed", new, folder, "-o", out, "--align")
    assert (code, "up to date" in said) == (0, True)
    code, said, _ = call(capsys, "embed", new, folder, "-o", out, "--refresh")
    assert "39 of them new, 1 removed" in said
    assert not any(read_vectors(out).aligned)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none", "photos", "-o", "v"], "there is no folder none"),
        (["run", "none", "-o", "v"], "none"),
        (["run", "synthetic", "-o", "v"], "no encoded images"),
        (["run", "photos", "-o", "v", "--refresh"], "there is no v to refresh"),
        (["run", "photos", "-o", "v", "--update", "--align"], "exclude each other"),
        (["run", "photos", "-o", "v", "--workers", "0"], "at least 1"),
        (["run", "photos", "-o", "photos/even/000.png", "--update"], "cannot be read as parquet"),
        (["run", "bare", "-o", "v"], "no images"),
        (["run", "photos", "-o", "photos/even/000.png/v"], "cannot write"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    words: list[str], said: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "photos", 2)
    (tmp_path / "bare").mkdir()
    saved(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, _, err = call(capsys, "embed", *words)
    assert code == 2, err
    assert said in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_another_folder_does_not_replace_the_vectors_of_the_first(tmp_path: Path, capsys: Capsys) -> None:
    first, second = photos(tmp_path / "a", 3), photos(tmp_path / "b", 3)
    run, out = saved(tmp_path / "run"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, first, "-o", out)[0] == 0
    code, _, err = call(capsys, "embed", run, second, "-o", out, "--update")
    assert code == 2
    assert "name another file" in err
    first.rename(tmp_path / "moved")
    code, said, _ = call(capsys, "embed", run, tmp_path / "moved", "-o", out, "--update")
    assert (code, "up to date" in said) == (0, True)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("mode", "kills"), [("new", 5), ("--update", 2), ("--refresh", 2), ("--align", 2)])
def test_killed_at_any_moment_it_gives_the_same_file(
    mode: str, kills: int, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, known = photos(tmp_path / "photos", 25), {"encoder__name": "resnet10"}  # of the package: not of the tests
    run, other = saved(tmp_path / "run", **known), saved(tmp_path / "other", seed=1, **known)
    names = ["wanted", *map(str, range(kills))]
    for name in names:
        (tmp_path / name).mkdir()
        if mode != "new":
            first = run if mode == "--update" else other
            assert call(capsys, "embed", first, folder, "-o", tmp_path / name / "v.parquet")[0] == 0
    if mode == "--update":
        photos(folder, 12, first=25)
    words = ["embed", str(run), str(folder), "--quiet", *([] if mode == "new" else [mode]), "-o"]
    encode = ocssl.embed.image_encoder.ImageEncoder.encode

    def stopping(self: Any, pixels: Any) -> Any:
        if len(pixels) > 1:
            raise KeyboardInterrupt
        return encode(self, pixels)

    monkeypatch.setattr("ocssl.embed.image_encoder.ImageEncoder.encode", stopping)
    for name in names:  # leaves the plan, with its small chunks, to other processes
        assert call(capsys, *words, tmp_path / name / "v.parquet")[0] == 130
    code, calls = command([*words, str(tmp_path / "wanted" / "v.parquet")], tmp_path / "wanted")
    assert code == 0
    wanted = (tmp_path / "wanted" / "v.parquet").read_bytes()
    places = np.random.default_rng(len(mode)).choice(np.arange(1, len(calls) + 1), kills, replace=False)
    for name, place in zip(names[1:], places.tolist(), strict=True):
        out = tmp_path / name / "v.parquet"
        code, before = command([*words, str(out)], out.parent, place)
        assert code == -signal.SIGKILL
        assert command([*words, str(out)], out.parent)[0] == 0, before[-1:]
        assert out.read_bytes() == wanted, (place, before[-1:])
        assert os.listdir(out.parent) == ["v.parquet"], (place, before[-1:])


def test_what_was_embedded_before_a_stop_is_not_embedded_again(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run, out = photos(tmp_path / "photos", 30), saved(tmp_path / "run"), tmp_path / "v.parquet"
    encode, count = ocssl.embed.image_encoder.ImageEncoder.encode, [0]

    def stopping(self: object, pixels: object) -> object:
        count[0] += len(pixels)  # type: ignore[arg-type]
        if count[0] > 20:
            raise KeyboardInterrupt
        return encode(self, pixels)  # type: ignore[arg-type]

    monkeypatch.setattr("ocssl.embed.image_encoder.ImageEncoder.encode", stopping)
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 130
    assert not out.exists()
    count[0] = -100
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    assert count[0] + 100 < 20
    assert len(read_vectors(out)) == 30


def copies(folder: Path, count: int, times: int) -> Path:
    """Different pictures, each there several times."""
    for path in sorted(photos(folder, count).rglob("*.png")):
        for n in range(1, times):
            shutil.copy(path, path.with_stem(f"{path.stem}-{n}"))
    return folder


def test_align_fits_and_measures_on_different_images_only(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OVERLAP", 1000)
    folder, few = copies(tmp_path / "photos", 25, 3), copies(tmp_path / "few", 15, 3)
    old, new = saved(tmp_path / "old"), saved(tmp_path / "new", seed=1)
    for place in (folder, few):
        assert call(capsys, "embed", old, place, "-o", f"{place}.parquet")[0] == 0
    code, said, _ = call(capsys, "embed", new, folder, "-o", f"{folder}.parquet", "--align")
    assert code == 0, said
    facts = read_vectors(Path(f"{folder}.parquet")).facts["alignment"]
    assert facts["fitted"] + facts["held_out"] == 25
    code, _, err = call(capsys, "embed", new, few, "-o", f"{few}.parquet", "--align")
    assert code == 2
    assert "only 15 different images" in err
