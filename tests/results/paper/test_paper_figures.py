"""Every table and figure from invented runs: what is drawn is the mean and deviation of what the runs say."""

from __future__ import annotations

import io
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from made_up import TASKS, invent, look
from rich.console import Console

from ocssl._core.table import Table
from ocssl.results.chart import Panel
from ocssl.results.paper import Plan, Planned, plan_names, read_plan, read_scale, runs_of
from ocssl.results.paper.paper_figures import KINDS, panels_of
from ocssl.results.paper.paper_tables import accuracy_table, rules_table, time_table
from ocssl.results.paper.reproduce import DIAGNOSES, Diagnoses, _show
from ocssl.results.paper.run_store import Group, Result, RunStore
from ocssl.runs.folder import METRICS
from ocssl.runs.stop import Stop

pytestmark = pytest.mark.slow

MINI = read_scale("mini", "synthetic")
Made = tuple[Plan, list[Planned], list[Group], dict[str, dict[str, Any]]]


def make(name: str, folder: Path) -> Made:
    plan = read_plan(name)
    runs = runs_of(plan, MINI)
    store = RunStore(folder, {})
    metrics: dict[str, dict[str, Any]] = {}
    for run in runs:
        if run.address not in metrics:
            metrics[run.address] = invent(store.folder(run), run)
    return plan, runs, store.gather(runs), metrics


def diagnoses(result: Result) -> list[dict[str, Any]]:
    return look(result.planned)


@pytest.mark.parametrize("name", plan_names())
def test_every_plan_is_shown_and_written(name: str, tmp_path: Path) -> None:
    plan, runs, groups, _ = make(name, tmp_path)
    for run in runs:
        path = tmp_path / DIAGNOSES / f"{run.address[:32]}-{MINI.diagnosed}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(look(run)))
    text = io.StringIO()
    console = Console(file=text, width=250)
    shown: list[Table] = []
    _show(plan, MINI, groups, Diagnoses(RunStore(tmp_path, {}), MINI, console, 1, Stop()), console, shown)
    assert shown
    said = " ".join(text.getvalue().split())
    assert plan.title in said
    assert "mini" in said
    for number, show in enumerate(plan.show, 1):
        path = tmp_path / (name if len(plan.show) == 1 else f"{name}-{number}")
        suffixes = (".png", ".pdf", ".csv") if show["kind"] in KINDS else (".md", ".tex", ".csv")
        assert all(path.with_suffix(suffix).stat().st_size > 100 for suffix in suffixes)
        assert "mini" in path.with_suffix(".csv").read_text().splitlines()[-1] or show["kind"] not in KINDS


def test_a_table_has_our_means_beside_the_papers(tmp_path: Path) -> None:
    plan, runs, groups, metrics = make("table2", tmp_path)
    table = accuracy_table(plan, MINI, groups)
    assert list(table.headers) == ["", "Final", "Average"] + ["Final", "Average"] * 2
    assert list(table.above[1:]) == ["mini, synthetic"] * 2 + ["paper, CIFAR-100"] * 2 + ["paper, ImageNet-100"] * 2
    for row in table.rows:
        own = [metrics[run.address] for run in runs if run.row == row.cells[0]]
        assert len(own) == 3
        for cell, key in zip(row.cells[1:3], ("final_accuracy", "average_accuracy"), strict=True):
            values = [m[key] for m in own]
            assert cell == f"{fmean(values):.1f} ± {stdev(values):.1f}"
    assert table.rows[-1].cells[3:] == ["49.5", "42.3", "49.4", "42.8"]
    assert "no reproduction" in table.caption


def test_a_run_that_is_missing_leaves_a_dash(tmp_path: Path) -> None:
    plan, _, groups, _ = make("table2", tmp_path)
    table = accuracy_table(plan, MINI, groups[1:])
    assert table.rows[0].cells[1:3] == ["-", "-"]
    assert "-" not in table.rows[1].cells[1:3]


def test_seeds_that_are_missing_or_damaged_are_said_beside_the_number(tmp_path: Path) -> None:
    plan, runs, _, metrics = make("table2", tmp_path)
    first, second, third = (run for run in runs if run.row == "FIFO")
    store = RunStore(tmp_path, {})
    (store.folder(second) / METRICS).unlink()
    (store.folder(third) / METRICS).write_text("{")
    groups = store.gather(runs)
    table = accuracy_table(plan, MINI, groups)
    cells = {row.cells[0]: row.cells[1] for row in table.rows}
    assert cells["FIFO"] == f"{metrics[first.address]['final_accuracy']:.1f} (1 of 3 seeds)"
    assert "seeds" not in cells["Reservoir"]
    (panel, *_) = panels_of({"kind": "curves", "measures": ["accuracy"]}, groups, diagnoses)
    assert "FIFO (1 of 3 seeds)" in [line.name for line in panel.items]


def test_what_pre_training_gave_is_what_others_start_from(tmp_path: Path) -> None:
    plan, _, groups, _ = make("table3", tmp_path)
    table = accuracy_table(plan, MINI, groups, "Pre-trained")
    assert table.rows[0].cells == ["Pre-trained", "10.0", "-", "36.4", "-"]


def test_times_leave_probing_out_and_are_ratios(tmp_path: Path) -> None:
    plan, _, groups, _ = make("table6", tmp_path)
    table = time_table(plan, MINI, groups, "Reservoir")
    assert [row.cells[1] for row in table.rows] == ["3.0"] * 9
    assert {row.cells[2] for row in table.rows} == {"1.00"}
    assert table.rows[-1].cells[3:] == ["2409", "1.12"]


def test_rules_are_those_of_the_recipes() -> None:
    rows = {row.cells[0]: row.cells[1:] for row in rules_table(read_plan("table5"), MINI).rows}
    assert rows["MIR"] == ["reservoir", "mir", "no"]
    assert rows["GSS"] == ["gss", "uniform", "no"]
    assert rows["PER"] == ["fifo", "per", "yes"]
    assert rows["LARS"] == ["lars", "uniform", "yes"]
    assert rows["Deviation-Aware"] == ["highest-loss", "least-drawn", "yes"]


def panels(name: str, folder: Path) -> tuple[list[list[Panel]], Made]:
    made = make(name, folder)
    plan, _, groups, _ = made
    return [panels_of(show, groups, diagnoses) for show in plan.show], made


def test_a_number_against_a_setting(tmp_path: Path) -> None:
    ((final, average),), (_, runs, _, metrics) = panels("figure6", tmp_path)
    assert (final.y, average.y) == ("Final Accuracy, %", "Average Accuracy, %")
    for panel, key in ((final, "final_accuracy"), (average, "average_accuracy")):
        assert [line.name for line in panel.items] == ["Reservoir", "FIFO", "MinRed", "SOLAR"]
        for line in panel.items:
            assert line.x == [50, 100, 200, 500]  # slots that were run with, not the paper's
            for x, mean, deviation in zip(line.x, line.y, line.deviation, strict=True):
                own = [r for r in runs if r.row == line.name and r.settings.memory.capacity == x]
                values = [metrics[r.address][key] for r in own]
                assert mean == pytest.approx(fmean(values))
                assert deviation == pytest.approx(stdev(values))


def test_courses_along_the_stream(tmp_path: Path) -> None:
    ((accuracy, deviation, overlap, loss),), (_, runs, _, metrics) = panels("figure10", tmp_path)
    for line in accuracy.items:
        assert line.x == [25, 50, 75, 100]
        own = [metrics[run.address]["accuracies"] for run in runs if run.row == line.name]
        assert line.y == pytest.approx([fmean(values) for values in zip(*own, strict=True)])
    for panel, key in ((deviation, "deviation"), (overlap, "overlap")):  # not those of the runs' own evaluations
        for line in panel.items:
            assert line.x == [0, 25, 50, 75, 100]
            own = [[row["stream"][key] for row in look(run)] for run in runs if run.row == line.name]
            assert line.y == pytest.approx([fmean(values) for values in zip(*own, strict=True)])
    assert len(loss.items[0].y) == 8
    assert all(-1 < y < 0 for y in loss.items[0].y if y is not None)


def test_past_current_and_future_tasks_and_each_task(tmp_path: Path) -> None:
    ((_,), (times,)), (_, runs, _, metrics) = panels("figure2", tmp_path)
    assert [line.name for line in times.items][:3] == ["Reservoir, past", "Reservoir, current", "Reservoir, future"]
    own = [run for run in runs if run.row == "FIFO" and run.settings.schedule.passes == 6]
    matrices = [metrics[run.address]["tasks"]["matrix"] for run in own]
    current = next(line for line in times.items if line.name == "FIFO, current")
    assert current.y == pytest.approx([fmean(m[i][i] for m in matrices) for i in range(TASKS)])
    past = next(line for line in times.items if line.name == "FIFO, past")
    assert past.y[0] is None
    assert past.y[2] == pytest.approx(fmean((m[2][0] + m[2][1]) / 2 for m in matrices))
    (each,), (_, runs, _, metrics) = panels("figure8", tmp_path / "8")
    assert [panel.title for panel in each] == ["synthetic: Reservoir", "synthetic: FIFO"]
    assert [len(panel.items) for panel in each] == [TASKS, TASKS]


def test_looks_back_at_stream_memory_and_stored_statistics(tmp_path: Path) -> None:
    ((overlap,),), (_, runs, _, _) = panels("figure15", tmp_path)
    assert [line.name for line in overlap.items] == ["SOLAR, stream", "SOLAR, memory", "SOLAR, online"]
    looks = [look(run) for run in runs]
    for line, place in zip(overlap.items, ("stream", "memory", "online"), strict=True):
        assert line.x == [0, 25, 50, 75, 100]
        assert line.y[3] == pytest.approx(fmean(rows[3][place]["overlap"] for rows in looks))
    (uniform,), (_, runs, _, _) = panels("figure13", tmp_path / "13")
    assert [panel.title.rpartition(": ")[2] for panel in uniform] == [f"{t} experiences" for t in TIMES]
    assert uniform[0].items[0].y[:2] == [None, None]


TIMES = ("past", "current", "future")


def test_spectra_at_the_moments_that_a_figure_names(tmp_path: Path) -> None:
    (end,), (_, runs, _, _) = panels("figure12", tmp_path)
    assert [panel.y for panel in end] == ["singular value", "normalised", "cumulative explained variance"]
    looks = [look(run) for run in runs if run.row == "FIFO"]
    values = [rows[-1]["test"]["shape"]["normalised"] for rows in looks]
    assert end[1].items[1].y == pytest.approx([fmean(v) for v in zip(*values, strict=True)])
    (all_three,), _ = panels("figure20", tmp_path / "20")
    assert len(all_three) == 9
    assert [line.name for line in all_three[0].items] == [  # early: nothing is past
        "Reservoir, current",
        "Reservoir, future",
        "FIFO, current",
        "FIFO, future",
    ]


def test_a_deviation_over_one_seed_too_few_is_noticed(tmp_path: Path) -> None:
    plan, _, groups, _ = make("table2", tmp_path)
    short = [Group(g.row, g.point, g.benchmark, g.results[:2], 2) for g in groups]
    assert accuracy_table(plan, MINI, short).rows[0].cells[1:3] != accuracy_table(plan, MINI, groups).rows[0].cells[1:3]


def test_on_the_screen_a_table_fits_a_terminal_and_says_everything(tmp_path: Path) -> None:
    plan, _, groups, _ = make("table2", tmp_path)
    table, text = accuracy_table(plan, MINI, groups), io.StringIO()
    Console(file=text, width=80).print(table)
    shown = text.getvalue()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    for row in table.rows:
        assert all(cell.replace(" ± ", "±") in shown for cell in row.cells[1:])
        assert all(word in shown for word in row.cells[0].split())
