"""Fourteen methods at equal compute: passes by an independent count, ranks, Holm's intervals, and the page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from conftest import ROOT
from ocssl.cost.layers import Passes, passes_of
from ocssl.results.compare import t_quantile
from ocssl.results.paper import Planned, equal_compute, field, read_plan, read_scale, runs_of
from ocssl.results.paper.equal_compute import equal_passes, with_passes, work
from ocssl.results.paper.field import (
    Block,
    Gap,
    against,
    block_name,
    blocks_of,
    complete,
    gap,
    holm,
    overall,
    ranks,
    tables,
)
from ocssl.results.paper.run_store import Group, Result
from ocssl.runs.config import resolve_run
from ocssl.settings import LearnerSettings

sys.path.insert(0, str(ROOT / "benchmarks"))
SMALL = {"encoder.width": 4, "stream.image_size": 8, "memory.capacity": 200, "objective.projection": 16}

# Rows of one pass through the encoder and its copies: two views of 138, forwards (1) and backwards (2); by hand.
FULL, TEACHER, SNAPSHOT, TEN, GLANCE = 3 * 276, 276, 138, 3 * 20, 20
BY_HAND = {
    "er-fifo": (FULL, 0, 6),
    "solar": (FULL, 0, 6),
    "cla-r": (FULL, 0, 6),
    "cla-e": (FULL + TEACHER, 0, 4),
    "climb": (FULL + TEACHER, 0, 4),
    "scale": (FULL + SNAPSHOT, 0, 5),
    "minred": (FULL, GLANCE, 6),
    "storyboard": (FULL, GLANCE, 6),
    "lump": (TEN, 0, 84),
}


@pytest.mark.parametrize("method", list(BY_HAND))
def test_passes_are_the_most_whose_rows_stay_within_those_of_fifo(method: str) -> None:
    a_pass, once, wanted = BY_HAND[method]
    settings = resolve_run(method, "synthetic", 0, SMALL)
    budget = work(resolve_run("er-fifo", "synthetic", 0, SMALL))
    assert budget == 6 * FULL
    assert work(with_passes(settings, 3)) == 3 * a_pass + once
    assert equal_passes(settings, budget) == wanted == (1.02 * budget - once) // a_pass
    assert work(with_passes(settings, wanted)) <= 1.02 * budget < work(with_passes(settings, wanted + 1))


def test_a_method_dearer_than_the_budget_has_one_pass() -> None:
    assert equal_passes(resolve_run("cla-e", "synthetic", 0, SMALL), 10.0) == 1


def test_runs_that_differ_in_seed_or_stream_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def counting(learner: LearnerSettings) -> Passes:
        counted.append(learner.schedule.passes)
        return passes_of(learner)

    monkeypatch.setattr(equal_compute, "_counted", {})
    monkeypatch.setattr(equal_compute, "passes_of", counting)
    streams = [(seed, blurry) for seed in (0, 1) for blurry in (0.0, 0.3)]
    runs = [resolve_run("er-fifo", "synthetic", seed, {**SMALL, "stream.blurry": blurry}) for seed, blurry in streams]
    runs += [with_passes(run, 1) for run in runs]
    found = [work(run) for run in runs]
    assert found == [6.0 * FULL] * 4 + [1.0 * FULL] * 4
    assert counted == [6, 1]


@pytest.fixture(scope="module")
def planned() -> Iterator[list[Planned]]:
    """The plan on one benchmark; what is counted above is not counted again for every row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal_compute, "work", lambda settings: 6.0)
        patch.setattr(equal_compute, "equal_passes", lambda settings, budget: round(budget))
        runs = runs_of(replace(read_plan("field"), seeds=[0]), read_scale("mini", "pacs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field, "work", lambda settings: float(settings.schedule.passes))
        yield runs


def test_the_plan_has_fourteen_methods_three_streams_and_two_objectives(planned: list[Planned]) -> None:
    assert len({run.row for run in planned}) == 14
    assert list(read_plan("field").seeds) == [0, 1, 2]
    assert len(planned) == 14 * 3 * 2
    assert len({run.address for run in planned}) == (12 * 2 + 2) * 3  # two have a loss of their own
    names = {block_name(run) for run in planned}
    assert {"pacs, regular, simsiam", "pacs, blurry 0.3, simclr", "pacs, irregular, simclr"} <= names
    assert len(names) == 6
    for run in planned:
        own = run.row in ("SCALE", "Osiris-R")
        assert run.settings.objective.name == ("none" if own else run.point["objective.name"])
        assert run.settings.stream.order == run.point.get("stream.order", "domain")
    shared = {"optimizer", "views", "encoder", "evaluate"}  # nothing is tuned for one method
    assert all(len({getattr(run.settings, name).model_dump_json() for run in planned}) == 1 for name in shared)
    assert {run.settings.memory.capacity for run in planned} == {200}
    assert {run.settings.terms["overlap"]["k"] for run in planned if "overlap" in run.settings.terms} == {50}
    assert {run.settings.schedule.passes for run in planned} == {6}  # what the count gave


# ---- statistics


def test_ranks_share_the_mean_of_equal_ones() -> None:
    assert ranks({"a": 3.0, "b": 5.0, "c": 3.0, "d": 1.0}) == {"b": 1.0, "a": 2.5, "c": 2.5, "d": 4.0}


def test_holms_intervals_are_students_at_the_level_of_their_place() -> None:
    data = {"far": [5.0, 5.2, 5.1, 4.9], "near": [1.0, 1.5, 0.4, 1.2], "none": [0.5, -0.5, 0.1, -0.2]}
    found = {one.name: one for one in holm([gap(name, values) for name, values in data.items()])}
    for k, name in enumerate(["far", "near", "none"]):  # by p-value, the smallest first
        own = data[name]
        half = t_quantile(3, 1 - 0.05 / (3 - k)) * stdev(own) / 2
        assert found[name].half == pytest.approx(half)
        assert found[name].mean == pytest.approx(fmean(own))
    assert [found[name].clear for name in data] == [True, found["near"].mean > (found["near"].half or 0), False]
    alone = holm([gap("near", data["near"])])[0]
    assert (alone.half or 0) < (found["near"].half or 0)  # more comparisons, wider intervals


def test_nothing_is_clear_behind_what_is_not_clear() -> None:
    first, second = Gap("a", 1.0, 3, 0.04, error=0.6), Gap("b", 9.0, 50, 0.041, error=4.3)
    found = {one.name: one for one in holm([first, second])}
    assert not found["a"].clear
    assert abs(found["b"].mean) > (found["b"].half or 0)
    assert not found["b"].clear


def test_few_seeds_have_no_interval() -> None:
    assert [one.half for one in holm([gap("a", [1.0]), gap("b", [1.0, 2.0]), gap("c", [1.0, 1.0, 1.0])])] == [None] * 3


def test_differences_are_of_shared_seeds_inside_a_block() -> None:
    blocks = [Block(f"b{i}", {"FIFO": {0: 10.0 + i, 1: 20.0}, "X": {0: 11.0 + i, 2: 99.0}}) for i in range(2)]
    assert [(one.name, one.mean, one.pairs) for one in against(blocks, "FIFO")] == [
        ("b0: X", 1.0, 1),
        ("b1: X", 1.0, 1),
    ]
    assert [(one.name, one.mean, one.pairs) for one in overall(blocks, "FIFO")] == [("X", 1.0, 2)]


def test_only_blocks_with_all_methods_are_ranked() -> None:
    whole = Block("whole", {"FIFO": {0: 1.0, 1: 2.0}, "X": {1: 3.0}})
    without_x, no_shared_seed = Block("without X", {"FIFO": {0: 1.0}}), Block("none", {"FIFO": {0: 1.0}, "X": {1: 3.0}})
    assert complete([without_x, whole, no_shared_seed], ["FIFO", "X"]) == [whole]
    assert complete([without_x], ["FIFO"]) == [without_x]


# ---- the page


def groups_of(planned: list[Planned], seeds: tuple[int, ...]) -> list[Group]:
    place: dict[tuple[str, str], list[Result]] = {}
    for run in planned:
        if run.settings.seed in seeds and block_name(run) == "pacs, regular, simsiam":
            score = 10 + len(run.row) + 0.1 * run.settings.seed
            metrics: dict[str, Any] = {"average_accuracy": score}
            place.setdefault((run.row, repr(run.point)), []).append(Result(run, Path("none"), metrics))
    return [Group(results[0].planned.row, results[0].planned.point, "pacs", results, 3) for results in place.values()]


def test_tables_say_what_has_not_been_run(planned: list[Planned]) -> None:
    plan = read_plan("field")
    nothing = tables(plan, planned, [], "FIFO")
    assert [table.title for table in nothing] == ["Cost", "What has been run"]
    assert {row.cells[1] for row in nothing[1].rows} == {"0 of 14"}
    groups = groups_of(planned, (0,))
    found = {table.title: table for table in tables(plan, planned, groups, "FIFO")}
    assert {
        tuple(row.cells[1:]) for row in found["What has been run"].rows if row.cells[0] == "pacs, regular, simsiam"
    } == {("14 of 14", "0")}
    best = found[plan.title].rows[0].cells
    assert best[0] == "Storyboard"  # the longest name has the highest made-up score
    assert best[2] == "1.0"
    assert all("too few seeds" in row.cells[3] or row.cells[0] == "FIFO" for row in found["Block by block"].rows)
    titles = [table.title for table in tables(plan, planned, groups[:-1], "FIFO")]
    assert titles == ["Block by block", "Cost", "What has been run"]  # no ranks: a method is missing
    [block] = blocks_of(groups)
    assert block.name == "pacs, regular, simsiam"
    assert len(block.scores) == 14


def test_the_command_shows_the_tables_and_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: list[Planned], capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from ocssl.results.paper import reproduce
    from ocssl.results.paper.run_store import RunStore
    from ocssl.runs.stop import Stop

    monkeypatch.setattr(reproduce, "runs_of", lambda plan, scale: planned)
    scale, console = read_scale("mini", "pacs"), Console(width=120)
    diagnoses = reproduce.Diagnoses(RunStore(tmp_path, {}), scale, console, 1, Stop())
    shown: list[Any] = []
    reproduce._show(read_plan("field"), scale, groups_of(planned, (0, 1)), diagnoses, console, shown)
    assert len(shown) == 4
    assert "LUMP" in capsys.readouterr().out
    text = (tmp_path / "field.md").read_text()
    assert all(f"**{title}**" in text for title in ("Block by block", "Cost", "What has been run"))


def test_the_page_of_an_empty_folder_is_the_plan_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: list[Planned]
) -> None:
    import field_page  # type: ignore[import-not-found, unused-ignore]

    monkeypatch.setattr(field_page, "runs_of", lambda plan, scale: planned if scale.benchmark == "pacs" else [])
    text = field_page.page(tmp_path)
    assert "**0 of 78 planned runs are finished.**" in text
    assert "There are no results yet" in text
    assert "| pacs, irregular, simclr | 0 of 14 | - |" in text
