"""Files from others are opened only if they are regular ones, read up to a size, and refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocssl import recipes
from ocssl._files.untrusted import open_file, read_bytes, read_json, read_lines, read_text, reading
from ocssl.bench.harness import load_baseline
from ocssl.data.sources.download import checksum
from ocssl.errors import DataError, OcsslError, RunFolderError, SettingError
from ocssl.launch.sweep import read_spec
from ocssl.runs.config import read_settings
from ocssl.runs.folder import METRICS, finished

BRACKETS, DIGITS = "[" * 100_000, "1" * 5_000
TOML: dict[str, Callable[[Path], Any]] = {
    "recipe": lambda path: recipes.resolve(str(path), None, {}),
    "sweep": read_spec,
    "run": read_settings,
}
JSON: dict[str, Callable[[Path], Any]] = {
    "baseline": load_baseline,
    "metrics": lambda path: finished(path.parent),
}
READERS = {**TOML, **JSON, "checksum": checksum, "lines": lambda path: read_lines(path, DataError)}


def refusal(reader: str, path: Path) -> str:
    with pytest.raises(OcsslError) as refused:
        READERS[reader](path)
    text = str(refused.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


def named(reader: str, folder: Path) -> Path:
    return folder / (METRICS if reader == "metrics" else "file.toml")


def test_a_regular_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_bytes(path, None) == read_bytes(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_bytes(path, 4)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "b", 4)


def test_links_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "endless"):
        with pytest.raises(OSError, match="a symbolic link"):
            open_file(tmp_path / name, links=False)
    assert read_bytes(tmp_path / "link", 6) == b"secret"
    for name, links in (("endless", True), ("pipe", False), (".", False)):
        with pytest.raises(OSError, match="not a regular file"):
            open_file(tmp_path / name, links=links)


def test_what_takes_the_place_of_a_file_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opening = tmp_path / "a", os.open
    path.write_bytes(b"")

    def exchanged(path: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return opening(path, flags)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(OSError, match="not a regular file"):
        open_file(path)


def test_a_file_that_does_not_tell_its_size_is_read_up_to_the_bound() -> None:
    path = Path("/proc/self/pagemap")
    if not path.exists():
        pytest.skip("no /proc")
    assert path.stat().st_size == 0  # and 256 GiB come out of it
    with pytest.raises(OSError, match="larger than 1,000 bytes"):
        read_bytes(path, 1000)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(OSError, match="null byte"):
        open_file(Path("a\0b"))


def test_text_is_utf8_with_or_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfone \r\n\n two")
    assert read_lines(path, DataError) == ["one", "two"]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not a text file in UTF-8"):
        read_text(path)


@pytest.mark.parametrize("text", ["[", BRACKETS, DIGITS, ""])
def test_bad_json_is_one_kind_of_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(ValueError, match="not JSON"):
        read_json(tmp_path / "a")


def test_the_sentence_names_the_file_and_the_reason_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb"
    sentence = r"^cannot read .*a\\nb: No such file or directory\.$"
    with pytest.raises(SettingError, match=sentence), reading(path, SettingError):
        read_text(path)
    with pytest.raises(RunFolderError, match=r"^as it was$"), reading(tmp_path, SettingError):
        raise RunFolderError("as it was")


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_what_is_no_regular_file(reader: str, tmp_path: Path) -> None:
    path = named(reader, tmp_path)
    os.mkfifo(path)
    said = [refusal(reader, path)]
    path.unlink()
    path.mkdir()
    said.append(refusal(reader, path))
    path.rmdir()
    path.symlink_to("/dev/zero")
    said.append(refusal(reader, path))
    for text in said:
        assert str(path) in text
        assert "not a regular file" in text or "a symbolic link" in text


@pytest.mark.parametrize("reader", [*TOML, *JSON, "lines"])
def test_every_reader_bounds_the_size(reader: str, tmp_path: Path) -> None:
    path = named(reader, tmp_path)
    with open(path, "wb") as file:
        file.truncate(2**40)
    assert "larger than" in refusal(reader, path)


@pytest.mark.parametrize("reader", TOML)
@pytest.mark.parametrize(
    "text", ["a = [", f"a = {BRACKETS}", f"a = {DIGITS}", *(f"a{'.a' * n} = 1" for n in (400, 10**5))]
)
def test_bad_toml_is_one_sentence_in_every_reader(reader: str, text: str, tmp_path: Path) -> None:
    path = named(reader, tmp_path)
    path.write_text(text)
    assert refusal(reader, path).startswith(f"cannot read {path}: not TOML")


@pytest.mark.parametrize("reader", JSON)
@pytest.mark.parametrize("text", ["[", BRACKETS, DIGITS])
def test_bad_json_is_one_sentence_in_every_reader(reader: str, text: str, tmp_path: Path) -> None:
    path = named(reader, tmp_path)
    path.write_text(text)
    assert "not JSON" in refusal(reader, path)
