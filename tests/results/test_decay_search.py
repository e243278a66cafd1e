"""The search for decay: its criterion on made-up runs, and its specs, which say what the issue of decay asks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import ROOT
from ocssl.launch.sweep import plan, read_spec
from ocssl.results.read_runs import Evaluation, Run

sys.path.insert(0, str(ROOT / "benchmarks"))

from decay_search import Course, cells_of, course_of, table_of

SPECS = sorted((ROOT / "docs" / "results" / "search-decay" / "specs").glob("*.toml"))
UP, DOWN = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
DECAYING = ([10.0, 20.0, 18.5, 17.0], DOWN, UP)


def run(method: str, seed: int, curves: Sequence[Sequence[float]], width: int = 16) -> Run:
    accuracy, deviation, overlap = curves
    settings = {"method": method, "seed": seed, "memory.keep": method, "encoder.width": width}
    made = Run(Path(f"{method}{seed}"), method, "cifar100", seed, "", settings, finished=True)
    made.evaluations = [Evaluation(0, 0.0, 0.0, {"accuracy": 99.0, "deviation": 1.0, "overlap": 0.0})]
    for i, (a, d, o) in enumerate(zip(accuracy, deviation, overlap, strict=True), 1):
        made.evaluations.append(Evaluation(i, 25.0 * i, 10.0 * i, {"accuracy": a, "deviation": d, "overlap": o}))
    return made


def test_a_course_begins_at_the_highest_accuracy_after_the_start() -> None:
    found = course_of(run("er-reservoir", 0, DECAYING))
    assert found == Course(pytest.approx(3.0), pytest.approx(-0.2), pytest.approx(0.2))
    assert found is not None
    assert found.decays


@pytest.mark.parametrize(
    "curves",
    [
        ([10.0, 20.0, 19.0, 18.1], DOWN, UP),  # by less than two points
        ([10.0, 20.0, 18.5, 17.0], UP, UP),  # Deviation rises
        ([10.0, 20.0, 18.5, 17.0], DOWN, DOWN),  # Overlap falls
        ([10.0, 20.0, 17.0, 21.0], DOWN, UP),  # it recovers
    ],
)
def test_one_sign_less_is_no_decay(curves: Sequence[Sequence[float]]) -> None:
    found = course_of(run("er-reservoir", 0, curves))
    assert found is not None
    assert not found.decays


def steady(seed: int, width: int = 16) -> Run:
    return run("er-fifo", seed, ([10.0, 15.0, 18.0, 19.0], DOWN, UP), width)


def test_a_cell_decays_with_three_seeds_of_three_and_not_with_fifo() -> None:
    good = [run("er-reservoir", seed, DECAYING) for seed in range(3)] + [steady(seed) for seed in range(3)]
    [cell] = cells_of(good)
    assert cell.decays
    fifo_too = [*good[:3], *(run("er-fifo", seed, DECAYING) for seed in range(3))]
    one_does_not = [*good[:2], run("er-reservoir", 2, ([1.0, 2.0, 3.0, 4.0], DOWN, UP)), *good[3:]]
    for runs in (fifo_too, one_does_not, good[1:], good[:5]):
        assert not cells_of(runs)[0].decays


def test_the_nearest_cell_comes_first_and_is_named_by_what_differs() -> None:
    wide = [run("er-reservoir", 0, DECAYING, 64), steady(0, 64)]
    narrow = [run("er-reservoir", 0, ([10.0, 20.0, 19.5, 19.0], DOWN, UP), 16), steady(0, 16)]
    cells = cells_of([*narrow, *wide])
    assert [cell.name for cell in cells] == ["encoder.width=64", "encoder.width=16"]
    rows = table_of(cells).rows
    assert list(rows[0].cells[:4]) == ["encoder.width=64", "1 of 1", "0 of 1", "+3.0"]
    assert rows[0].cells[-1] == "no"  # one seed is not three


def test_other_methods_and_settings_that_older_runs_lack_make_no_cells() -> None:
    new = steady(1)
    new.settings["memory.center"] = "none"
    [cell] = cells_of([run("er-reservoir", 0, DECAYING), steady(0), new, run("solar", 0, DECAYING)])
    assert (cell.name, len(cell.reservoir), len(cell.fifo)) == ("all", 1, 2)


def test_runs_that_are_not_finished_or_hold_nothing_are_left_out() -> None:
    half, empty = run("er-reservoir", 0, DECAYING), run("er-reservoir", 1, DECAYING)
    half.finished, empty.evaluations = False, []
    assert cells_of([half, empty]) == []
    assert list(table_of([]).rows) == []


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec_has_reservoir_beside_fifo_in_each_cell(path: Path) -> None:
    runs = plan(read_spec(path))
    assert {run.settings.method for run in runs} == {"er-reservoir", "er-fifo"}
    assert all(run.settings.optimizer.schedule == "constant" for run in runs)


def test_the_specs_cover_what_theory_points_to() -> None:
    runs = [run.settings for path in SPECS for run in plan(read_spec(path))]
    wide = [run for run in runs if run.encoder.model_dump()["width"] == 64]
    assert {run.stream.image_size for run in wide} == {8, 12}
    assert {run.objective.name for run in wide} == {"simsiam", "simclr", "byol"}
    assert min(run.memory.capacity for run in wide) == 50
    assert max(run.schedule.passes for run in wide) == 30
    assert {run.optimizer.lr for run in wide} == {0.05, 0.2}
    assert any(run.stream.fraction == 1 and run.schedule.passes == 6 for run in runs)  # 27,000 steps
