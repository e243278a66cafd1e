"""Runs that earlier versions left unfinished: `stored/` holds one folder a version, made by that version's own code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

import ocssl
from ocssl.runs.events import read_events
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop

STORED = sorted((Path(__file__).parent / "stored").iterdir())


@pytest.fixture(params=STORED, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy to work in."""
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def test_a_checkpoint_of_an_earlier_version_loads_and_learns(folder: Path) -> None:
    newest = max((folder / "checkpoints").iterdir())
    learner = ocssl.Learner.load(newest)
    told = json.loads((newest / "checkpoint.json").read_text())["facts"]
    assert (learner.steps, learner.seen, learner.method) == (told["steps"], told["seen"], "solar")
    assert len(learner.memory.table()["id"]) == 24


def test_a_run_of_an_earlier_version_is_resumed_to_its_end(folder: Path) -> None:
    before = [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    metrics = execute(folder, Progress(Bars(Console(), quiet=True)), Stop())
    assert metrics is not None
    assert metrics["steps"] == 12
    after = [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    assert after[: len(before)] == before  # what had been done was not done again
    assert len(after) == 6
