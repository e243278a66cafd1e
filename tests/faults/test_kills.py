"""Killed before any durable call, a command gives the same result when it is called again, and leaves nothing behind.

By default some of the places are tried, spread over the whole; `OCSSL_TORTURE=1` (`make torture`) tries all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from durable import command

from conftest import SMALL_STREAM, small_settings
from ocssl._core import checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.process]

METHODS = ["solar", "minred", "cla-e"]
TORTURE = bool(os.environ.get("OCSSL_TORTURE"))
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
    yield from range(1 + shift, calls + 1, step)


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_is_resumed_to_the_same_bits_with_nothing_left(method: str, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    code, calls = command(run_words(method, wanted), wanted)
    assert code == 0
    assert len(calls) > 60
    for number in places(len(calls), method):
        folder = tmp_path / f"killed-{number}"
        words = run_words(method, folder)
        code, before = command(words, folder, number)
        assert code == -signal.SIGKILL, before[-1:]
        again = ["resume", str(folder)] if (folder / "run.toml").exists() else words
        code, after = command(again, folder)
        assert code == 0, (number, before[-1:], after[-1:])
        assert facts(folder) == facts(wanted), (number, before[-1:])
        shutil.rmtree(folder)


@pytest.mark.parametrize("method", METHODS[:1])
def test_a_resume_that_is_killed_too_is_resumed(method: str, tmp_path: Path) -> None:
    wanted, start = tmp_path / "wanted", tmp_path / "start"
    _, calls = command(run_words(method, wanted), wanted)
    command(run_words(method, start), start, len(calls) // 3)
    _, calls = command(["resume", str(copied(start, tmp_path / "count"))], tmp_path / "count")
    for number in places(len(calls), f"resume {method}"):
        folder = copied(start, tmp_path / f"killed-{number}")
        code, before = command(["resume", str(folder)], folder, number)
        assert code == -signal.SIGKILL
        assert command(["resume", str(folder)], folder)[0] == 0
        assert facts(folder) == facts(wanted), (number, before[-1:])
        shutil.rmtree(folder)


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


# ---- commands that look at runs, or start several


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done") / "run"
    assert command(run_words("er-fifo", folder), folder)[0] == 0
    return folder


def sweep_file(folder: Path) -> Path:
    settings = {**small_settings("er-fifo"), **SETTINGS, "checkpoint.snapshots": False}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    text = "\n".join(
        ['methods = ["er-fifo", "finetune"]', "seeds = [0]", 'benchmarks = ["synthetic"]', "[set]", *lines]
    )
    folder.mkdir(exist_ok=True)
    (folder / "sweep.toml").write_text(text.replace("memory.capacity = 24\n", ""))
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


@pytest.mark.parametrize("name", ["report", "evaluate", "diagnose", "sweep", "reproduce"])
def test_other_commands_that_are_killed_are_called_again(name: str, run: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    code, calls = command(other_commands(run, wanted)[name], wanted)
    assert code == 0
    assert calls
    for number in places(len(calls), name, most=2):
        out = tmp_path / f"killed-{number}"
        words = other_commands(run, out)[name]
        code, before = command(words, out, number)
        assert code == -signal.SIGKILL
        code, _ = command(words, out)
        assert code == 0, (number, before[-1:])
        assert facts(out) == facts(wanted), (number, before[-1:])
        shutil.rmtree(out)
