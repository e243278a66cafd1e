"""The tables of the results page are those of the kept runs; differences are paired, and corrected for their number."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean, stdev

import pytest

from conftest import ROOT
from ocssl.results.compare import t_quantile
from ocssl.results.read_runs import Evaluation, MemorySummary, Run

sys.path.insert(0, str(ROOT / "benchmarks"))

import evidence_tables
from evidence_tables import agrees, differences, gaps, name_of, rank_at_the_end, results, words


def run(seed: int, final: float, average: float) -> Run:
    made = Run(Path(f"r{seed}"), "any", "cifar100", seed, "", {}, finished=True, final=final, average=average)
    made.evaluations = [Evaluation(i, 20.0 * i, i, {"accuracy": float(i), "overlap": 0.25}) for i in range(1, 6)]
    made.memories = [MemorySummary(100.0, 4, (), (0.0, 1.0, 30.0 + seed, 50.0, 99.0), (), (), (3, 0, 1))]
    made.trace = {"share": [50.0, 89.0, 90.0, 100.0], "participation_ratio": [1.0, 2.0, 4.0, 6.0]}
    return made


OURS = [run(0, 11.0, 21.0), run(1, 12.0, 22.0), run(2, 13.0, 23.0)]
OTHER = [run(2, 12.5, 20.0), run(1, 10.0, 20.0), run(0, 10.0, 20.0), run(9, 99.0, 99.0)]


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_kept_runs() -> None:
    page = evidence_tables.PAGE.read_text()
    assert evidence_tables.PLACE.search(page)
    assert evidence_tables.LABEL_FREE.search(page)
    assert evidence_tables.filled(page) == page  # python benchmarks/evidence_tables.py


def test_differences_pair_equal_seeds_whatever_their_order() -> None:
    found = {one.name: one for one in gaps({"SOLAR-C": OURS, "X": OTHER})}
    final = [1.0, 2.0, 0.5]  # seed 9 has no partner
    assert found["X: final"].mean == pytest.approx(mean(final))
    assert found["X: final"].pairs == 3
    half = t_quantile(2) * stdev(final) / 3**0.5
    low, high = mean(final) - half, mean(final) + half
    assert words(found["X: final"])[0] == f"+1.2 [{low:.1f}, {high:.1f}]"


def test_the_p_value_that_is_clear_alone_is_not_among_many() -> None:
    alone = {"SOLAR-C": OURS, "X": [run(s, f - d, 21.0 + s) for s, f, d in [(0, 11, 1.0), (1, 12, 1.3), (2, 13, 0.9)]]}
    many = {**alone, **{f"Y{i}": OTHER for i in range(9)}}
    assert {one.name: one.clear for one in gaps(alone)}["X: final"]
    assert not {one.name: one.clear for one in gaps(many)}["X: final"]


def test_two_pairs_have_no_interval() -> None:
    (row,) = differences({"SOLAR-C": OURS, "X": OTHER[:2]}).rows
    assert row.cells == ["X", "+1.2 (2)", "-", "-", "+2.5 (2)", "-", "-"]
    assert differences({"X": OTHER}).rows[0].cells == ["X", *"------"]  # nothing to compare with yet


def test_results_are_means_over_seeds_and_the_end_is_the_last_tenth() -> None:
    (row,) = results({"SOLAR-C": OURS}).rows
    assert row.cells == [
        "`solar-c` (ours)",
        "3",
        "5.0 ± 0.0",
        "12.0 ± 1.0",
        "22.0 ± 1.0",
        "5.0 ± 0.0",
        "25.0 ± 0.0",
        "31",
        "2",
    ]
    assert rank_at_the_end(OURS[0]) == 5.0


def test_a_sign_counts_against_a_measure_that_has_the_wrong_one() -> None:
    assert agrees("instance_at_1", 0.5) == 1
    assert agrees("overlap", 0.5) == -1  # less of it is better
    assert agrees("overlap", -0.5) == 1
    assert agrees("spread", -0.5) == 1  # has no direction
    assert name_of("overlap") == "Overlap (less is better)"
