"""`ocssl check`: the command that it prints starts a run over the same images, of a size that fits here."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from ocssl.cli import check as command
from ocssl.cli import main
from ocssl.cli.run import benchmark_of
from ocssl.cost.data_survey import Check, Cost
from ocssl.data.sources import BENCHMARKS
from ocssl.data.sources.source import own_source, parse_name

Say = Callable[..., list[str]]


def found(bytes: float = 1e8, seconds: float = 1.0) -> Check:
    """Of one image of one class."""
    costs = [Cost(name, 1, 1, seconds, bytes) for name in ("none", "cpu")]
    return Check(1, 1, 1, [], {"PNG": 1}, (9, 9, 9), (9, 9, 9), 100, {"a": 1}, 1, costs, "")


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """The lines of `ocssl check SOURCE` in a folder; what is found is given."""

    def said(source: str, result: Check) -> list[str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("ocssl.cost.data_survey.check", lambda *_: result)
        with pytest.raises(SystemExit) as ended:
            main(["check", "--", source] if source.startswith("-") else ["check", source])
        assert ended.value.code == 0
        return capsys.readouterr().out.splitlines()

    return said


@pytest.mark.parametrize("name", ["photos", "pacs", "synthetic", "-pics", "my photos"])
def test_the_command_that_check_prints_starts_a_run_over_this_folder(name: str, tmp_path: Path, say: Say) -> None:
    (tmp_path / name).mkdir()
    words = shlex.split(say(name, found())[-1].partition(": ")[2])
    assert words[:3] == ["ocssl", "run", "solar-c"]
    assert not words[3].startswith("-")
    assert benchmark_of(words[3]) == own_source(name) == f"folder:{name}"


def test_one_of_each_is_not_called_many(tmp_path: Path, say: Say) -> None:
    (tmp_path / "photos").mkdir()
    text = "\n".join(say("photos", found()))
    for word in ("1 file can", "1 class,", "1 experience, 1 minibatch", "1 step,"):
        assert word in text
    assert not [word for word in ("1 files", "1 classes", "1 experiences", "1 minibatches", "1 steps") if word in text]


@pytest.mark.parametrize(
    ("source", "setting"),
    [("photos", "stream.levels"), ("wds:a.tar", "stream.label"), ("parquet:a.parquet", "stream.label")],
)
def test_guessed_labels_are_ignored_by_a_setting_that_the_source_has(
    source: str, setting: str, tmp_path: Path, say: Say
) -> None:
    (tmp_path / "photos").mkdir()
    assert any(f"(--set {setting}=none to ignore)" in line for line in say(source, found()))
    assert setting.partition(".")[2] in BENCHMARKS.options(parse_name(own_source(source))[0])


@pytest.mark.parametrize(("bytes", "seconds", "small"), [(1e8, 1, False), (3e9, 1, True), (1e8, 9000, True)])
def test_a_small_size_is_recommended_where_time_or_memory_is_short(
    bytes: float, seconds: float, small: bool, tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.setattr(command, "free_bytes", lambda: (8 * 10**9, "on this machine"))
    assert ("--preset cpu" in say("photos", found(bytes, seconds))[-1]) == small


@pytest.mark.parametrize("words", [("check", "phots"), ("run", "solar", "./phots"), ("run", "solar", "folder:phots")])
def test_a_misspelled_folder_is_named_with_the_nearest(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "photos" / "a.png")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"did you mean {tmp_path / 'photos'}?" in capsys.readouterr().err


def test_a_misspelled_word_may_be_meant_as_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "solar", "photo"])
    assert "for a folder of images: folder:PATH" in capsys.readouterr().err


def test_sources_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "sources"])
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {"folder:PATH", "parquet:PATH", "wds:PATTERN", "hf:NAME"} <= said.keys()
    assert all(said.values())
