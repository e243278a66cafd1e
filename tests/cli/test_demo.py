"""The demo as a user runs it, in a smaller size; and again, and after an interruption."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from ocssl.cli import demo
from ocssl.errors import RunFolderError
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import create

pytestmark = pytest.mark.slow

TINY = {
    "stream.image_size": 8,
    "stream.train": 6,
    "stream.test": 2,
    "encoder.width": 2,
    "memory.capacity": 20,
    "schedule.passes": 1,
    "schedule.stream_batch": 4,
    "evaluate.latent_samples": 20,
}


def run(out: Path) -> str:
    text = io.StringIO()
    assert demo.run_demo(out, 0, Console(file=text, width=100)) == 0
    return text.getvalue()


def test_the_demo_prints_a_table_and_makes_a_report_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "COMMON", demo.COMMON | TINY)
    (tmp_path / "keep.txt").write_text("a user's own file")
    first = run(tmp_path)
    for method in demo.METHODS:
        metrics = json.loads((tmp_path / method / "metrics.json").read_text())
        assert f"{metrics['average_accuracy']:.1f}" in first
    averages = [float(line.split("│")[4]) for line in first.splitlines() if line.startswith("│")]
    assert averages == sorted(averages, reverse=True)
    assert "too few seeds to tell which is better" in first
    assert str(tmp_path / "report.html") in first
    assert "<html" in (tmp_path / "report.html").read_text()[:500]
    (tmp_path / "solar" / "metrics.json").unlink()  # as after an interruption
    second = run(tmp_path)
    table = [line.split("│")[:5] for line in first.splitlines() if "│" in line]
    assert table == [line.split("│")[:5] for line in second.splitlines() if "│" in line]
    assert (tmp_path / "keep.txt").exists()


def test_the_demo_never_replaces_a_run_that_is_not_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "solar"
    create(folder, resolve_run("solar", "synthetic", 0, {}))
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="not the demo's"):
        demo._prepare(folder, resolve_run("solar", "synthetic", 1, {}))
    assert (folder / "notes.txt").exists()
