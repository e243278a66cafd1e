from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import REAL_DATA
from ocssl.data.decode.arrow_files import ParquetFiles
from ocssl.data.decode.files import silent
from ocssl.data.sources.parquet_hub import Parquet
from ocssl.data.sources.source import Collection, SourceImages
from ocssl.errors import OcsslError
from ocssl.settings import StreamSettings

SHARED = REAL_DATA
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(
    path: Path, count: int, names: dict[str, list[str]] | None = None, image: str = "image", **columns: Any
) -> Path:
    """Rows whose image is their number in the file, with Hugging Face's names of numbers."""
    images = pa.array([{"bytes": b"%d" % n, "path": f"{n}.jpg"} for n in range(count)], IMAGE)
    table = pa.table({image: images, **columns})
    if names is not None:
        features = {column: {"names": own, "_type": "ClassLabel"} for column, own in names.items()}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=3)
    return path


def find(root: Path | None, **options: Any) -> SourceImages:
    return Parquet(**options).find(root, StreamSettings.model_validate({}), silent)


def rows(part: Collection | None) -> list[int]:
    assert part is not None
    assert isinstance(part.images, ParquetFiles)
    return [int(part.images.read(row)) for row in range(len(part))]


def classes(found: SourceImages, name: str) -> Sequence[str]:
    part = getattr(found, name)
    assert part.labels is not None
    return [found.classes[label] for label in part.labels]


def refused(root: Path | None, message: str, **options: Any) -> None:
    with pytest.raises(OcsslError, match=message) as caught:
        find(root, **options)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("inner", ["", "data"])
def test_names_of_files_make_the_split(tmp_path: Path, inner: str) -> None:
    write(tmp_path / inner / "train-00001-of-00002.parquet", 2, label=[1, 0])
    write(tmp_path / inner / "train-00000-of-00002.parquet", 3, label=[0, 1, 2])
    write(tmp_path / inner / "test-00000-of-00001.parquet", 2, label=[2, 1])
    write(tmp_path / inner / "validation-00000-of-00001.parquet", 1, label=[0])
    found = find(tmp_path)
    assert rows(found.train) == [0, 1, 2, 0, 1]
    assert classes(found, "train") == ["0", "1", "2", "1", "0"]
    assert classes(found, "test") == ["2", "1"]


def test_other_files_are_all_to_learn_from(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", 1, label=[7])
    write(tmp_path / "a.parquet", 2, label=[9, 7])
    found = find(tmp_path)
    assert rows(found.train) == [0, 1, 0]
    assert found.test is None
    assert found.classes == ["7", "9"]
    assert found.train.labels is not None
    assert found.train.labels.tolist() == [1, 0, 0]
    assert rows(find(tmp_path / "b.parquet").train) == [0]


def test_a_test_split_without_labels_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", 2, label=[0, 1])
    write(tmp_path / "test.parquet", 2, label=[-1, -1])
    assert find(tmp_path).test is None
    write(tmp_path / "validation.parquet", 1, label=[1])
    assert classes(find(tmp_path), "test") == ["1"]
    assert rows(find(tmp_path, label="none").test) == [0, 1]


def test_names_of_numbers_come_from_the_file_and_classes_without_images_are_left_out(tmp_path: Path) -> None:
    names = {"label": ["ant", "bee", "cat", "dog"], "where": ["sea", "land"]}
    write(tmp_path / "x.parquet", 3, names, label=[3, 1, 3], where=[1, 0, 1])
    found = find(tmp_path, domain="where")
    assert found.classes == ["bee", "dog"]
    assert classes(found, "train") == ["dog", "bee", "dog"]
    assert found.group_names == {"domain": ["sea", "land"]}
    assert found.train.groups["domain"].tolist() == [1, 0, 1]
    kinds = [{"group": "insect"}, {"group": "insect"}, {"group": "pet"}, {"group": "pet"}]
    (tmp_path / "taxonomy.json").write_text(json.dumps(kinds))
    found = find(tmp_path, taxonomy=str(tmp_path / "taxonomy.json"))
    assert found.group_names == {"taxonomy": ["insect", "pet"]}
    assert found.train.groups["taxonomy"].tolist() == [1, 0, 1]


def test_text_labels_are_numbered_by_name(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", 3, **{"class": ["dog", "ant", "dog"]})
    write(tmp_path / "test.parquet", 1, **{"class": ["ant"]})
    found = find(tmp_path)
    assert found.classes == ["ant", "dog"]
    assert classes(found, "train") == ["dog", "ant", "dog"]
    assert classes(found, "test") == ["ant"]


def test_columns_are_guessed_or_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", 2, image="photo", fine_label=[0, 1], coarse=[5, 5])
    assert classes(find(path), "train") == ["0", "1"]
    assert classes(find(path, label="coarse"), "train") == ["5", "5"]
    assert find(path, label="none").train.labels is None
    bare = write(tmp_path / "y.parquet", 2)
    assert find(bare).train.labels is None
    two = write(tmp_path / "z.parquet", 2, image="left", right=pa.array([b"a", b"b"]))
    refused(two, "several columns with images .left, right.: name one with stream.image")
    assert rows(find(two, image="left").train) == [0, 1]
    both = write(tmp_path / "w.parquet", 2, image="img", thumbnail=pa.array([b"a", b"b"]))
    assert rows(find(both).train) == [0, 1]


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    refused(None, "parquet:PATH")
    refused(tmp_path / "nowhere", "there is no folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "there are no parquet files")
    names = {"label": ["a", "b"]}
    path = write(tmp_path / "x.parquet", 2, names, label=[0, 2])
    refused(path, "has the number 2, but only 2 names")
    refused(path, "no column 'labels': did you mean 'label'", label="labels")
    refused(path, "no column 'domain'", domain="domain", label="none")
    refused(path, "no column 'picture'", image="picture", label="none")
    refused(path, "these images have no classes", label="none", taxonomy="x")
    refused(write(tmp_path / "n.parquet", 2, label=[0, None]), "1 rows with no value")
    refused(write(tmp_path / "m.parquet", 2, label=[0, -1]), "labels below 0: set stream.label to none")
    refused(write(tmp_path / "f.parquet", 2, label=[0.5, 1.0]), "is double: it must be integers or text")
    refused(write(tmp_path / "e.parquet", 0, label=pa.array([], pa.int64())), "has no rows")
    pq.write_table(pa.table({"label": [1]}), tmp_path / "l.parquet")
    refused(tmp_path / "l.parquet", r"no column with images \(label\)")
    write(tmp_path / "s" / "train.parquet", 2, label=[0, 1])
    write(tmp_path / "s" / "test.parquet", 2, label=[0, 3])
    refused(tmp_path / "s", "1 classes to test that are not among those to learn, such as '3'")
    write(tmp_path / "s" / "test.parquet", 2, label=["0", "1"])
    refused(tmp_path / "s", "text in one split and integers in another")
    os.mkfifo(tmp_path / "pipe.parquet")
    refused(tmp_path / "pipe.parquet", "not a regular file")


NAMED = '{"info": {"features": {"label": {"names": %s}}}}'
METADATA = st.sampled_from(
    ["{", "[]", "{}", '{"info": 1}', "[" * 10**5, NAMED % "[1]", NAMED % '"ab"', NAMED % '["a", "b"]']
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(
        st.sampled_from(["train", "test", "validation", "x", ".train", "train.bak"]), max_size=4, unique=True
    ),
    labels=st.lists(st.sampled_from([0, 1, 2, -1, 10**12, "a", None, 0.5]), min_size=1, max_size=4),
    metadata=METADATA,
    junk=st.binary(max_size=30),
)
def test_any_files_are_found_or_refused(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], labels: list[Any], metadata: str, junk: bytes
) -> None:
    root = tmp_path_factory.mktemp("files")
    for number, name in enumerate(files):
        try:
            table = pa.table({"image": [b"x"] * len(labels), "label": labels[number:] + labels[:number]})
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            (root / f"{name}.parquet").write_bytes(junk)
            continue
        pq.write_table(table.replace_schema_metadata({"huggingface": metadata}), root / f"{name}.parquet")
    try:
        found = find(root)
    except OcsslError as error:
        message = str(error)
        assert message.isprintable()
    else:
        assert found.train.labels is not None
        assert np.array_equal(np.unique(found.train.labels), np.arange(len(found.classes)))


def test_pacs_has_seven_classes_in_four_domains() -> None:
    if not (SHARED / "pacs-96").is_dir():
        pytest.skip("needs shared/data/pacs-96, which is not here")
    found = find(SHARED / "pacs-96", domain="domain")
    assert len(found.train) == 9991
    assert found.test is None
    assert found.classes == ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
    assert found.group_names["domain"] == ["photo", "art_painting", "cartoon", "sketch"]
    assert np.bincount(found.train.groups["domain"]).tolist() == [1670, 2048, 2344, 3929]


def test_mini_imagenet_has_a_taxonomy() -> None:
    root = SHARED / "mini-imagenet-64"
    if not root.is_dir():
        pytest.skip("needs shared/data/mini-imagenet-64, which is not here")
    found = find(root, taxonomy=str(root / "taxonomy.json"), level="kingdom")
    assert (len(found.train), len(found.test or ())) == (20_000, 5_000)
    entries = json.loads((root / "taxonomy.json").read_text())
    assert found.classes == [entry["wnid"] for entry in entries]
    kingdoms = found.group_names["taxonomy"]
    assert found.train.labels is not None
    for label, group in set(zip(found.train.labels.tolist(), found.train.groups["taxonomy"].tolist(), strict=True)):
        assert kingdoms[group] == entries[label]["kingdom"]
    with pytest.raises(OcsslError, match="did you mean 'kingdom'"):
        find(root, taxonomy=str(root / "taxonomy.json"), level="kingdoms")
