"""Whatever a file holds, its reader gives a value or one line of text: no other error, no hang, no file left behind.

`corpus/READER-WHAT` are files that once failed, or that are meant to; those with `sound` or `refused` in their names
must be read or refused. The rest are mutants of sound files, the same in
every run; `OCSSL_TORTURE=1` (`make torture`) reads many more of them.
"""

from __future__ import annotations

import faulthandler
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from readers import READERS, emptied

from ocssl.errors import LONGEST as LONGEST_TEXT
from ocssl.errors import OcsslError

CORPUS = Path(__file__).parent / "corpus"
TORTURE = bool(os.environ.get("OCSSL_TORTURE"))
FEW = 12  # mutants of each reader by default
LONGEST = 30  # seconds for one file on a busy machine, after which the process ends with a traceback
LARGEST = 4096  # bytes of a file of the corpus


def fault(read: Callable[[bytes, Path], object], data: bytes, folder: Path) -> str:
    """What is wrong with how these bytes are read; nothing if it is as it should be."""
    emptied(folder)
    (folder.parent / "last").write_bytes(data)  # should the process end
    before = {path.name for path in Path.cwd().iterdir()}
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        read(data, folder)
    except OcsslError as error:
        text = str(error)
        if not text.isprintable() or not text or len(text) > LONGEST_TEXT:
            return f"not one line of text: {text[:200]!r}"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {frame.filename.rpartition('/')[2]}:{frame.lineno}: {str(error)[:100]}"
    finally:
        faulthandler.cancel_dump_traceback_later()
    left = [path.name for path in folder.rglob("*") if path.name.endswith((".part", ".removed"))]
    left += sorted({path.name for path in Path.cwd().iterdir()} - before)
    return f"left behind: {left}" if left else ""


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_file_that_once_failed_gives_a_value_or_one_line(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    assert len(data) <= LARGEST
    read = READERS[path.name.partition("-")[0]].read
    assert fault(read, data, tmp_path / "read") == ""
    if "-sound-" in path.name:
        read(data, emptied(tmp_path / "read"))
    if "-refused-" in path.name:
        with pytest.raises(OcsslError):
            read(data, emptied(tmp_path / "read"))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_gives_a_value_or_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    reader, seen = READERS[name], 0
    found: dict[str, tuple[str, bytes]] = {}  # by error and place: the smallest file
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    @settings(
        max_examples=reader.many if TORTURE else FEW,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.mutants())  # also makes the sound files, before anything is timed
    def read_all(data: bytes) -> None:
        nonlocal seen
        seen += 1
        wrong = fault(reader.read, data, tmp_path / "read")
        if wrong and len(data) < len(found.get(wrong.partition(": ")[0], (wrong, data + b"."))[1]):
            found[wrong.partition(": ")[0]] = wrong, data

    read_all()
    record_property("torture", (f"mutants: {reader.title}", seen, len(found)))
    for number, (_, data) in enumerate(found.values()):
        (tmp_path / f"{name}-{number}").write_bytes(data)
    assert not found, f"{[wrong for wrong, _ in found.values()]}, files in {tmp_path}"


@pytest.mark.parametrize("broken", ["raises", "two lines", "leaves a file"])
def test_a_reader_that_does_otherwise_is_caught(broken: str, tmp_path: Path) -> None:
    def read(data: bytes, folder: Path) -> None:
        if broken == "raises":
            raise KeyError("x")
        if broken == "two lines":
            error = OcsslError("")
            error.args = ("a\nb",)
            raise error
        (folder / ".x.1.part").touch()

    assert fault(read, b"", tmp_path / "read")
