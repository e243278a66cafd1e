"""Killed before any durable call, a command gives the same result when it is called again, and leaves nothing behind.

By default some of the places are tried, spread over the whole; `OCSSL_TORTURE=1` (`make torture`) tries all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from durable import command
from PIL import Image

from conftest import SMALL_STREAM, small_settings
from ocssl._core import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.process]

METHODS = ["solar", "minred", "cla-e"]
TORTURE = bool(os.environ.get("OCSSL_TORTURE"))
BUDGET = 150  # seconds of each test of `make torture`: 40 such tests on two processes take at most 50 minutes
PLACES = 5  # that are tried by default, of those that a command has
SETTINGS = {**SMALL_STREAM, "stream.train": 6, "stream.test": 3, "schedule.stream_batch": 6, "checkpoint.every": 2}


def run_words(method: str, out: Path) -> list[str]:
    settings = {**small_settings(method), **SETTINGS}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return ["run", method, "synthetic", "--seed", "3", "--out", str(out), *sets]


def facts(folder: Path) -> dict[str, str]:
    """The checksum of every file but for what time has put into it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name == "timing.json":
            continue
        content = b"" if path.name == "sweep.csv" else path.read_bytes()  # it has times
        if path.name in ("events.jsonl", "metrics.json", checkpoint.MANIFEST):
            lines = [json.loads(line) for line in (content.splitlines() if path.suffix == ".jsonl" else [content])]
            content = json.dumps([timeless(line) for line in lines if line.get("event") != "resume"]).encode()
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def timeless(value: object) -> object:
    """A value without times, and without what counts bytes of lines with times or is a checksum over them."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in ("seconds", "phases", "checksum", "events")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def places(calls: int, salt: str, most: int = PLACES) -> Iterator[int]:
    """Numbers of durable calls to die before: all, or some that lie evenly, shifted by the name of the test."""
    step = 1 if TORTURE else max(1, calls // most)
    shift = int(hashlib.sha256(salt.encode()).hexdigest(), 16) % step
    numbers = list(range(1 + shift, calls + 1, step))
    random.Random(salt).shuffle(numbers)  # what the time is too short for lies evenly, too
    end = time.monotonic() + BUDGET
    for number in numbers:
        if TORTURE and time.monotonic() > end:
            return
        yield number


class Tally:
    """Counts the kills of a test for the table at the end of `make torture`."""

    def __init__(self, note: Callable[[str, object], None]) -> None:
        self.note = note

    def __call__(self, what: str, calls: int, numbers: Iterator[int]) -> Iterator[int]:
        done = 0
        for number in numbers:
            yield number
            done += 1
        self.note("torture", (f"kill -9: {what}", f"{done} of {calls}", 0))


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    return Tally(record_property)


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_is_resumed_to_the_same_bits_with_nothing_left(method: str, tmp_path: Path, tally: Tally) -> None:
    wanted = tmp_path / "wanted"
    code, calls = command(run_words(method, wanted), wanted)
    assert code == 0
    assert len(calls) > 60
    for number in tally(f"run {method}", len(calls), places(len(calls), method)):
        folder = tmp_path / f"killed-{number}"
        words = run_words(method, folder)
        code, before = command(words, folder, number)
        assert code == -signal.SIGKILL, before[-1:]
        again = ["resume", str(folder)] if (folder / "run.toml").exists() else words
        code, after = command(again, folder)
        assert code == 0, (number, before[-1:], after[-1:])
        assert facts(folder) == facts(wanted), (number, before[-1:])
        shutil.rmtree(folder)


@pytest.mark.parametrize("method", METHODS)
def test_a_resume_that_is_killed_too_is_resumed(method: str, tmp_path: Path, tally: Tally) -> None:
    wanted, start = tmp_path / "wanted", tmp_path / "start"
    _, calls = command(run_words(method, wanted), wanted)
    command(run_words(method, start), start, len(calls) // 3)
    _, calls = command(["resume", str(copied(start, tmp_path / "count"))], tmp_path / "count")
    for number in tally(f"resume {method}", len(calls), places(len(calls), f"resume {method}", most=2)):
        folder = copied(start, tmp_path / f"killed-{number}")
        code, before = command(["resume", str(folder)], folder, number)
        assert code == -signal.SIGKILL
        assert command(["resume", str(folder)], folder)[0] == 0
        assert facts(folder) == facts(wanted), (number, before[-1:])
        shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["run", "resume"])
def test_pretraining_that_is_killed_is_resumed(kind: str, tmp_path: Path, tally: Tally) -> None:
    def words(out: Path) -> list[str]:
        settings = {**small_settings("pretrain"), **SETTINGS, "stream.experiences": 1}
        left_out = ("schedule.batch", "schedule.stream_batch", "schedule.passes", "stream.epochs")
        chosen = {key: value for key, value in settings.items() if key not in left_out}
        sets = [word for key, value in chosen.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        return ["pretrain", "synthetic", "--epochs", "2", "--batch", "12", "--out", str(out), *sets]

    wanted = tmp_path / "wanted"
    code, calls = command(words(wanted), wanted)
    assert code == 0
    before = len(calls) // 3 if kind == "resume" else 0  # it has been killed once already
    for number in tally(f"pretrain, {kind}", len(calls), places(len(calls), f"pretrain {kind}", most=1)):
        folder = tmp_path / f"killed-{number}"
        command(words(folder), folder, before or number)
        if kind == "resume":
            command(["resume", str(folder)], folder, number)  # may end before
        again = ["resume", str(folder)] if (folder / "run.toml").exists() else words(folder)
        assert command(again, folder)[0] == 0
        assert facts(folder) == facts(wanted), number
        shutil.rmtree(folder)


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


# ---- commands that look at runs, or start several


def finished_run(method: str, folder: Path) -> Path:
    folder = folder / method / "run"
    folder.parent.mkdir(parents=True)
    assert command(run_words(method, folder), folder)[0] == 0
    return folder


def sweep_file(folder: Path) -> Path:
    settings = {**small_settings(METHODS[1]), **SETTINGS, "checkpoint.snapshots": False}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    text = "\n".join([f"methods = {json.dumps(METHODS)}", "seeds = [0]", 'benchmarks = ["synthetic"]', "[set]", *lines])
    folder.mkdir(exist_ok=True)
    (folder / "sweep.toml").write_text(text)
    return folder / "sweep.toml"


def other_commands(run: Path, out: Path) -> dict[str, list[str]]:
    report = ["report", str(run), "-o", str(out / "page.html"), "--figures", str(out / "f"), "--tables", str(out / "t")]
    sweep = ["sweep", str(sweep_file(run.parent)), "--out", str(out), "--workers", "1", "--quiet"]
    reproduce = ["reproduce", "table5", "--scale", "mini", "--benchmark", "synthetic", "--out", str(out)]
    return {
        "report": report,
        "evaluate": ["evaluate", str(run), "-o", str(out / "evaluated.json"), "--quiet"],
        "diagnose": ["diagnose", str(run), "-o", str(out / "diagnosed.json"), "--samples", "6", "--quiet"],
        "sweep": sweep,
        "reproduce": reproduce,
    }


# ---- commands that use what was learned


def photos(folder: Path, count: int) -> Path:
    """The same images every time, whatever their number."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(generator.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    return folder


def using_commands(run: Path, images: Path, out: Path) -> dict[str, list[str]]:
    vectors = str(out / "vectors.parquet")
    embed = ["embed", str(run), str(images), "-o", vectors, "--workers", "1", "--quiet"]
    search = ["search", vectors, str(images / "0.png"), "--html", str(out / "page.html")]
    export = ["export", str(run), "-o", str(out / "exported"), "--format"]
    return {
        "embed": embed,
        **{f"embed {mode}": [*embed, mode] for mode in ("--update", "--refresh", "--align")},
        "search": search,
        "export": [*export, "safetensors"],
        "export to ONNX": [*export, "onnx"],
    }


USING = {"embed": 3, "embed --update": 3, "embed --refresh": 1, "embed --align": 1, "search": 3, "export": 3}
USING |= {"export to ONNX": 1} if TORTURE else {}  # places that are tried by default; torch.onnx takes long


@pytest.mark.parametrize("name", USING)
@pytest.mark.parametrize("method", METHODS if TORTURE else METHODS[:1])
def test_commands_that_use_a_run_and_are_killed_are_called_again(
    name: str, method: str, tmp_path: Path, tally: Tally
) -> None:
    pytest.importorskip("pyarrow", reason="vectors are parquet files")
    count = 21 if name == "embed --align" else 4  # an alignment takes at least 20 images
    run, images, start = finished_run(method, tmp_path / "done"), photos(tmp_path / "photos", count), tmp_path / "start"
    start.mkdir()
    if name not in ("embed", "export", "export to ONNX"):
        other = name in ("embed --refresh", "embed --align")  # of another encoder
        first = finished_run(METHODS[METHODS.index(method) - 1], tmp_path / "first") if other else run
        assert command(using_commands(first, images, start)["embed"], start)[0] == 0
    if name != "embed --align":  # which takes unchanged images alone
        photos(images, count + 3)
    wanted = copied(start, tmp_path / "wanted")
    code, calls = command(using_commands(run, images, wanted)[name], wanted)
    assert code == 0
    assert calls
    what = f"{name} {method}"
    for number in tally(what, len(calls), places(len(calls), what, most=USING[name])):
        out = copied(start, tmp_path / f"killed-{number}")
        words = using_commands(run, images, out)[name]
        code, before = command(words, out, number)
        assert code == -signal.SIGKILL
        assert command(words, out)[0] == 0, (number, before[-1:])
        assert without_place(out) == without_place(wanted), (number, before[-1:])
        shutil.rmtree(out)


def without_place(folder: Path) -> dict[str, str]:
    """As `facts`; a page names the file of vectors, which lies elsewhere each time."""
    found = facts(folder)
    for path in folder.rglob("*.html"):
        content = path.read_text().replace(str(folder), "")
        found[path.name] = hashlib.sha256(content.encode()).hexdigest()
    return found


READING = ["report", "evaluate", "diagnose"]  # a run of a method; by default each of another one
PAIRS = [(name, method) for name in READING for method in METHODS]
CHOSEN = PAIRS if TORTURE else list(zip(READING, METHODS, strict=True))


@pytest.mark.parametrize(("name", "method"), [*CHOSEN, ("sweep", ""), ("reproduce", "")])
def test_other_commands_that_are_killed_are_called_again(name: str, method: str, tmp_path: Path, tally: Tally) -> None:
    run = finished_run(method, tmp_path / "done") if method else tmp_path / "none" / "run"
    wanted = tmp_path / "wanted"
    run.parent.mkdir(parents=True, exist_ok=True)
    code, calls = command(other_commands(run, wanted)[name], wanted)
    assert code == 0
    assert calls
    what = f"{name} {method}".strip()
    for number in tally(what, len(calls), places(len(calls), what, most=2)):
        out = tmp_path / f"killed-{number}"
        words = other_commands(run, out)[name]
        code, before = command(words, out, number)
        assert code == -signal.SIGKILL
        code, _ = command(words, out)
        assert code == 0, (number, before[-1:])
        assert facts(out) == facts(wanted), (number, before[-1:])
        shutil.rmtree(out)
