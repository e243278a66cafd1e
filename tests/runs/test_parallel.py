"""Runs side by side in processes of their own: the same bits as alone, stopped and continued together."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conftest import SMALL_STREAM, small_settings
from ocssl.errors import OcsslError
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import create, finished
from ocssl.runs.parallel import _Diary, run_side_by_side
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop


def make(folder: Path, method: str, **more: Any) -> Path:
    create(folder, resolve_run(method, "synthetic", 0, {**small_settings(method), **SMALL_STREAM, **more}))
    return folder


def test_runs_side_by_side_give_the_same_numbers_as_alone(tmp_path: Path) -> None:
    text = io.StringIO()
    folders = {method: make(tmp_path / method, method) for method in ("solar", "er-fifo")}
    assert run_side_by_side(folders, Bars(Console(file=text)), Stop())
    alone = make(tmp_path / "alone", "solar")
    expected = execute(alone, Progress(Bars(Console(), quiet=True)), Stop())
    together = finished(folders["solar"])
    assert expected is not None
    assert together is not None
    assert {**together, "seconds": 0} == {**expected, "seconds": 0}
    for method in folders:
        assert f"{method:<14} after experience 2" in text.getvalue()


def test_a_stop_reaches_every_run_and_all_can_be_continued(tmp_path: Path) -> None:
    folders = {m: make(tmp_path / m, m, **{"stream.train": 100}) for m in ("solar", "er-fifo")}
    stop = Stop()

    class StopAtFirstStep(Bars):
        def step(self, *args: Any, **kwargs: Any) -> None:
            stop.signal = signal.SIGINT

    assert not run_side_by_side(folders, StopAtFirstStep(Console(), quiet=True), stop)
    assert not all(finished(folder) for folder in folders.values())
    assert run_side_by_side(folders, Bars(Console(), quiet=True), Stop())
    assert all(finished(folder) for folder in folders.values())


def test_a_run_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    folders = {"solar": make(tmp_path / "solar", "solar", **{"optimizer.lr": 1e30})}
    with pytest.raises(OcsslError, match="not finite"):
        run_side_by_side(folders, Bars(Console(), quiet=True), Stop())


def test_a_diary_that_is_cut_and_written_again_is_told_once(tmp_path: Path) -> None:
    def line(position: int, filler: str) -> str:
        return json.dumps({"event": "step", "position": position, "filler": filler}) + "\n"

    path = tmp_path / "events.jsonl"
    diary = _Diary(path)
    assert list(diary.new()) == []
    path.write_text("".join(line(i, "x" * i) for i in range(5)) + '{"event": "st')
    assert [e["position"] for e in diary.new()] == [0, 1, 2, 3, 4]
    path.write_text("".join(line(i, "longer" * 9) for i in range(8)))  # our place is in the middle of a line now
    told = [e["position"] for _ in range(2) for e in diary.new()]
    assert told == [5, 6, 7]
    path.write_text(line(0, ""))  # shorter than our place
    assert list(diary.new()) == []
