from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocssl.data.decode.files import FolderFiles, silent
from ocssl.data.sources.image_folder import ImageFolder
from ocssl.data.sources.source import Collection, SourceImages
from ocssl.errors import OcsslError
from ocssl.settings import StreamSettings


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def find(root: Path | None, **options: Any) -> SourceImages:
    return ImageFolder(**options).find(root, StreamSettings.model_validate({}), silent)


def named(found: SourceImages, part: Collection | None = None) -> list[tuple[str, str]]:
    """Each image's content, which is its name, with the name of its class."""
    part = part or found.train
    assert isinstance(part.images, FolderFiles)
    assert part.labels is not None
    assert part.labels.dtype == np.int64
    return [(part.images.read(row).decode(), found.classes[label]) for row, label in enumerate(part.labels)]


def refused(root: Path | None, message: str, **options: Any) -> None:
    with pytest.raises(OcsslError, match=message) as caught:
        find(root, **options)
    assert str(caught.value).isprintable()


def test_sub_folders_are_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    found = find(fill(tmp_path, "dog/1.png", "cat/2.png", "cat/deep/er/1.png", "Zebra/9.png", "notes.txt"))
    assert found.classes == ["Zebra", "cat", "dog"]
    expected = [("Zebra/9.png", "Zebra"), ("cat/2.png", "cat"), ("cat/deep/er/1.png", "cat"), ("dog/1.png", "dog")]
    assert named(found) == expected
    assert found.test is None
    assert found.class_order is None
    assert found.group_names == {}


@pytest.mark.parametrize("test", ["test", "val", "valid", "validation", "Test"])
def test_train_and_test_folders_make_the_split(tmp_path: Path, test: str) -> None:
    found = find(fill(tmp_path, "train/a/1.png", "train/b/2.png", f"{test}/b/3.png"))
    assert found.classes == ["a", "b"]
    assert named(found) == [("train/a/1.png", "a"), ("train/b/2.png", "b")]
    assert named(found, found.test) == [(f"{test}/b/3.png", "b")]


def test_test_goes_before_val_and_train_may_stand_alone(tmp_path: Path) -> None:
    found = find(fill(tmp_path / "a", "train/a/1.png", "val/a/2.png", "test/a/3.png"))
    assert named(found, found.test) == [("test/a/3.png", "a")]
    alone = find(fill(tmp_path / "b", "train/a/1.png", "train/b/2.png"))
    assert alone.test is None
    assert alone.classes == ["a", "b"]


def test_train_and_test_beside_others_are_folders_like_any_other_and_a_note_says_so(tmp_path: Path) -> None:
    found = find(fill(tmp_path / "a", "train/1.png", "test/2.png", "extra/3.png"))
    assert found.test is None
    assert found.classes == ["extra", "test", "train"]
    assert "a folder 'extra' beside train and test" in found.note
    mixed = find(fill(tmp_path / "b", "train/a/1.png", "test/a/2.png", "3.png"))
    assert mixed.test is None
    assert mixed.train.labels is None
    assert len(mixed.train) == 3
    assert "images beside train and test" in mixed.note


def test_images_without_levels_are_never_split(tmp_path: Path) -> None:
    for number, others in enumerate([[], ["extra/a/3.png"], ["3.png"]]):
        found = find(fill(tmp_path / str(number), "train/a/1.png", "test/a/2.png", *others), levels="none")
        assert found.test is None
        assert found.train.labels is None
        assert len(found.train) == 2 + len(others)
        assert not found.note


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert find(fill(tmp_path, "bus/1.png", "train/2.png", "tram/3.png")).classes == ["bus", "train", "tram"]


def test_images_without_folders_have_no_labels(tmp_path: Path) -> None:
    found = find(fill(tmp_path, "b.png", "a.png"))
    assert found.train.labels is None
    assert list(found.classes) == []
    assert found.train.images.read(0) == b"a.png"  # type: ignore[union-attr]
    assert find(fill(tmp_path, "deep/er/c.png"), levels="none").train.labels is None


@pytest.mark.parametrize("levels", ["domain/class", "class/domain"])
def test_levels_say_what_the_folders_are(tmp_path: Path, levels: str) -> None:
    pairs = [("cat", "photo"), ("cat", "sketch"), ("dog", "photo")]
    order = (lambda pair: pair) if levels == "class/domain" else (lambda pair: pair[::-1])
    root = fill(tmp_path, *("/".join([*order(pair), "x", "1.png"]) for pair in pairs))
    found = find(root, levels=levels)
    domains = found.group_names["domain"]
    rows = zip(named(found), found.train.groups["domain"], strict=True)
    got = {(label, domains[domain]) for (_, label), domain in rows}
    assert got == set(pairs)
    assert list(domains) == ["photo", "sketch"]
    assert list(found.classes) == ["cat", "dog"]


def test_domains_of_train_and_test_have_the_same_numbers(tmp_path: Path) -> None:
    found = find(fill(tmp_path, "train/b/1.png", "test/a/2.png", "test/b/3.png"), levels="domain")
    assert found.group_names["domain"] == ["a", "b"]
    assert found.test is not None
    assert found.train.groups["domain"].tolist() == [1]
    assert found.test.groups["domain"].tolist() == [0, 1]
    assert found.train.labels is None


def test_a_taxonomy_puts_classes_into_groups(tmp_path: Path) -> None:
    root = fill(tmp_path / "images", "train/bus/1.png", "train/cat/2.png", "train/dog/3.png", "test/dog/4.png")
    kinds = [{"group": "vehicle", "kingdom": "thing"}, {"group": "animal"}, {"group": "animal"}]
    path = tmp_path / "taxonomy.json"
    by_name = dict(zip(["bus", "cat", "dog"], kinds, strict=True))
    for content in (kinds, by_name, {name: kind["group"] for name, kind in by_name.items()}):
        path.write_text(json.dumps(content))
        found = find(root, taxonomy=str(path))
        assert found.group_names["taxonomy"] == ["animal", "vehicle"]
        assert found.train.groups["taxonomy"].tolist() == [1, 0, 0]
        assert found.test is not None
        assert found.test.groups["taxonomy"].tolist() == [0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON: "),
        ("[" * 10**5, "not JSON"),
        ("3", "is no taxonomy"),
        ('[{"group": "x"}]', "lists 1 classes, but there are 2"),
        ('{"cat": "x", "dogs": "y"}', r"says nothing about class 'dog': did you call it 'dogs'\?"),
        ('{"cat": "x", "dog": 3}', "no object and no text for class 'dog'"),
        ('[{"group": "x"}, {"groups": "x"}]', r"stream.level is 'group', .* did you mean 'groups'\?"),
        ('[{"group": "x"}, {"group": ["x"]}]', "which is no text"),
        ('[{"group": "x"}, {}]', "there are none"),
        ("1" * 10**5, "not JSON"),
        ("\ud800", "not a text file"),
    ],
)
def test_a_wrong_taxonomy_is_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    root = fill(tmp_path / "images", "cat/1.png", "dog/2.png")
    path = tmp_path / "taxonomy.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    refused(root, message, taxonomy=str(path))


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    refused(None, "folder:PATH")
    refused(tmp_path / "nowhere", "there is no folder .*nowhere")
    refused(fill(tmp_path / "a", "x/notes.txt"), "there are no images under")
    refused(tmp_path / "a" / "x" / "notes.txt", "is no folder")
    mixed = fill(tmp_path / "b", "1.png", "cat/2.png")
    refused(mixed, "images in 0 sub-folders only, not in 1", levels="class")
    refused(mixed, "unknown stream.levels 'clas': did you mean 'class'", levels="clas")
    refused(mixed, "can be there once", levels="class/class")
    refused(mixed, "these images have no classes", levels="none", taxonomy="x.json")
    refused(fill(tmp_path / "c", "cat/1.png", "dog/1.png"), "x.json: No such file", taxonomy="x.json")
    refused(
        fill(tmp_path / "d", "train/a/1.png", "test/a/2.png", "extra/a/3.png"),
        "a folder 'extra' beside train",
        levels="class",
    )
    refused(fill(tmp_path / "e", "train/a/1.png", "test/a/2.png", "3.png"), "images beside train", levels="class")
    refused(fill(tmp_path / "f", "train/a/1.png", "test/b/2.png"), "1 classes to test .* such as 'b'")
    refused(fill(tmp_path / "g", "train/a/1.png", "Train/a/2.png", "test/a/1.png"), "several folders called train")


NAME = st.sampled_from(["train", "test", "val", "a", "b", "Train", ".h", "é", "x.png"])


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    paths=st.lists(st.lists(NAME, max_size=4), max_size=6),
    links=st.lists(st.tuples(NAME, st.sampled_from([".", "..", "a", "train/a", "nothing", "/dev/null"])), max_size=2),
    levels=st.sampled_from(["auto", "none", "class", "domain/class", "class/domain", "", "x"]),
)
def test_any_tree_is_found_or_refused(
    tmp_path_factory: pytest.TempPathFactory, paths: list[list[str]], links: list[tuple[str, str]], levels: str
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for number, path in enumerate(paths):
        folder = root.joinpath(*path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(b"x")
        except (FileExistsError, NotADirectoryError):
            continue
    for name, target in links:
        if not os.path.lexists(root / name):
            (root / name).symlink_to(target)
    try:
        found = find(root, levels=levels)
    except OcsslError as error:
        message = str(error)
        assert message.isprintable()
    else:
        for part in filter(None, (found.train, found.test)):
            assert len(part) > 0
            assert part.labels is None or (len(part.labels) == len(part) and part.labels.max() < len(found.classes))
            assert all(len(own) == len(part) for own in part.groups.values())


def test_a_single_folder_is_no_class(tmp_path: Path) -> None:
    found = find(fill(tmp_path, "2024/may/1.png", "2024/june/2.png"))
    assert found.train.labels is None
    assert find(tmp_path, levels="class").classes == ["2024"]


def test_links_to_the_folder_itself_lead_inside(tmp_path: Path) -> None:
    root = fill(tmp_path / "photos", "a/1.png")
    (root / "a" / "up").symlink_to("..")
    (root / "self").symlink_to(root)
    (root / "over").symlink_to(tmp_path)
    said = {fault.name: fault.reason for fault in find(root).left_out}
    inside = "link to a folder inside"
    assert said == {"a/up": inside, "self": inside, "over": "link out of the folder"}
