"""`ocssl embed`: what is in the file, what a second call does, and that two encoders are never mixed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import call, messy, photos, saved
from PIL import Image

import ocssl
from conftest import ROOT
from ocssl.embed import embed as module
from ocssl.embed.image_files import file_of
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
    assert "40 vectors are mapped" in said
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
    assert (code, "0 of them new" in said) == (0, True)
    assert all(Path(path).is_file() for path in read_vectors(out).path)
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
    assert "all images were embedded again, so no vector is mapped" in said
    code, _, err = call(capsys, "embed", new, few, "-o", f"{few}.parquet", "--align")
    assert code == 2
    assert "only 15 different images" in err


def test_update_keeps_mapped_vectors_and_refresh_replaces_them(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OVERLAP", 0)
    folder, out = photos(tmp_path / "photos", 120), tmp_path / "v.parquet"
    old, new = saved(tmp_path / "old"), saved(tmp_path / "new", seed=1)
    assert call(capsys, "embed", old, folder, "-o", out)[0] == 0
    assert call(capsys, "embed", new, folder, "-o", out, "--align")[0] == 0
    for more in ([], ["--update"]):
        code, said, _ = call(capsys, "embed", new, folder, "-o", out, *more)
        assert (code, "up to date" in said) == (0, True)
    photos(folder, 2, first=120)
    assert "2 of them new" in call(capsys, "embed", new, folder, "-o", out, "--update")[1]
    assert sum(was is not None for was in read_vectors(out).aligned) == 40
    assert "40 of them new" in call(capsys, "embed", new, folder, "-o", out, "--refresh")[1]


def test_a_plain_call_on_a_file_that_is_not_up_to_date_says_what_differs(tmp_path: Path, capsys: Capsys) -> None:
    folder, run, out = photos(tmp_path / "photos", 5), saved(tmp_path / "run"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    content = out.read_bytes()

    def refused(words: list[object], said: str) -> None:
        code, _, err = call(capsys, "embed", run, *words, "-o", out)
        assert code == 2
        assert said in err
        assert "--update" in err or "another file" in err
        assert err.count("\n") == 1
        assert out.read_bytes() == content
        assert not list(tmp_path.glob(".v*"))

    refused([folder, "--dtype", "float16"], "it holds float32, not float16")
    photos(folder, 2, first=5)
    refused([folder], "2 images are new or changed")
    (folder / "even" / "000.png").unlink()
    refused([folder], "1 image is gone")
    refused([photos(tmp_path / "other", 5)], "name another file")
    folder.rename(tmp_path / "moved")
    refused([f"parquet:{table_of(tmp_path / 'a.parquet')}"], "name another file")


def table_of(path: Path, first: int = 0) -> Path:
    """Five pictures in a parquet file."""
    images = sorted(photos(path.parent / f"pictures-{first}", 5, first).rglob("*.png"))
    pq.write_table(pa.table({"image": [{"bytes": image.read_bytes(), "path": None} for image in images]}), path)
    return path


def test_another_data_set_does_not_replace_the_vectors_of_the_first(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, out = saved(tmp_path / "run"), tmp_path / "v.parquet"
    first, second = table_of(tmp_path / "a.parquet"), table_of(tmp_path / "b.parquet", 5)
    assert call(capsys, "embed", run, f"parquet:{first}", "-o", out)[0] == 0
    content = out.read_bytes()
    for mode in ([], ["--update"]):
        code, _, err = call(capsys, "embed", run, f"parquet:{second}", "-o", out, *mode)
        assert (code, "name another file" in err) == (2, True)
        for word in ("parquet:a.parquet", "parquet:./a.parquet"):
            code, said, _ = call(capsys, "embed", run, word, "-o", out, *mode)
            assert (code, "up to date" in said) == (0, True)
    assert out.read_bytes() == content
    assert all(path.startswith(f"parquet:{first}/") for path in read_vectors(out).path)


@pytest.mark.parametrize("kind", ["parquet", "wds"])
def test_a_changed_file_of_a_data_set_is_embedded_again_and_its_others_are_not(
    kind: str, tmp_path: Path, capsys: Capsys
) -> None:
    shards, run, out = tmp_path / "shards", saved(tmp_path / "run"), tmp_path / "v.parquet"
    shards.mkdir()

    def write(name: str, first: int) -> None:
        if kind == "parquet":
            table_of(shards / f"{name}.parquet", first)
            shutil.rmtree(shards / f"pictures-{first}")
            return
        with tarfile.open(shards / f"{name}.tar", "w") as tar:
            for n, path in enumerate(sorted(photos(tmp_path / f"p{first}", 5, first).rglob("*.png"))):
                tar.add(path, f"{n}.png")

    write("one", 0)
    write("two", 5)
    assert call(capsys, "embed", run, f"{kind}:{shards}", "-o", out)[0] == 0
    before = read_vectors(out)
    assert "up to date" in call(capsys, "embed", run, f"{kind}:{shards}", "-o", out, "--update")[1]
    write("two", 10)
    code, said, _ = call(capsys, "embed", run, f"{kind}:{shards}", "-o", out, "--update")
    assert (code, "5 of them new" in said) == (0, True), said
    after = read_vectors(out)
    assert sorted(after.path) == sorted(before.path)
    assert len({*before.sha256} & {*after.sha256}) == 5


def test_files_of_one_name_in_two_folders_are_told_apart_from_their_changed_selves(
    tmp_path: Path, capsys: Capsys
) -> None:
    run, out = saved(tmp_path / "run"), tmp_path / "v.parquet"
    for n, folder in enumerate((tmp_path / "set", tmp_path / "set" / "data")):
        folder.mkdir()
        shutil.move(table_of(tmp_path / "a.parquet", 5 * n), folder / "a.parquet")
    assert call(capsys, "embed", run, f"parquet:{tmp_path / 'set'}", "-o", out)[0] == 0
    assert len({*read_vectors(out).path}) == 10
    for folder in (tmp_path / "set", tmp_path / "set" / "data"):
        shutil.move(table_of(tmp_path / "a.parquet", 20), folder / "a.parquet")
        code, said, _ = call(capsys, "embed", run, f"parquet:{tmp_path / 'set'}", "-o", out, "--update")
        assert (code, "10 of them new" in said) == (0, True), said
    assert len({*read_vectors(out).sha256}) == 5


def test_images_are_found_under_the_stored_path_whatever_their_names(tmp_path: Path, capsys: Capsys) -> None:
    folder, run, out = photos(tmp_path / "photos", 2), saved(tmp_path / "run"), tmp_path / "v.parquet"
    image = (folder / "even" / "000.png").read_bytes()
    names = [b"bad\\xff.png", b"bad\xff.png", b"a\\nb.png", b"a\nb.png", "é\u200b.png".encode()]
    for name in names:
        (folder / os.fsdecode(name)).write_bytes(image)
    code, said, _ = call(capsys, "embed", run, folder, "-o", out)
    assert code == 0
    assert "7 vectors" in said
    paths = read_vectors(out).path
    assert sorted(map(file_of, paths)) == sorted(map(os.fsencode, folder.rglob("*.png")))
    assert [path for path in paths if not Path(path).is_file()] == [f"file://{folder}/bad%FF.png"]
    page = tmp_path / "page.html"
    assert call(capsys, "search", out, folder / os.fsdecode(names[1]), "--html", page)[0] == 0
    assert "no picture" not in page.read_text()
    assert "up to date" in call(capsys, "embed", run, folder, "-o", out, "--update")[1]


def test_a_folder_that_is_empty_leaves_the_vectors_as_they_are(tmp_path: Path, capsys: Capsys) -> None:
    folder, run, out = photos(tmp_path / "photos", 3), saved(tmp_path / "run"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    content = out.read_bytes()
    shutil.rmtree(folder)
    folder.mkdir()
    for broken in (False, True):
        if broken:
            (folder / "broken.png").write_bytes(b"no image")
        for mode in ("--update", "--refresh", ""):
            code, _, err = call(capsys, "embed", run, folder, "-o", out, *[mode][: len(mode)])
            assert code == 2
            assert err.count("\n") == 1
            assert out.read_bytes() == content
            assert not list(tmp_path.glob(".v*"))


def test_a_folder_of_broken_images_only_gives_no_file(tmp_path: Path, capsys: Capsys) -> None:
    folder, run = tmp_path / "photos", saved(tmp_path / "run")
    folder.mkdir()
    (folder / "broken.png").write_bytes(b"no image")
    before = sorted(tmp_path.rglob("*"))
    code, _, err = call(capsys, "embed", run, folder, "-o", tmp_path / "v.parquet")
    assert code == 2
    assert "can be used (1 damaged)" in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_broken_image_that_has_not_changed_is_not_tried_again(tmp_path: Path, capsys: Capsys) -> None:
    folder, run, out = messy(tmp_path / "photos"), saved(tmp_path / "run"), tmp_path / "v.parquet"
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    before = out.stat().st_mtime_ns
    for mode in ([], ["--update"], ["--refresh"]):
        code, said, _ = call(capsys, "embed", run, folder, "-o", out, *mode)
        assert (code, "up to date" in said) == (0, True), (mode, said)
    assert out.stat().st_mtime_ns == before
    photos(folder, 1, first=10)
    code, said, _ = call(capsys, "embed", run, folder, "-o", out, "--update")
    assert "1 of them new" in said
    assert "skipped 4" in said
    Image.new("RGB", (9, 9), "red").save(folder / "broken.jpg")
    code, said, _ = call(capsys, "embed", run, folder, "-o", out, "--update")
    assert "1 of them new" in said
    assert "skipped 3" in said
    assert "up to date" in call(capsys, "embed", run, folder, "-o", out)[1]


def test_what_the_file_says_of_broken_images_is_bounded(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_SKIPPED", 200)
    folder, run, out = photos(tmp_path / "photos", 3), saved(tmp_path / "run"), tmp_path / "v.parquet"
    for n in range(20):
        (folder / f"broken-{n}.png").write_bytes(b"no image")
    assert call(capsys, "embed", run, folder, "-o", out)[0] == 0
    assert len(read_vectors(out).facts["skipped"]) <= 2


def test_the_run_is_found_from_another_directory(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "photos", 3)
    saved(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "embed", "run", "photos", "-o", "v.parquet")[0] == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call(capsys, "search", "../v.parquet", "../photos/even/000.png")[0] == 0
