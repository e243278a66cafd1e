from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ocssl.data.decode.files import FolderFiles, silent
from ocssl.data.sources.clear import Clear100
from ocssl.data.sources.source import Collection, SourceImages
from ocssl.errors import OcsslError
from ocssl.settings import StreamSettings

CLASSES = ["BACKGROUND", "aquarium"]


def release(root: Path, train: str = "train_image_only") -> Path:
    """The published tree, with two classes."""
    for split, count in ((train, 2), ("test", 1)):
        for bucket in range(11):
            for name in CLASSES:
                folder = root / split / "labeled_images" / str(bucket) / name
                folder.mkdir(parents=True)
                for number in range(count):
                    (folder / f"{number}.jpg").write_bytes(f"{bucket} {name}".encode())
        (root / split / "class_names.txt").write_text("\n".join(CLASSES))
        (root / split / "labeled_metadata.json").write_text("{}")
        (root / split / "all_images").mkdir()
        (root / split / "all_images" / "x.jpg").write_bytes(b"x")
    return root


def find(root: Path | None) -> SourceImages:
    return Clear100().find(root, StreamSettings.model_validate({}), silent)


def contents(found: SourceImages, part: Collection | None) -> list[str]:
    assert part is not None
    assert isinstance(part.images, FolderFiles)
    assert part.labels is not None
    told = [
        f"{found.group_names['domain'][bucket]} {found.classes[label]}"
        for label, bucket in zip(part.labels, part.groups["domain"], strict=True)
    ]
    assert told == [part.images.read(row).decode() for row in range(len(part))]
    return told


def refused(root: Path | None, message: str) -> None:
    with pytest.raises(OcsslError, match=message) as caught:
        find(root)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("train", ["train_image_only", "train"])
def test_every_image_has_its_class_and_its_period(tmp_path: Path, train: str) -> None:
    found = find(release(tmp_path, train))
    assert found.classes == CLASSES
    assert found.group_names["domain"] == [str(bucket) for bucket in range(11)]
    expected = sorted(f"{bucket} {name}" for bucket in range(11) for name in CLASSES)
    assert sorted(contents(found, found.test)) == expected
    assert sorted(contents(found, found.train)) == sorted(2 * expected)


def test_labels_are_in_the_order_of_the_published_list(tmp_path: Path) -> None:
    root = release(tmp_path)
    for split in ("train_image_only", "test"):
        (root / split / "class_names.txt").write_text("\n".join(reversed(CLASSES)) + "\n")
    found = find(root)
    assert found.classes == CLASSES[::-1]
    contents(found, found.train)


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    refused(None, "--data DIR")
    refused(tmp_path, "has no folder train_image_only or train: unpack clear100-train-image-only.zip")
    root = release(tmp_path)
    shutil.rmtree(root / "test" / "labeled_images" / "3" / "aquarium")
    find(root)
    shutil.rmtree(root / "test" / "labeled_images" / "3")
    refused(root, "test/labeled_images lacks 1 of the 11 folders 0 to 10, the first of them 3")
    (root / "test" / "labeled_images" / "3").mkdir()
    refused(root, "test/labeled_images lacks 1 of the 11 folders with images, the first of them 3")
    (root / "test" / "class_names.txt").write_text("other")
    refused(root, "lists other classes")
    stray = root / "train_image_only" / "labeled_images" / "0" / "x.jpg"
    (root / "test" / "class_names.txt").unlink()
    stray.write_bytes(b"x")
    refused(root, "labeled_images/0/x.jpg in .* is in no class folder")
    stray.unlink()
    names = root / "train_image_only" / "class_names.txt"
    names.write_text("aquarium\naquarium")
    refused(root, "names a class twice")
    names.write_text("aquarium")
    refused(root, "BACKGROUND/0.jpg in .* is in no class folder")
    names.unlink()
    refused(root, r"class_names\.txt: No such file")
    shutil.rmtree(root / "test")
    refused(root, "has no folder test")
    (root / "test").mkdir()
    names.write_text("\n".join(CLASSES))
    shutil.rmtree(root / "train_image_only" / "labeled_images")
    refused(root, r"there is no folder .*labeled_images")


DAMAGES = ["gone", "junk", "link to itself", "link to its folder", "link out", "empty folder"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "place", ["", "test", "test/labeled_images", "test/labeled_images/10", "test/labeled_images/10/aquarium"]
)
def test_a_damaged_tree_is_found_or_refused(tmp_path: Path, place: str, damage: str) -> None:
    root = release(tmp_path / "clear")
    path = root / place if place else root / "train_image_only" / "class_names.txt"
    path.rename(tmp_path / "moved")
    if damage == "junk":
        path.write_bytes(b"\xff\0\n")
    elif damage == "empty folder":
        path.mkdir()
    elif damage.startswith("link"):
        path.symlink_to({"itself": path.name, "folder": ".", "out": tmp_path / "moved"}[damage.split()[-1]])
    try:
        find(root)
    except OcsslError as error:
        message = str(error)
        assert message.isprintable()
    else:
        assert "aquarium" in place or (damage, place) == ("link out", "")
