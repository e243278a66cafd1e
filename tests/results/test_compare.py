"""Facts about paired comparisons: the interval is Student's, pairs share a seed, and words follow from numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from report_folders import make_full_run
from scipy import stats

from ocssl.results.compare import BETTER, OPEN, TOO_FEW, WORSE, Difference, compare, difference, t_quantile, t_within
from ocssl.results.run_groups import find_runs


@pytest.mark.parametrize("freedom", [*range(1, 31), 99, 1000])
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-10)
    for t in (0.0, 0.3, 1.0, 5.0, 80.0):
        assert t_within(t, freedom) == pytest.approx(2 * stats.t.cdf(t, freedom) - 1, abs=1e-12)


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    generator = np.random.default_rng(0)
    ours, theirs = generator.normal(30, 3, 7), generator.normal(29, 3, 7)
    found = difference(dict(enumerate(ours.tolist())), dict(enumerate(theirs.tolist())))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found is not None
    assert found.half is not None
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high), rel=1e-9)
    unpaired = t_quantile(12) * math.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / 7)
    assert found.half != pytest.approx(unpaired, rel=0.01)  # what one would get without the pairs


def test_only_shared_seeds_are_paired() -> None:
    found = difference({0: 10.0, 1: 20.0, 2: 90.0, 4: None}, {1: 19.0, 0: 8.0, 3: 0.0, 4: 1.0})
    assert found == Difference(1.5, pytest.approx(t_quantile(1) * math.sqrt(0.5) / math.sqrt(2)), 2)
    assert difference({0: 1.0}, {1: 1.0}) is None
    assert difference({None: 1.0}, {None: 2.0}) is None  # an unknown seed is no pair


@pytest.mark.parametrize("theirs", [(29.5, 20.5), (29.5, 20.5, 27.3), (30.0, 21.0)])
def test_equal_gaps_are_not_sure(theirs: tuple[float, ...]) -> None:
    ours = {seed: value + 0.1 for seed, value in enumerate(theirs)}  # which rounds differently each time
    found = difference(ours, dict(enumerate(theirs)))
    assert found == Difference(pytest.approx(0.1), None, len(theirs))
    enough = len(theirs) >= 3
    assert found.verdict == (OPEN if enough else TOO_FEW)
    assert found.lack == (f"{len(theirs)} equal gaps: no interval" if enough else TOO_FEW)


def test_one_pair_has_no_interval_and_no_verdict() -> None:
    assert difference({0: 50.0}, {0: 10.0}) == Difference(40.0, None, 1)
    assert Difference(40.0, None, 1).verdict == TOO_FEW
    assert Difference(40.0, 0.1, 2).verdict == TOO_FEW  # never better with two seeds


@pytest.mark.parametrize(("mean", "half", "verdict"), [(2.0, 1.0, BETTER), (-2.0, 1.0, WORSE), (1.0, 2.0, OPEN)])
def test_a_verdict_needs_an_interval_without_zero(mean: float, half: float, verdict: str) -> None:
    assert Difference(mean, half, 3).verdict == verdict


def test_the_reference_is_solar_or_else_the_best(tmp_path: Path) -> None:
    for method in ("er-fifo", "solar", "minred"):
        for seed in range(2):
            make_full_run(tmp_path / "all" / f"{method}{seed}", method, seed, experiences=3, each=2)
    runs = find_runs([tmp_path / "all"])
    assert [(c.series, c.reference) for c in compare(runs)] == [("er-fifo", "solar"), ("minred", "solar")]
    rest = [run for run in runs if run.method != "solar"]
    assert [(c.series, c.reference) for c in compare(rest)] == [("minred", "er-fifo")]
    final = {run.label: run.final or 0.0 for run in runs}
    gaps = [final[f"er-fifo, seed {seed}"] - final[f"solar, seed {seed}"] for seed in range(2)]
    first = compare(runs)[0].final
    assert first is not None
    assert first.mean == pytest.approx(sum(gaps) / 2)


def test_runs_on_other_streams_or_probes_are_not_paired(tmp_path: Path) -> None:
    make_full_run(tmp_path / "all" / "a", "solar", 0, experiences=3, each=2)
    other = make_full_run(tmp_path / "all" / "b", "er-fifo", 0, experiences=3, each=2)
    assert len(compare(find_runs([tmp_path / "all"]))) == 1
    text = (other / "run.toml").read_text()
    for was, becomes in (('probe = "linear"', 'probe = "knn"'), ("fraction = 1.0", "fraction = 0.5")):
        assert was in text
        (other / "run.toml").write_text(text.replace(was, becomes))
        assert compare(find_runs([tmp_path / "all"])) == []
