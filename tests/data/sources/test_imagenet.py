from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import REAL_DATA
from ocssl.data.decode.arrow_files import ParquetFiles
from ocssl.data.decode.files import FolderFiles, silent
from ocssl.data.sources.imagenet import ImageNet100, class_list, imagenet_classes
from ocssl.data.sources.source import Collection, SourceImages
from ocssl.errors import OcsslError
from ocssl.settings import StreamSettings

SHARED = REAL_DATA
KNOWN = list(imagenet_classes())
FEW = ["n02099601", "n01440764", "n15075141"]


@pytest.fixture
def few(tmp_path: Path) -> str:
    """A file with three classes, one of them by its number."""
    path = tmp_path / "few.txt"
    path.write_text("n02099601\n\n 0 \nn15075141\r\n")
    return str(path)


def find(root: Path | None, classes: str) -> SourceImages:
    return ImageNet100(classes=classes).find(root, StreamSettings.model_validate({}), silent)


def tree(root: Path, wnids: list[str]) -> Path:
    for split, count in (("train", 3), ("val", 1)):
        for wnid in wnids:
            folder = root / split / wnid
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{wnid}_{number}.JPEG").write_bytes(wnid.encode())
    return root


def contents(part: Collection | None) -> list[tuple[str, int]]:
    assert part is not None
    assert isinstance(part.images, FolderFiles | ParquetFiles)
    assert part.labels is not None
    return [(part.images.read(row).decode(), int(label)) for row, label in enumerate(part.labels)]


def refused(root: Path | None, message: str, classes: str = "ac") -> None:
    with pytest.raises(OcsslError, match=message) as caught:
        find(root, classes)
    assert str(caught.value).isprintable()


def test_the_thousand_classes_are_in_the_order_of_their_ids() -> None:
    assert len(KNOWN) == 1000
    assert sorted(set(KNOWN)) == KNOWN
    assert (KNOWN[0], KNOWN[-1]) == ("n01440764", "n15075141")
    assert all(re.fullmatch(r"n\d{8}", wnid) for wnid in KNOWN)
    names = imagenet_classes()
    known = {
        1: "goldfish",
        207: "golden retriever",
        281: "tabby",
        388: "giant panda",
        555: "fire engine",
        954: "banana",
    }
    assert {number: names[KNOWN[number]] for number in known} == known


def test_the_authors_classes_are_drawn_with_seed_42() -> None:
    drawn = random.Random(42).sample(range(1000), 100)
    assert class_list("ac", KNOWN) == [KNOWN[number] for number in drawn]
    assert drawn[:5] == [654, 114, 25, 759, 281]


def test_the_usual_list_has_a_hundred_classes() -> None:
    cmc = class_list("cmc", KNOWN)
    assert len(set(cmc)) == 100
    assert (cmc[0], cmc[-1]) == ("n02869837", "n02090622")
    assert len(set(cmc) & set(class_list("ac", KNOWN))) < 30


def test_the_names_agree_with_another_source() -> None:
    path = SHARED / "mini-imagenet-64" / "taxonomy.json"
    if not path.is_file():
        pytest.skip("needs shared/data/mini-imagenet-64, which is not here")
    names = imagenet_classes()
    for entry in json.loads(path.read_text()):
        assert names[entry["wnid"]] == entry["name"].split(",")[0]


def test_class_folders_are_numbered_as_listed(tmp_path: Path, few: str) -> None:
    root = tree(tmp_path / "imagenet", [*FEW, "n01443537"])
    (root / "train" / "n02099601" / "notes.txt").write_text("")
    found = find(root, few)
    assert found.classes == ["n02099601 golden retriever", "n01440764 tench", "n15075141 toilet tissue"]
    assert found.class_order is None
    assert sorted(contents(found.train)) == sorted((wnid, FEW.index(wnid)) for wnid in FEW for _ in range(3))
    assert sorted(contents(found.test)) == sorted((wnid, FEW.index(wnid)) for wnid in FEW)


def test_all_hundred_classes_are_found_where_the_archive_has_them(tmp_path: Path) -> None:
    tree(tmp_path / "ILSVRC" / "Data" / "CLS-LOC", class_list("ac", KNOWN))
    found = find(tmp_path, "ac")
    assert (len(found.train), len(found.test or ()), len(found.classes)) == (300, 100, 100)


def table(path: Path, labels: list[int], names: list[str] | None = None, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": KNOWN[label].encode() if 0 <= label < 1000 else b"?", "path": ""} for label in labels]
    rows = pa.table({"image": images, "label": labels, **columns})
    if names is not None:
        metadata = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        rows = rows.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    pq.write_table(rows, path, row_group_size=2)


def test_parquet_files_have_numbers_among_the_thousand(tmp_path: Path, few: str) -> None:
    names = [f"name {n}" for n in range(1000)]
    table(tmp_path / "data" / "train-00000-of-00002.parquet", [5, 999, 207, 0, 207], names)
    table(tmp_path / "data" / "train-00001-of-00002.parquet", [0, 1], names)
    table(tmp_path / "data" / "validation-00000-of-00001.parquet", [999, 207, 3, 0], names)
    table(tmp_path / "data" / "test-00000-of-00001.parquet", [-1, -1], names)
    found = find(tmp_path, few)
    expected = [("n15075141", 2), ("n02099601", 0), ("n01440764", 1), ("n02099601", 0), ("n01440764", 1)]
    assert contents(found.train) == expected
    assert contents(found.test) == [("n15075141", 2), ("n02099601", 0), ("n01440764", 1)]


def test_wrong_parquet_files_are_one_sentence(tmp_path: Path, few: str) -> None:
    path = tmp_path / "p" / "train-0.parquet"
    table(path, [0, 207, 999])
    refused(tmp_path / "p", "has no files validation-", few)
    refused(path, "has no files validation-", few)
    table(tmp_path / "p" / "validation-0.parquet", [0, 207])
    refused(tmp_path / "p", "lacks 1 of the 3 classes with images, the first of them n15075141", few)
    table(path, [0, 207, 1000])
    refused(tmp_path / "p", "are not those of ImageNet's 1000 classes", few)
    table(path, [0, 1, 2], ["a", "b", "c"])
    refused(tmp_path / "p", "are not those of ImageNet's 1000 classes", few)
    pq.write_table(pa.table({"image": [b"x"], "label": ["tench"]}), path)
    refused(tmp_path / "p", "no column label with numbers", few)
    pq.write_table(pa.table({"image": [b"x"]}), path)
    refused(tmp_path / "p", "no column label with numbers", few)
    path.write_bytes(b"PAR1")
    refused(tmp_path / "p", "cannot be read as parquet", few)


def test_wrong_folders_are_one_sentence(tmp_path: Path, few: str) -> None:
    refused(None, "--data DIR", few)
    refused(tmp_path / "nowhere", "there is no folder", few)
    root = tree(tmp_path / "i", FEW[:2])
    refused(root, "lacks 1 of the 3 class folders, the first of them n15075141", few)
    refused(root, "lacks 100 of the 100 class folders, the first of them n03769881")
    (root / "train" / FEW[2]).mkdir()
    refused(root, "lacks 1 of the 3 classes with images, the first of them n15075141", few)
    (root / "train" / FEW[2] / "x.JPEG").write_bytes(b"x")
    refused(root, r"i/val lacks 1 of the 3", few)
    for path in sorted((root / "val").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"x")
    refused(root, "i/val are not sorted into folders", few)
    (root / "val" / "ILSVRC2012_val_00000001.JPEG").unlink()
    (root / "val").rmdir()
    refused(root, r"there is no folder .*i/val", few)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n02099602", "class 1 in .* is no WordNet id of ImageNet: did you mean n0209960"),
        ("0\n1000", "'1000', class 2 in .*"),
        ("0\nn01440764", "lists n01440764 twice"),
        ("\n", "lists no classes"),
        ("²", "is no WordNet id"),
        ("9" * 5000, "is no WordNet id"),
    ],
)
def test_a_wrong_list_of_classes_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "list.txt").write_text(text)
    refused(tmp_path, message, str(tmp_path / "list.txt"))


def test_an_unknown_list_is_one_sentence(tmp_path: Path) -> None:
    refused(tmp_path, "stream.classes is 'acc': it must be ac, cmc or a file", "acc")
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe")
    refused(tmp_path, "not a text file in UTF-8", str(tmp_path / "list.txt"))
