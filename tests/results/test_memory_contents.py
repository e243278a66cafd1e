"""What memories hold: shares by time of arrival from a saved learner's own table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ocssl
from conftest import ROOT
from ocssl.results.read_runs import Run

sys.path.insert(0, str(ROOT / "benchmarks"))

from memory_contents import contents, shares, table_of

SETTINGS = {"encoder.width": 2, "memory.capacity": 8, "schedule.passes": 1, "schedule.batch": 12}


def saved(folder: Path, method: str) -> Run:
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    learner = ocssl.Learner(method, image_size=8, settings=SETTINGS)
    for start in range(0, 40, 4):
        learner.partial_fit(images[start : start + 4])
    learner.save(folder)
    return Run(folder, method, "made-up", 0, "", {}, finished=True, name=method, series=method)


def test_a_fifo_memory_holds_the_end_of_the_stream(tmp_path: Path) -> None:
    found, draws, loss = contents(saved(tmp_path / "fifo", "er-fifo"))
    assert found == [0.0, 0.0, 0.0, 0.0, 1.0]  # 8 slots of 40 images: the last fifth
    table = ocssl.Learner.load(tmp_path / "fifo").memory.table()
    assert draws == np.median(table["draws"])
    assert loss == pytest.approx(float(np.mean(table["loss"], dtype=np.float64)), rel=1e-5)


def test_every_slot_is_in_one_part_of_the_stream(tmp_path: Path) -> None:
    run = saved(tmp_path / "reservoir", "er-reservoir")
    found, *_ = contents(run)
    born = ocssl.Learner.load(run.folder).memory.table()["born"]
    assert sum(found) == pytest.approx(1)
    assert found == [float(np.mean((born >= low) & (born < low + 8))) for low in range(0, 40, 8)]
    assert shares(np.array([39, 40]), 40) == [0, 0, 0, 0, 1]  # numbers of arrival that start at 1 stay inside


def test_the_table_has_a_row_a_method(tmp_path: Path) -> None:
    table = table_of([saved(tmp_path / name, name) for name in ("er-fifo", "solar")])
    assert [row.cells[0] for row in table.rows] == ["er-fifo", "solar"]
    assert table.rows[0].cells[2:7] == ["0 %", "0 %", "0 %", "0 %", "100 %"]
    assert {len(row.cells) for row in table.rows} == {len(table.headers)}
