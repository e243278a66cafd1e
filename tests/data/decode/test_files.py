from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.data.decode import files as folder
from ocssl.data.decode.files import FolderFiles, Packed, list_images
from ocssl.errors import DataError, printable


def fill(root: Path, *names: str | bytes) -> Path:
    """Files with these names, each with its name as content."""
    for name in names:
        raw = name.encode() if isinstance(name, str) else name
        path = os.path.join(os.fsencode(root), raw)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(raw)
    return root


def opened(root: Path) -> FolderFiles:
    return FolderFiles(root, list_images(root))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9)), st.data())
def test_packed_names_are_the_names(names: list[bytes], data: st.DataObject) -> None:
    packed = Packed(names)
    assert list(packed) == names
    rows = data.draw(st.lists(st.integers(0, len(names) - 1))) if names else []
    assert list(packed.take(np.array(rows, dtype=np.int64))) == [names[row] for row in rows]
    with pytest.raises(IndexError):
        packed[len(names)]
    with pytest.raises(IndexError):
        packed[-1]


def test_the_digest_of_packed_names_tells_where_they_end() -> None:
    assert Packed([b"ab", b"c"]).digest() != Packed([b"a", b"bc"]).digest()
    assert Packed([b"ab", b"c"]).digest() == Packed([b"ab", b"c"]).digest()


@given(st.binary())
@settings(deadline=None)
def test_a_printable_name_is_one_line_of_text(name: bytes) -> None:
    text = printable(name)
    assert text.isprintable()
    assert text.encode().decode() == text


def test_images_are_listed_by_the_bytes_of_their_names(tmp_path: Path) -> None:
    names = ["b/2.jpg", "b/10.jpg", "a.png", "B/x.JPEG", "b.d/y.webp", "b/c/d/e.tiff", "ä/1.png"]
    fill(tmp_path, *names, "notes.txt", "b/readme", "c/.jpg", "d/x.jpg.part")
    assert list(list_images(tmp_path)) == sorted(name.encode() for name in names)


def test_listing_does_not_depend_on_the_order_of_the_file_system(tmp_path: Path) -> None:
    names = [f"{n % 7}/{n}.png" for n in range(60)]
    there, back = fill(tmp_path / "there", *names), fill(tmp_path / "back", *reversed(names))
    assert list(list_images(there)) == list(list_images(back))


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, ".a.png", ".cache/b.png", "c/.d/e.png", "c/f.png", "__MACOSX/c/._f.png")
    assert list(list_images(tmp_path)) == [b"c/f.png"]


def test_only_the_folders_asked_for_are_listed(tmp_path: Path) -> None:
    fill(tmp_path, "train/a/1.png", "train/b/2.png", "val/a/3.png", "train/ab/4.png")
    assert list(list_images(tmp_path, under=["train/a", "val/a"])) == [b"train/a/1.png", b"val/a/3.png"]


def test_progress_never_goes_beyond_its_total(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    fill(tmp_path, "a/1.png", "b/c/2.png")
    list_images(tmp_path, lambda what, done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 4), (4, 4)]


def test_names_that_are_no_text_can_be_read_and_shown(tmp_path: Path) -> None:
    fill(tmp_path, b"caf\xe9/\xff\xfe.png", "line\nbreak.png")
    files = opened(tmp_path)
    assert [files.read(row) for row in range(2)] == [b"caf\xe9/\xff\xfe.png", b"line\nbreak.png"]
    assert files.name(0) == "caf\\xe9/\\xff\\xfe.png"
    assert files.name(1) == "line\\nbreak.png"
    assert files.fingerprint()


def test_a_link_to_a_file_inside_is_an_image_and_one_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, ".annex/x.png", "a/1.png")
    (tmp_path / "a" / "2.png").symlink_to("../.annex/x.png")
    (tmp_path / "a" / "gone.png").symlink_to("nothing.png")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to("a")
    files = opened(tmp_path)
    assert list(files.names) == [b"a/1.png", b"a/2.png", b"a/gone.png"]
    assert files.read(1) == b".annex/x.png"
    with pytest.raises(FileNotFoundError):
        files.read(2)


@pytest.mark.parametrize("target", ["outside", "outside/1.png"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    fill(tmp_path, "outside/1.png", "in/2.png")
    (tmp_path / "in" / "way.png").symlink_to(tmp_path / target)
    with pytest.raises(DataError, match=r"way\.png leads out of .*in: copy"):
        list_images(tmp_path / "in")
    with pytest.raises(DataError, match="leads out"):
        list_images(tmp_path / "in", under=["way.png"])


def test_a_folder_that_is_a_link_itself_is_listed(tmp_path: Path) -> None:
    fill(tmp_path, "real/1.png")
    (tmp_path / "link").symlink_to("real")
    files = opened(tmp_path / "link")
    assert [files.read(row) for row in range(len(files))] == [b"real/1.png"]


def test_a_pipe_called_like_an_image_is_left_out_and_reading_one_does_not_wait(tmp_path: Path) -> None:
    fill(tmp_path, "1.png")
    os.mkfifo(tmp_path / "2.png")
    files = opened(tmp_path)
    assert list(files.names) == [b"1.png"]
    (tmp_path / "1.png").unlink()
    os.mkfifo(tmp_path / "1.png")
    with pytest.raises(OSError, match="not a regular file"):
        files.read(0)


@pytest.mark.parametrize(
    "name", [b"../secret.png", b"a/../../secret.png", b"/etc/passwd", b"a\0.png", b"..", b"", b"a"]
)
def test_a_name_that_is_no_file_in_the_folder_is_not_read(tmp_path: Path, name: bytes) -> None:
    fill(tmp_path, "secret.png", "in/a/1.png")
    with pytest.raises(OSError):
        FolderFiles(tmp_path / "in", Packed([name])).read(0)


def test_a_link_out_is_not_read_where_proc_is_missing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "in/1.png", "out/2.png")
    (tmp_path / "in" / "2.png").symlink_to(tmp_path / "out" / "2.png")

    def without_proc(path: bytes, inner: Callable[[bytes], bytes] = os.readlink) -> bytes:
        if path.startswith(b"/proc"):
            raise FileNotFoundError(path)
        return inner(path)

    for way in (os.readlink, without_proc):
        monkeypatch.setattr(os, "readlink", way)
        files = FolderFiles(tmp_path / "in", Packed([b"1.png", b"2.png"]))
        assert files.read(0) == b"in/1.png"
        with pytest.raises(OSError, match="leads out of its folder"):
            files.read(1)


def test_a_neighbour_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    fill(tmp_path, "in/1.png", "inside/2.png")
    with pytest.raises(OSError, match="leads out"):
        FolderFiles(tmp_path / "in", Packed([b"../inside/2.png"])).read(0)


def test_a_link_that_was_put_in_later_is_not_followed_out(tmp_path: Path) -> None:
    files = opened(fill(tmp_path / "in", "a/1.png"))
    fill(tmp_path, "out/1.png")
    shutil.rmtree(tmp_path / "in" / "a")
    (tmp_path / "in" / "a").symlink_to(tmp_path / "out")
    with pytest.raises(OSError, match="leads out"):
        files.read(0)


def test_a_file_that_vanished_or_is_too_large_is_an_os_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened(fill(tmp_path, "1.png", "22.png"))
    monkeypatch.setattr(folder, "MOST_BYTES", 5)
    assert files.read(0) == b"1.png"
    with pytest.raises(OSError, match="larger than"):
        files.read(1)
    (tmp_path / "1.png").unlink()
    with pytest.raises(FileNotFoundError):
        files.read(0)
    assert files.fingerprint()


def test_a_missing_folder_and_a_file_in_its_place_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        list_images(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot list the folder .*1\.png: not a directory"):
        list_images(fill(tmp_path, "1.png") / "1.png")


def test_a_subset_has_these_rows_in_this_order(tmp_path: Path) -> None:
    files = opened(fill(tmp_path, *(f"{n}.png" for n in range(5))))
    for known in (False, True):
        part = files.subset(np.array([3, 0, 3]))
        assert [part.read(row) for row in range(len(part))] == [b"3.png", b"0.png", b"3.png"]
        assert part.fingerprint() == FolderFiles(tmp_path, Packed([b"3.png", b"0.png", b"3.png"])).fingerprint()
        if not known:
            files.fingerprint(times=True)


def test_the_fingerprint_is_of_names_and_sizes_and_if_wanted_of_times(tmp_path: Path) -> None:
    fill(tmp_path / "a", "1.png", "2.png")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    os.utime(tmp_path / "b" / "1.png", ns=(1, 1))
    first, copy = opened(tmp_path / "a"), opened(tmp_path / "b")
    assert first.fingerprint() == copy.fingerprint()
    assert first.fingerprint(times=True) != copy.fingerprint(times=True)
    assert first.fingerprint(times=True) == opened(tmp_path / "a").fingerprint(times=True) != first.fingerprint()
    (tmp_path / "b" / "1.png").write_bytes(b"longer than before")
    assert opened(tmp_path / "b").fingerprint() != first.fingerprint()
    (tmp_path / "a" / "1.png").rename(tmp_path / "a" / "0.png")
    assert opened(tmp_path / "a").fingerprint() != first.fingerprint()


def test_files_go_to_another_process(tmp_path: Path) -> None:
    files = opened(fill(tmp_path, "a/1.png", "b/2.png"))
    other = pickle.loads(pickle.dumps(files))
    assert [other.read(row) for row in range(2)] == [b"a/1.png", b"b/2.png"]
    assert other.fingerprint(times=True) == files.fingerprint(times=True)


@pytest.mark.slow
def test_files_are_read_without_torch() -> None:
    code = "import sys, ocssl.data.decode.files, ocssl.data.decode.arrow_files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
