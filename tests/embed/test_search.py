"""Search: the nearest are the nearest, two encoders are never compared, pages open offline, damage is one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from made import call, messy, photos, saved
from PIL import Image

import ocssl
from ocssl.embed import index as module
from ocssl.embed.vectors import read_vectors
from ocssl.errors import DataError, OcsslError, SettingError

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, capsys: Capsys) -> Path:
    """A folder with `photos`, the learner `run`, and its `vectors.parquet`."""
    run, folder = saved(tmp_path / "run"), messy(tmp_path / "photos")
    assert call(capsys, "embed", run, folder, "-o", tmp_path / "vectors.parquet")[0] == 0
    return tmp_path


def test_the_nearest_are_those_of_a_literal_loop(place: Path) -> None:
    index = ocssl.Index.load(place / "vectors.parquet")
    vectors = read_vectors(place / "vectors.parquet")
    found = index.search(vectors.vector[:4], top=7)
    unit = [v.astype(float) / np.linalg.norm(v.astype(float)) for v in vectors.vector]
    for row, matches in enumerate(found):
        similar = [float(np.dot(unit[row], other)) for other in unit]
        best = sorted(similar, reverse=True)[:7]
        np.testing.assert_allclose([match.similarity for match in matches], best, atol=1e-5)
        for match in matches:
            assert vectors.path[match.row] == match.path
            assert vectors.id[match.row] == match.id
            assert match.similarity == pytest.approx(similar[match.row], abs=1e-5)


def test_images_of_any_kind_find_themselves(place: Path) -> None:
    index = ocssl.Index.load(place / "vectors.parquet")
    paths = sorted((place / "photos").rglob("0*.png"))
    opened = [Image.open(path) for path in paths]
    for given in (paths, [str(path) for path in paths], opened):
        assert [matches[0].path for matches in index.search(given, top=1)] == [str(path) for path in paths]
    assert index.search([], top=3) == []
    assert index.search(index, top=1)[0][0].similarity == pytest.approx(1, abs=1e-5)
    assert len(index.search([paths[0]], top=10**6)[0]) == len(index)


def test_the_command_prints_a_table_or_json_and_writes_a_page(place: Path, capsys: Capsys) -> None:
    images = [place / "photos" / "even" / "000.png", place / "photos" / "odd" / "001.png"]
    code, said, _ = call(capsys, "search", place / "vectors.parquet", *images, "--top", 3)
    assert code == 0
    assert said.count("1.000") == 2
    page = place / "page.html"
    code, said, _ = call(capsys, "search", place / "vectors.parquet", *images, "--top", 3, "--json", "--html", page)
    assert code == 0
    found = json.loads(said)
    assert [len(rows) for rows in found] == [3, 3]
    assert [rows[0]["path"] for rows in found] == [str(image) for image in images]
    assert found[0][0].keys() == {"path", "similarity"}
    text = page.read_text()
    assert not re.search(r"https?:|<script|url\(|src=\"(?!data:)", text)
    assert text.count("data:image/jpeg") == 8
    shutil.rmtree(place / "photos" / "even")
    assert call(capsys, "search", place / "vectors.parquet", images[1], "--html", page)[0] == 0
    assert "no picture" in page.read_text()


def test_names_of_files_are_text_on_the_page(tmp_path: Path, capsys: Capsys) -> None:
    folder, run = photos(tmp_path / "photos", 3), saved(tmp_path / "run")
    evil = folder / "even" / "<script>alert(1)<&lt;.png"
    (folder / "even" / "000.png").rename(evil)
    assert call(capsys, "embed", run, folder, "-o", tmp_path / "v")[0] == 0
    assert call(capsys, "search", tmp_path / "v", evil, "--html", tmp_path / "page.html")[0] == 0
    assert "<script" not in (tmp_path / "page.html").read_text()


def test_near_duplicates_and_outliers(tmp_path: Path, capsys: Capsys) -> None:
    folder, run = photos(tmp_path / "photos", 12), saved(tmp_path / "run")
    shutil.copy(folder / "even" / "000.png", folder / "copy.png")
    with Image.open(folder / "odd" / "001.png") as image:
        image.convert("RGB").save(folder / "again.bmp")
    assert call(capsys, "embed", run, folder, "-o", tmp_path / "v")[0] == 0
    code, said, _ = call(capsys, "search", tmp_path / "v", "--duplicates", "--threshold", 0.999999, "--json")
    assert code == 0
    found = json.loads(said)
    groups = [{Path(row["path"]).name for row in group} for group in found["duplicates"]]
    assert sorted(groups, key=sorted) == [{"000.png", "copy.png"}, {"001.png", "again.bmp"}]
    assert len(found["outliers"]) == 14
    unit = ocssl.Index.load(tmp_path / "v").unit.double()
    similar = (unit @ unit.T).fill_diagonal_(-2).sort(dim=1, descending=True).values[:, :10].mean(dim=1)
    assert [row["similarity"] for row in found["outliers"]] == pytest.approx(sorted(similar.tolist()), abs=1e-5)
    assert call(capsys, "search", tmp_path / "v", "--duplicates", "--html", tmp_path / "page.html")[0] == 0
    assert "outliers" in (tmp_path / "page.html").read_text()


def test_many_copies_are_one_group(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", 2)
    index = made_index(np.ones((100, 4), np.float32), str(folder))
    assert [len(group) for group in index.duplicates()] == [100]


def test_a_chain_of_similar_images_is_no_group_and_every_member_is_like_the_first() -> None:
    angles = np.deg2rad([0, 10, 20, 30, 40, 90, 93])
    index = made_index(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    groups = index.duplicates(np.cos(np.deg2rad(11)))
    assert [[match.row for match in group] for group in groups] == [[1, 0, 2], [3, 4], [5, 6]]
    assert all(match.similarity >= np.cos(np.deg2rad(11)) for group in groups for match in group)


def test_a_group_has_more_images_than_the_neighbours_that_are_known() -> None:
    from ocssl.embed.index import NEAREST

    noise = np.random.default_rng(0).normal(size=(3 * NEAREST, 8)).astype(np.float32)
    matrix = np.concatenate([np.eye(8, dtype=np.float32)[:1] + 0.01 * noise, np.eye(8, dtype=np.float32)[1:3]])
    assert [len(group) for group in made_index(matrix).duplicates()] == [3 * NEAREST]


def test_copies_of_a_file_stay_together_whatever_their_vectors() -> None:
    index = made_index(np.eye(3, dtype=np.float32))
    index.rows.sha256[2] = index.rows.sha256[0]
    assert [[match.row for match in group] for group in index.duplicates()] == [[0, 2]]


def made_index(matrix: Any, folder: str = "x", name: str = "0" * 32) -> ocssl.Index:
    from ocssl.embed.vectors import Vectors

    count = len(matrix)
    numbers = np.arange(count)
    paths, digests = [f"{folder}/{n}" for n in range(count)], [f"{n:064x}" for n in range(count)]
    return ocssl.Index(Vectors(numbers, paths, digests, matrix, [name] * count, numbers, numbers, [None] * count))


def test_vectors_of_two_encoders_are_refused_by_every_command(place: Path, capsys: Capsys) -> None:
    other = saved(place / "other", seed=1)
    image = place / "photos" / "even" / "000.png"
    mine, its = place / "vectors.parquet", place / "its.parquet"
    assert call(capsys, "embed", other, place / "photos", "-o", its)[0] == 0
    both = pa.concat_tables([pq.read_table(mine), pq.read_table(its)])
    pq.write_table(both.replace_schema_metadata(pq.read_table(mine).schema.metadata), place / "mixed.parquet")
    tried = [
        ["search", mine, image, "--encoder", other],
        ["search", mine, "--duplicates", "--encoder", other],
        ["search", place / "mixed.parquet", image],
        ["search", place / "mixed.parquet", "--duplicates"],
        ["embed", other, place / "photos", "-o", mine],
        ["embed", other, place / "photos", "-o", mine, "--update"],
        ["embed", other, place / "photos", "-o", place / "mixed.parquet", "--update"],
        ["embed", other, place / "photos", "-o", place / "mixed.parquet", "--align"],
    ]
    for words in tried:
        code, _, err = call(capsys, *words)
        assert code == 2, words
        assert err.count("\n") == 1
        assert "encoder" in err
    with pytest.raises(SettingError, match="cannot be compared"):
        ocssl.Index.load(mine).search(ocssl.Index.load(its))
    with pytest.raises(SettingError, match="cannot be compared"):
        ocssl.Index.load(mine, encoder=other).search([image])


def test_a_run_that_has_learned_since_is_refused(place: Path, capsys: Capsys) -> None:
    learner = ocssl.Learner.load(place / "run")
    learner.partial_fit(torch.zeros(10, 3, 8, 8, dtype=torch.uint8))
    learner.save(place / "run")
    code, _, err = call(capsys, "search", place / "vectors.parquet", place / "photos" / "even" / "000.png")
    assert code == 2
    assert "--refresh" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vectors.parquet"], "--duplicates"),
        (["vectors.parquet", "photos/even/000.png", "--duplicates"], "not both"),
        (["vectors.parquet", "photos/even/000.png", "--top", "0"], "top is 0"),
        (["vectors.parquet", "--duplicates", "--threshold", "2"], "threshold is 2"),
        (["vectors.parquet", "none.png"], "none.png"),
        (["vectors.parquet", "photos/broken.jpg"], "broken.jpg"),
        (["none.parquet", "photos/even/000.png"], "there is no none.parquet"),
        (["photos/even/000.png", "photos/even/000.png"], "cannot be read as parquet"),
        (["vectors.parquet", "photos/even/000.png", "--html", "photos"], "it is a folder"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, place: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    code, _, err = call(capsys, "search", *words)
    assert code == 2, err
    assert said in err
    assert err.count("\n") == 1


def changed(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


@pytest.mark.parametrize(
    "fault", ["nan", "null", "sha256", "encoder", "column", "length", "type", "facts", "version", "id"]
)
def test_a_file_of_somebody_else_is_checked(fault: str, place: Path) -> None:
    table = pq.read_table(place / "vectors.parquet")
    count = len(table)
    flat = table["vector"].combine_chunks().flatten().to_numpy().copy()
    wrong: dict[str, Any] = {
        "nan": lambda: changed(table, "vector", pa.FixedSizeListArray.from_arrays(pa.array(flat * np.nan), 16)),
        "null": lambda: changed(table, "path", pa.array([None] * count, pa.string())),
        "sha256": lambda: changed(table, "sha256", pa.array(["x"] * count)),
        "encoder": lambda: changed(table, "encoder", pa.array(["\x1b[31m"] * count)),
        "column": lambda: table.drop_columns(["id"]),
        "length": lambda: changed(table, "vector", pa.array([[1.0]] * count)),
        "type": lambda: changed(table, "id", pa.array(["x"] * count)),
        "facts": lambda: table.replace_schema_metadata({"ocssl": "[" * 5000}),
        "id": lambda: changed(table, "id", pa.array([2**63 - 1] * count)),
        "version": lambda: table.replace_schema_metadata({"ocssl": '{"version": 99}'}),
    }
    pq.write_table(wrong[fault](), place / "wrong.parquet")
    with pytest.raises(DataError, match=r"damaged|no file of vectors|version 99"):
        ocssl.Index.load(place / "wrong.parquet")


def test_vectors_that_are_not_as_long_as_their_encoders_are_refused(place: Path, capsys: Capsys) -> None:
    table = pq.read_table(place / "vectors.parquet")
    three = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(3 * len(table), np.float32)), 3)
    pq.write_table(changed(table, "vector", three), place / "vectors.parquet")
    before = (place / "vectors.parquet").read_bytes()
    photos(place / "photos", 2, first=900)
    for words in (
        ("search", place / "vectors.parquet", place / "photos" / "even" / "000.png"),
        ("embed", place / "run", place / "photos", "-o", place / "vectors.parquet", "--update"),
        ("embed", place / "run", place / "photos", "-o", place / "vectors.parquet", "--refresh"),
    ):
        code, _, err = call(capsys, *words)
        assert code == 2, err
        assert "have 3 numbers, and those of its encoder have 16" in err
        assert err.splitlines()[-1].startswith("ocssl: ")
    assert (place / "vectors.parquet").read_bytes() == before


def test_few_queries_in_many_vectors_are_exact_and_build_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    exact = made_index(matrix).search(matrix[:50], top=10)
    monkeypatch.setattr(module, "MOST_EXACT", 100)
    monkeypatch.setitem(__import__("sys").modules, "usearch.index", None)
    assert made_index(matrix).search(matrix[:50], top=10) == exact


def test_above_a_million_usearch_finds_nearly_all_of_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch", reason="the extra `search` is not installed")
    matrix = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    exact = made_index(matrix).search(matrix[:50], top=10)
    monkeypatch.setattr(module, "MOST_EXACT", 100)
    monkeypatch.setattr(module, "MANY", 20)
    found = made_index(matrix).search(matrix[:50], top=10)
    shared = [{m.row for m in one} & {m.row for m in other} for one, other in zip(exact, found, strict=True)]
    assert np.mean([len(rows) for rows in shared]) > 9
    assert found[0][0].similarity == pytest.approx(1, abs=1e-5)


def test_without_usearch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EXACT", 10)
    monkeypatch.setattr(module, "MANY", 1)
    monkeypatch.setitem(__import__("sys").modules, "usearch.index", None)
    with pytest.raises(OcsslError, match="pip install"):
        made_index(np.ones((20, 4), np.float32)).search(np.ones((2, 4), np.float32))


def test_neighbours_are_computed_once_for_duplicates_and_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    index = made_index(np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))
    calls, nearest = [], ocssl.Index._nearest
    monkeypatch.setattr(ocssl.Index, "_nearest", lambda self, *given: calls.append(1) or nearest(self, *given))
    index.duplicates()
    index.outliers()
    assert len(calls) == 1


def test_an_index_without_vectors_finds_nothing() -> None:
    from ocssl.embed.vectors import Vectors

    none = np.empty(0, np.int64)
    index = ocssl.Index(Vectors(none, [], [], np.empty((0, 4), np.float32), [], none, none, []))
    assert index.search(["cat.jpg", "dog.jpg"]) == [[], []]
    assert index.search(np.ones(4, np.float32)) == [[]]
    assert index.search(np.ones((3, 4), np.float32)) == [[], [], []]
    assert index.search(made_index(np.ones((2, 4), np.float32))) == [[], []]
    assert index.duplicates() == index.outliers() == []


def test_an_encoder_that_has_learned_on_is_never_compared(place: Path) -> None:
    image = place / "photos" / "even" / "000.png"

    def learn(encoder: ocssl.embed.image_encoder.ImageEncoder) -> None:
        for weight in encoder.network.parameters():
            weight.add_(1)

    late = ocssl.load_encoder(place / "run")
    index = ocssl.Index.load(place / "vectors.parquet", late)
    before = index.search([image])
    learn(late)
    assert index.search([image]) == before  # by the encoder as it was checked
    early = ocssl.load_encoder(place / "run")
    index = ocssl.Index.load(place / "vectors.parquet", early)
    learn(early)
    assert index.search([image]) == before
    with pytest.raises(SettingError, match="cannot be compared"):
        ocssl.Index.load(place / "vectors.parquet", early)


def test_vectors_of_any_float_type_are_queries() -> None:
    matrix = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    index, tensor = made_index(matrix), torch.from_numpy(matrix)
    for given in (matrix.astype(np.float64), matrix.astype(np.float16), tensor.bfloat16(), tensor.requires_grad_()):
        assert [found[0].row for found in index.search(given, top=1)] == list(range(20))
