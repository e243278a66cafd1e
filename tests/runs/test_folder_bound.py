"""A run folder never holds more than is stated before the run starts, and that does not depend on how it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_run import Progress, StopAfter, record, same_run

from conftest import SMALL_STREAM, small_settings
from ocssl.cost import ImageCounts, most_bytes
from ocssl.cost.disk import EVALUATION, NUMBER, STEP
from ocssl.data import load_benchmark
from ocssl.learner import Learner
from ocssl.runs import run
from ocssl.runs.config import RunSettings, resolve_run
from ocssl.runs.folder import CHECKPOINTS, EVENTS, SNAPSHOTS, create
from ocssl.runs.progress import Bars
from ocssl.runs.run import execute, make_stream, moments
from ocssl.runs.snapshots import kept
from ocssl.runs.stop import Stop

OFTEN = {"evaluate.every": 1, "checkpoint.every": 1, "checkpoint.most_snapshots": 4, "stream.train": 30}
SOME = ["solar", "climb", "cla-e", "gss"]  # methods that keep different columns and copies


def settings_of(method: str, **more: Any) -> RunSettings:
    return resolve_run(method, "synthetic", 3, {**small_settings(method), **SMALL_STREAM, **OFTEN, **more})


def stated(settings: RunSettings) -> dict[str, int]:
    loaded = load_benchmark(settings.benchmark, settings.stream, settings.data, Progress(quiet()).report)
    stream = make_stream(loaded, settings)
    evaluations = 1 + len(moments(stream, settings.evaluate.every))
    return most_bytes(settings, ImageCounts.of(loaded), len(stream), evaluations)


def quiet() -> Bars:
    return Bars(Console(), quiet=True)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def go(folder: Path, settings: RunSettings, until: int | None = None) -> Path:
    if not folder.exists():
        create(folder, settings)
    stop = Stop()
    execute(folder, StopAfter(stop, until) if until else Progress(quiet()), stop)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", SOME)
def test_at_no_moment_is_a_part_larger_than_stated(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, save, seen = settings_of(method), Learner.save, []

    def measured(self: Learner, folder: Path, extra: Any = None) -> None:
        save(self, folder, extra)  # now the old checkpoints are still there
        seen.append({name: size(tmp_path / "r" / name) for name in (CHECKPOINTS, SNAPSHOTS)})

    monkeypatch.setattr(Learner, "save", measured)
    go(tmp_path / "r", settings)
    bound = stated(settings)
    assert len(seen) > 10
    for name in (CHECKPOINTS, SNAPSHOTS):
        assert max(sizes[name] for sizes in seen) <= bound[name]
    assert size(tmp_path / "r") <= sum(bound.values())
    assert len(list((tmp_path / "r" / SNAPSHOTS).iterdir())) <= 4
    for line in (tmp_path / "r" / EVENTS).read_bytes().splitlines():
        event = json.loads(line)["event"]
        assert len(line) <= (STEP if event == "step" else EVALUATION + NUMBER * settings.stream.experiences), event


@pytest.mark.slow
def test_without_thinning_out_there_are_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "thin_out", lambda *given: None)
    settings = settings_of("solar")
    assert len(list((go(tmp_path / "r", settings) / SNAPSHOTS).iterdir())) > 4


@pytest.mark.slow
def test_a_resumed_run_keeps_the_same_snapshots_and_evaluations(tmp_path: Path) -> None:
    settings = settings_of("solar", **{"checkpoint.every": 3})
    whole = go(tmp_path / "whole", settings)
    halves = go(tmp_path / "halves", settings, until=5)
    go(halves, settings, until=8)
    go(halves, settings)
    names = [sorted(path.name for path in (folder / SNAPSHOTS).iterdir()) for folder in (whole, halves)]
    assert names[0] == names[1]
    assert same_run(whole, halves)
    metrics = [json.loads((folder / "metrics.json").read_text()) for folder in (whole, halves)]
    assert metrics[0]["accuracies"] == metrics[1]["accuracies"]
    assert len(metrics[0]["accuracies"]) == len(metrics[0]["positions"]) == 10


def test_a_checkpoint_does_not_grow_with_the_evaluations(tmp_path: Path) -> None:
    folder = go(tmp_path / "r", settings_of("er-fifo"))
    manifest = max((folder / CHECKPOINTS).iterdir()) / "checkpoint.json"
    assert "accuracy" not in manifest.read_text()


def test_of_a_long_run_every_second_step_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("er-fifo", **{"evaluate.every": 0})
    whole = [e for e in record(go(tmp_path / "whole", settings)) if e["event"] == "step"]
    monkeypatch.setattr(run, "MOST_STEPS", (len(whole) + 1) // 2)
    half = [e for e in record(go(tmp_path / "half", settings)) if e["event"] == "step"]
    assert half == whole[1::2]
    assert json.loads((tmp_path / "half" / "metrics.json").read_text())["steps"] == whole[-1]["steps"]


@pytest.mark.parametrize("most", [2, 3, 4, 7, 100])
def test_what_is_kept_once_was_always_kept(most: int) -> None:
    """A snapshot that is removed is never wanted again: a run that is killed and repeats a part keeps the same."""
    now: set[int] = set()
    for number in range(200):
        wanted = kept(range(number + 1), most)
        assert len(wanted) <= most
        assert wanted[-1] == number
        assert set(wanted) <= now | {number}
        now = set(wanted)
