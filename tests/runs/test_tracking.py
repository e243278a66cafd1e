"""Sinks show what the events say, once and without gaps, change no result, and may fail."""

from __future__ import annotations

import io
import json
import signal
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conftest import SMALL_STREAM, small_settings
from ocssl.errors import SettingError
from ocssl.runs import tracking
from ocssl.runs.config import resolve_run
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, create
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop
from ocssl.runs.tracking import require_libraries, scalars


def make(folder: Path) -> Path:
    create(folder, resolve_run("solar", "synthetic", 0, {**small_settings("solar"), **SMALL_STREAM}))
    return folder


def go(folder: Path, track: list[str], steps: int | None = None) -> tuple[dict[str, Any] | None, str]:
    """Run a folder, to the end or for some minibatches; the metrics and the output."""
    stop, text = Stop(), io.StringIO()

    class Counting(Progress):
        def step(self, done: int, info: Any) -> None:
            if done == steps:
                stop.signal = signal.SIGTERM

    metrics = execute(folder, Counting(Bars(Console(file=text, width=500), quiet=True)), stop, track=track)
    return metrics and {**metrics, "seconds": 0}, text.getvalue()


def complaints(said: str, sink: str) -> list[str]:
    """Warnings about a sink; others, such as that so small an encoder collapses, depend on how a processor rounds."""
    return [line for line in said.splitlines() if line.startswith("warning: ") and sink in line]


def told(folder: Path) -> dict[str, dict[int, float]]:
    """What a sink should hold, read from the events."""
    curves: dict[str, dict[int, float]] = {}
    for event in read_events(folder / EVENTS):
        for key, value in scalars(event).items():
            curves.setdefault(key, {})[event["position"]] = value
    return curves


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    metrics, _ = go(make(tmp_path_factory.mktemp("plain") / "run"), [])
    assert metrics
    return metrics


@pytest.mark.slow
def test_tensorboard_holds_each_event_once_also_after_a_stop_and_a_crash(tmp_path: Path, plain: dict[str, Any]) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = make(tmp_path / "run")
    assert go(folder, [], steps=1)[0] is None  # not there at the beginning
    assert go(folder, ["tensorboard"], steps=2)[0] is None
    writer = tracking.TensorBoard(folder, resolve_run("solar", "synthetic", 0, {}))
    writer.scalars(3, {"train/loss": 1e6})  # what a killed process wrote after its last checkpoint
    writer.close()
    metrics, said = go(folder, ["tensorboard"])
    assert metrics == plain
    assert not complaints(said, "tensorboard")
    found = accumulator.EventAccumulator(str(folder / "tensorboard"), size_guidance={accumulator.SCALARS: 0}).Reload()
    curves = told(folder)
    assert {
        "train/loss",
        "train/participation_ratio",
        "terms/overlap",
        "evaluate/accuracy",
        "evaluate/overlap",
    } <= curves.keys()
    for key, curve in curves.items():
        points = [(event.step, event.value) for event in found.Scalars(key)]
        assert points == [(step, pytest.approx(value, rel=1e-6)) for step, value in sorted(curve.items())]
    [final] = found.Scalars("final/final_accuracy")
    assert final.value == pytest.approx(plain["final_accuracy"])
    assert any("settings" in tag for tag in found.Tags()["tensors"])


@pytest.mark.slow
def test_wandb_works_offline_and_keeps_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: dict[str, Any]
) -> None:
    pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "CACHE_DIR": "cache", "CONFIG_DIR": "config", "DATA_DIR": "data"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value if name == "MODE" else str(tmp_path / value))
    folder = make(tmp_path / "run")
    assert go(folder, ["wandb"], steps=2)[0] is None
    name = (folder / "wandb-id").read_text()
    began = int(time.time())
    while int(time.time()) == began:  # the library names its folders by the second
        time.sleep(0.05)
    metrics, said = go(folder, ["wandb"])
    assert metrics == plain
    assert not complaints(said, "wandb")
    assert (folder / "wandb-id").read_text() == name
    logs = sorted(folder.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb"))
    assert logs
    end = time.monotonic() + 60  # the library writes from a process of its own
    while not (record := offline_record(logs[-1])).ended and time.monotonic() < end:
        time.sleep(0.1)
    assert record.ended
    assert record.curves == told(folder)
    assert "memory" in record.config
    assert record.summary["final_accuracy"] == plain["final_accuracy"]


@dataclass
class Offline:
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    config: set[str] = field(default_factory=set)
    summary: dict[str, float] = field(default_factory=dict)
    ended: bool = False


def offline_record(path: Path) -> Offline:
    """What an offline file says so far."""
    from wandb.proto import wandb_internal_pb2

    found = Offline()
    for data in log_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        found.config |= {item.key for item in record.run.config.update}
        for item in record.history.item:
            key = item.key or ".".join(item.nested_key)
            if not key.startswith("_"):
                found.curves.setdefault(key, {})[record.history.step.num] = json.loads(item.value_json)
        for item in record.summary.update:
            found.summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
        found.ended |= record.WhichOneof("record_type") == "exit"
    return found


def log_records(content: bytes, block: int = 32768) -> Iterator[bytes]:
    """The records of a LevelDB log with a header of 7 bytes: pieces with checksum, length, and kind of piece."""
    assert content.startswith(b":W&B")
    place, record = 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # a block's end is left empty where no head of a piece fits
            place += block - place % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if place > len(content):
            return
        if kind in (1, 4):  # the whole of a record, or its last piece
            yield record
            record = b""


@pytest.mark.parametrize("moment", ["open", "scalars", "final", "close"])
def test_a_sink_that_fails_is_dropped_with_one_warning_and_the_run_goes_on(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: dict[str, Any]
) -> None:
    calls: list[str] = []

    class Broken:
        def __init__(self, folder: Path, settings: Any) -> None:
            self.fail("open")

        def fail(self, at: str) -> None:
            calls.append(at)
            if at == moment:
                raise OSError("the disk is full\nsecond line")

        def scalars(self, position: int, values: Mapping[str, float]) -> None:
            self.fail("scalars")

        def final(self, position: int, values: Mapping[str, float]) -> None:
            self.fail("final")

        def close(self) -> None:
            self.fail("close")

    monkeypatch.setitem(tracking.SINKS, "tensorboard", Broken)
    metrics, said = go(make(tmp_path / "run"), ["tensorboard"])
    assert metrics == plain
    [complaint] = complaints(said, "tensorboard")
    assert "tensorboard is left out from here on: the disk is full" in complaint
    assert calls.count(moment) == 1
    assert calls[-1] == moment


def test_what_is_missing_or_wrong_is_told_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="did you mean 'wandb'"):
        require_libraries(["wanb"])
    with pytest.raises(SettingError, match="twice"):
        require_libraries(["wandb", "wandb"])
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SettingError, match=r"pip install '(tensorboard|ocssl\[track\])"):
        require_libraries(["tensorboard"])
