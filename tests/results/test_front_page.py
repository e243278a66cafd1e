"""The README's table and curves are those of the kept runs, and the command that writes them follows the runs."""

from __future__ import annotations

import sys
from pathlib import Path

from test_page import make_run

from conftest import ROOT
from ocssl.results.run_groups import find_runs

sys.path.insert(0, str(ROOT / "benchmarks"))

import front_page


def test_the_table_and_the_curves_are_those_of_the_kept_runs() -> None:
    runs, readme = find_runs([front_page.RUNS]), front_page.README.read_text()
    assert front_page.with_table(readme, front_page.table(runs)) == readme  # python benchmarks/front_page.py
    assert front_page.picture(runs) == front_page.PICTURE.read_text()


def test_the_table_follows_the_runs(tmp_path: Path) -> None:
    one, two = tmp_path / "a", tmp_path / "b"
    for seed, folder in enumerate((one, two)):
        make_run(folder, "er-fifo", seed, accuracies=(10.0, 20.0 + seed), recipe="er-fifo")
    alone = make_run(tmp_path / "c", settings={"terms.overlap.weight": 0.0}, accuracies=(30.0, 40.0))
    rows = front_page.table(find_runs([one, two, alone])).splitlines()[2:]
    assert rows[0].startswith("| Deviation-Aware | 40.0 (1) | 35.0 (1) | 47.7 / 41.4 |")
    assert rows[1].startswith("| FIFO | 20.5 (2) | 15.2 (2) | 49.0 / 39.3 |")
    assert front_page.cell([1.0, 2.0, 3.0]) == "2.0 ± 1.0"


def test_rows_with_too_few_seeds_wait_until_they_have_enough(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path / f"fifo{seed}", "er-fifo", seed, recipe="er-fifo")
    make_run(tmp_path / "minred0", "minred", 0, recipe="minred")
    runs = find_runs([tmp_path])
    assert {run.method for run in front_page.complete(runs)} == {"er-fifo"}
    assert "MinRed" not in front_page.table(runs)
    assert front_page.complete([run for run in runs if run.method == "minred"])
