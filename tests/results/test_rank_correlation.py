"""Rank correlations with accuracy: against literal formulas, on made-up runs, and by the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from ocssl.cli import main
from ocssl.results.rank_correlation import (
    Correlation,
    between,
    bootstrap,
    label_free,
    label_free_tables,
    ranks,
    spearman,
    within,
)
from ocssl.results.read_runs import Evaluation, Run
from ocssl.results.run_groups import name_runs

Curve = Callable[[int], float]


def run(method: str, seed: int, accuracy: Sequence[float], **measured: Sequence[float]) -> Run:
    n = len(accuracy)
    rows = [{"accuracy": accuracy[i], **{key: values[i] for key, values in measured.items()}} for i in range(n)]
    evaluations = [Evaluation(i, 100 * i / max(1, n - 1), 10.0 * i, rows[i]) for i in range(n)]
    made = Run(Path(f"{method}-{seed}"), method, "synthetic", seed, "", {"method": method, "seed": seed}, finished=True)
    made.evaluations, made.final, made.average = evaluations, accuracy[-1], float(np.mean(accuracy[1:]))
    return made


def named(runs: list[Run]) -> list[Run]:
    name_runs(runs)
    return runs


def literal_ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values
    ]


def literal_spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    x, y = literal_ranks(a), literal_ranks(b)
    mean = (len(a) - 1) / 2
    top = sum((p - mean) * (q - mean) for p, q in zip(x, y, strict=True))
    bottom = (sum((p - mean) ** 2 for p in x) * sum((q - mean) ** 2 for q in y)) ** 0.5
    return top / bottom if bottom else None


values = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=12)


@given(st.data(), values)
def test_spearman_is_the_correlation_of_mean_ranks(data: st.DataObject, a: list[float]) -> None:
    b = data.draw(st.lists(st.integers(-5, 5).map(float), min_size=len(a), max_size=len(a)))
    ours, literal = spearman(a, b), literal_spearman(a, b)
    assert (ours is None) == (literal is None)
    assert ours is None or ours == pytest.approx(literal)
    assert ranks(a).tolist() == literal_ranks(a)
    if ours is not None:
        assert spearman(b, a) == pytest.approx(ours)
        assert spearman([x**3 for x in a], b) == pytest.approx(ours)  # ranks alone count
        assert spearman([-x for x in a], b) == pytest.approx(-ours)


def test_values_taken_for_ranks_are_found_out() -> None:
    a, b = [1.0, 2.0, 3.0, 100.0], [1.0, 3.0, 2.0, 4.0]
    assert abs(float(np.corrcoef(a, b)[0, 1]) - float(spearman(a, b) or 0)) > 0.01


def test_the_bootstrap_is_the_same_each_time_and_covers_what_it_resamples() -> None:
    data = np.random.default_rng(0).normal(size=30)
    first, second = (bootstrap(data, lambda chosen: float(chosen.mean())) for _ in range(2))
    assert np.array_equal(first, second)
    low, high = np.percentile(first, [2.5, 97.5])
    half = 1.96 * data.std() / 30**0.5
    assert low == pytest.approx(data.mean() - half, abs=0.05)
    assert high == pytest.approx(data.mean() + half, abs=0.05)


def test_within_a_run_a_measure_that_follows_accuracy_has_one_and_one_that_opposes_it_minus_one() -> None:
    runs = []
    for seed in range(8):
        accuracy = np.random.default_rng(seed).normal(size=9).cumsum()
        noise = np.random.default_rng(100 + seed).normal(size=9)
        runs.append(run("solar", seed, accuracy, lidar=accuracy * 2, overlap=-accuracy, rankme=noise))
    found = {one.measure: one for one in within(named(runs))}
    assert found["lidar"].rho == pytest.approx(1)
    assert found["overlap"].rho == pytest.approx(-1)
    assert abs(found["rankme"].rho) < 0.6
    assert found["lidar"].units == 8


def test_changes_tell_a_common_trend_from_following() -> None:
    runs = []
    for seed in range(12):
        data = np.random.default_rng(seed)
        steps = 1 + 0.5 * data.random(12)
        runs.append(run("solar", seed, steps.cumsum(), lidar=3 * steps.cumsum(), rankme=(1 + data.random(12)).cumsum()))
    values, steps = ({one.measure: one.rho for one in within(named(runs), changes)} for changes in (False, True))
    assert values["rankme"] == pytest.approx(1)  # both rise, whatever they measure
    assert abs(steps["rankme"]) < 0.5
    assert steps["lidar"] == pytest.approx(1)


def test_the_untrained_encoder_is_left_out() -> None:
    accuracy, lidar = [50.0, 1, 2, 3, 4, 5], [50.0, 5, 4, 3, 2, 1]
    [found] = within(named([run("solar", 0, accuracy, lidar=lidar)]))
    assert found == Correlation("lidar", -1.0, None, None, 1)  # one run has no interval


def test_between_methods_seeds_are_means_and_few_methods_have_no_interval() -> None:
    runs = []
    for number, method in enumerate(["a", "b", "c", "d", "e", "f", "g"]):
        for seed in range(2):
            shift = 0.4 if seed else -0.4  # larger than the gap between methods, gone in the mean
            runs.append(run(method, seed, [0.0, 0.1 * number + shift], lidar=[0.0, number + 3 * shift]))
    found = {one.measure: one for one in between(named(runs))}
    assert found["lidar"].rho == pytest.approx(1)
    assert found["lidar"].units == 7
    assert found["lidar"].low == pytest.approx(1)
    few = between(named(runs[:8]))
    assert [(one.units, one.low) for one in few] == [(4, None)]
    assert between(named(runs[:6])) == []


def test_methods_are_ranked_among_those_with_the_same_views() -> None:
    runs = []
    for number, method in enumerate("abcdefgh"):
        crop = 0.2 if number < 4 else 0.6
        made = run(method, 0, [0.0, number % 4], lidar=[0.0, 10 * crop - number % 4])
        made.settings["views.crop_scale"] = [crop, 1.0]
        runs.append(made)
    found = label_free(named(runs))["between"]
    assert [group["methods"] for group in found] == [4, 4]
    assert [one["rho"] for group in found for one in group["measures"]] == pytest.approx([-1, -1])


def test_tables_say_whether_a_sign_is_the_expected_one() -> None:
    accuracy = [float(i) for i in range(8)]
    runs = named([run("solar", seed, accuracy, overlap=accuracy, lidar=accuracy) for seed in range(6)])
    first = label_free_tables(label_free(runs))[0]
    assert {row.cells[0]: row.cells[-1] for row in first.rows} == {"Overlap": "the wrong way", "LiDAR": "as expected"}


KEPT = ROOT / "docs" / "results" / "mini-cifar100"


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["compare", "--label-free", *words])
    return int(str(end.value.code))


def test_the_command_reads_kept_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(KEPT), "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    measured = {one["measure"]: one for one in found["within"]}
    assert measured.keys() >= {"deviation", "overlap", "participation_ratio", "spread", "effective_rank"}
    assert all(-1 <= one["rho"] <= 1 for one in found["within"])
    assert found["between"][0]["methods"] == 4
    assert command(str(KEPT)) == 0
    assert "Within a run" in capsys.readouterr().out


def test_one_run_with_few_evaluations_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "r"
    place.mkdir()
    (place / "run.toml").write_text('method = "solar"\nbenchmark = "synthetic"\nseed = 0\n')
    assert command(str(place)) == 2
    assert "nothing to correlate" in capsys.readouterr().err
