from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocssl.data.decode.files import FolderFiles, silent
from ocssl.data.sources import inat
from ocssl.data.sources.inat import INaturalist
from ocssl.data.sources.source import Collection, SourceImages
from ocssl.errors import OcsslError
from ocssl.settings import StreamSettings

SPECIES = [
    ("Animalia", "Insecta", "Odonata", "Anax imperator"),
    ("Plantae", "Magnoliopsida", "Rosales", "Rosa canina"),
    ("Animalia", "Aves", "Passeriformes", "Parus major"),
    ("Animalia", "Insecta", "Diptera", "Musca domestica"),
]


def annotations(split: str, count: int) -> dict[str, Any]:
    """In the layout of the competition: image numbers differ from positions, and annotations stand in another order."""
    categories = [
        {"id": number, "name": name, "common_name": "", "supercategory": "", "kingdom": kingdom, "phylum": "x"}
        | {"class": group, "order": order, "family": "x", "genus": "x", "specific_epithet": "x"}
        for number, (kingdom, group, order, name) in enumerate(SPECIES)
    ]
    images, labels = [], []
    for number, (kingdom, group, order, name) in enumerate(SPECIES):
        folder = f"{number:05d}_{kingdom}_x_{group}_{order}_{name.replace(' ', '_')}"
        for copy in range(count):
            ident = 1000 + 10 * number + copy
            place = {"file_name": f"{split}/{folder}/{copy}.jpg", "width": 8, "height": 8, "latitude": float("nan")}
            images.append({"id": ident, **place, "license": 0, "rights_holder": "x", "date": "x"})
            labels.append({"id": ident, "image_id": ident, "category_id": number})
    return {"info": {}, "images": images, "categories": categories, "annotations": labels[::-1], "licenses": []}


def release(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    for split, count in (("train_mini", 3), ("val", 1)):
        content = annotations(split, count)
        (root / f"{split}.json").write_text(json.dumps(content))
        for image in content["images"]:
            path = root / image["file_name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image["file_name"].encode())
    return root


def find(root: Path | None, **options: Any) -> SourceImages:
    return INaturalist(**options).find(root, StreamSettings.model_validate({}), silent)


def check(found: SourceImages, part: Collection | None, count: int) -> None:
    """Every image's label and group are those that its path, which is its content, says."""
    assert part is not None
    assert isinstance(part.images, FolderFiles)
    assert part.labels is not None
    assert len(part) == count
    for row in range(count):
        _, _, _, group, order, *_ = part.images.read(row).decode().split("_", 8)[-7:]
        assert found.classes[part.labels[row]] == order
        assert found.group_names["taxonomy"][part.groups["taxonomy"][row]] == group


def refused(root: Path | None, message: str, **options: Any) -> None:
    with pytest.raises(OcsslError, match=message) as caught:
        find(root, **options)
    assert str(caught.value).isprintable()


def edit(root: Path, split: str, change: Any) -> Path:
    """The release with something in a file of annotations changed."""
    content = annotations(split, 3 if split == "train_mini" else 1)
    replaced = change(content)
    (root / f"{split}.json").write_text(json.dumps(content if replaced is None else replaced))
    return root


def test_orders_are_labels_and_classes_are_groups(tmp_path: Path) -> None:
    found = find(release(tmp_path))
    assert found.classes == ["Diptera", "Odonata", "Passeriformes"]
    assert found.group_names == {"taxonomy": ["Aves", "Insecta"]}
    check(found, found.train, 9)
    check(found, found.test, 3)


def test_another_kingdom_has_its_own_labels(tmp_path: Path) -> None:
    found = find(release(tmp_path), kingdom="Plantae")
    assert found.classes == ["Rosales"]
    check(found, found.train, 3)
    refused(tmp_path, "unknown stream.kingdom 'Animals': did you mean 'Animalia'", kingdom="Animals")


@pytest.mark.parametrize(
    "name", ["../x.jpg", "/etc/passwd", "train_mini/../../x.jpg", "a\\b.jpg", "", "a//b.jpg", "a\0b", "\ud800"]
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    root = release(tmp_path)
    refused(
        edit(root, "train_mini", lambda c: c["images"][0].update(file_name=name)), "which is no place in its folder"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: [], "has no list 'categories'"),
        (lambda c: c.pop("annotations") and None, "has no list 'annotations'"),
        (lambda c: c.update(images={"a": 1}), "has no list 'images'"),
        (lambda c: c["images"][0].update(id="7"), "entry 0 of 'images' lacks id or file_name"),
        (lambda c: c["images"][0].update(file_name=7), "entry 0 of 'images' lacks id or file_name"),
        (
            lambda c: c["categories"][2].pop("order") and None,
            "entry 2 of 'categories' lacks id or kingdom, class, order",
        ),
        (lambda c: c["annotations"].append(3), "of 'annotations' lacks image_id or category_id"),
        (lambda c: c["annotations"].append(c["annotations"][0]), "'annotations' has image_id 1032 twice"),
        (lambda c: c["annotations"][0].update(category_id=99), "annotates image 1032, but does not list it"),
        (lambda c: c["annotations"][0].update(image_id=99), "annotates image 99, but does not list it"),
        (lambda c: c["annotations"].clear(), "has no images of Animalia"),
        (lambda c: c["annotations"][0].update(category_id=True), "lacks image_id or category_id"),
    ],
)
def test_wrong_annotations_are_one_sentence(tmp_path: Path, change: Any, message: str) -> None:
    refused(edit(release(tmp_path), "train_mini", change), message)


def test_an_order_that_is_only_tested_is_refused(tmp_path: Path) -> None:
    root = edit(release(tmp_path), "val", lambda c: c["categories"][0].update(order="Mantodea"))
    refused(root, "1 classes to test .* such as 'Mantodea'")


def test_what_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(None, "--data DIR")
    refused(tmp_path, r"train_mini\.json: No such file")
    root = release(tmp_path / "whole")
    (root / "val").rename(root / "elsewhere")
    refused(root, r"none of the first 3 images of val\.json is there, such as .*: unpack val\.tar\.gz")
    (root / "val").symlink_to(tmp_path)
    refused(root, "leads out of")
    (root / "val").unlink()
    (root / "elsewhere").rename(root / "val")
    next((root / "val").rglob("*Aves*/0.jpg")).unlink()
    find(root)  # one that is gone is found to be bad when it is read
    monkeypatch.setattr(inat, "MOST_BYTES", 100)
    refused(root, "larger than")
    (root / "train_mini.json").write_text("{")
    refused(root, "not JSON")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["images", "categories", "annotations", "id", "kingdom"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(["images", "categories", "annotations"]),
    place=st.integers(0, 3),
    junk=JSON,
    whole=st.booleans(),
)
def test_any_annotations_are_found_or_refused(tmp_path: Path, key: str, place: int, junk: Any, whole: bool) -> None:
    root = tmp_path if (tmp_path / "val.json").exists() else release(tmp_path)

    def change(content: dict[str, Any]) -> Any:
        if whole:
            return junk
        content[key][place] = content[key][place] | junk if isinstance(junk, dict) else junk
        return None

    try:
        find(edit(root, "train_mini", change))
    except OcsslError as error:
        message = str(error)
        assert message.isprintable()
