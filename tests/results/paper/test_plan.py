"""The plans against the paper's list of experiments, written here once more by hand: methods, seeds, steps, rates."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from ocssl.cost import ImageCounts
from ocssl.errors import SettingError
from ocssl.results.paper import Planned, plan_names, read_plan, read_scale, runs_of
from ocssl.results.paper.paper_tables import paper_number
from ocssl.results.paper.plan import address_of, chosen, of_rows, own_plans
from ocssl.runs.config import read_settings, resolve_run
from ocssl.settings import DataSettings

C, M, L, N = "cifar100", "imagenet100", "clear100", "inat"
NINE = ["er-reservoir", "er-fifo", "minred", "lars", "per", "scale", "cla-e", "cla-r", "solar"]
RF, RFS = ["er-reservoir", "er-fifo"], ["er-reservoir", "er-fifo", "solar"]
FOUR = ["er-reservoir", "er-fifo", "minred", "solar"]
FIVE = ["er-reservoir", "er-fifo", "minred", "scale", "solar"]
RATES = {C: 0.05, M: 0.02, L: 0.01, N: 0.01}
STEPS = {C: 27_000, M: 69_000, L: 59_400, N: 145_000}  # of 6 passes; all but the first up to 3 %
OMEGA = {C: 1.0, M: 0.3, L: 1.0, N: 1.0}
NOT_MAIN = ("table7", "figure5", "figure18")  # here it is 1.0 on ImageNet-100, too

# name: (methods, benchmarks, seeds, what the grid changes, new runs where the plans are counted in this order)
WANTED: dict[str, tuple[list[str], list[str], int, dict[str, list[float]], int]] = {
    "table1": (NINE, [C, M, L], 3, {}, 81),
    "table3": (["pretrain", *RFS], [N], 1, {}, 4),
    "table6": (NINE, [M], 1, {}, 9),
    "table7": (FIVE, [C, M], 1, {}, 8),  # 10 less SCALE, which has no objective but its own
    "figure2": (RF, [C], 3, {"schedule.passes": [1, 2, 3, 6, 12]}, 24),
    "figure3": (RF, [M], 3, {}, 0),
    "figure5": (
        FOUR,
        [C, M],
        3,
        {"schedule.passes": [1, 2, 3, 6]},
        57,
    ),  # 72 less 18 that figure 2 has; 3 for figure 16
    "figure6": (FOUR, [C], 3, {"memory.capacity": [500, 1000, 2000, 5000]}, 36),
    "figure7": (RFS, [C], 3, {"memory.capacity": [500, 1000, 2000, 5000]}, 0),
    "figure8": (RF, [C], 3, {}, 0),
    "figure9": (RF, [M], 3, {"schedule.passes": [1, 2, 3, 6, 12]}, 6),
    "figure10": (RFS, [M], 3, {}, 0),
    "figure11": (RF, [C], 3, {}, 0),
    "figure12": (RF, [C], 3, {}, 0),
    "figure13": (RFS, [M], 3, {}, 0),
    "figure14": (RF, [M], 3, {}, 0),
    "figure15": (["solar"], [M], 3, {}, 0),
    "figure16": (["solar"], [M], 3, {"terms.overlap.weight": [0.1, 0.3, 0.5, 1.0, 2.0]}, 9),
    "figure17": (["cla-e", "cla-r", "solar"], [M], 3, {}, 0),
    "figure18": (FOUR, [M], 3, {"memory.capacity": [500, 1000, 2000, 5000]}, 36),
    "figure19": (FIVE, [C], 1, {}, 0),
    "figure20": (RF, [C], 3, {}, 0),
}
# table: rows as (method, keep, draw, ema, weight of the Overlap loss on C and on M); 3 seeds on each
ABLATIONS: dict[str, tuple[list[tuple[str, str, str, float, float, float]], int]] = {
    "table2": (
        [
            ("er-reservoir", "reservoir", "uniform", 0.5, 0.0, 0.0),
            ("er-reservoir", "reservoir", "uniform", 0.5, 1.0, 0.3),
            ("er-fifo", "fifo", "uniform", 0.5, 0.0, 0.0),
            ("er-fifo", "fifo", "uniform", 0.5, 1.0, 0.3),
            ("solar", "highest-loss", "least-drawn", 0.5, 0.0, 0.0),
            ("solar", "highest-loss", "least-drawn", 0.5, 1.0, 0.3),
        ],
        18,
    ),
    "table4": (
        [
            ("solar", "highest-loss", "uniform", 0.5, 1.0, 0.3),
            ("solar", "highest-loss", "high-loss", 0.5, 1.0, 0.3),
            ("solar", "highest-loss", "least-drawn", 0.0, 1.0, 0.3),
            ("solar", "highest-loss", "least-drawn", 0.5, 1.0, 0.3),
        ],
        18,
    ),
}


@cache
def paper_runs(name: str) -> list[Planned]:
    return runs_of(read_plan(name), read_scale("paper"))


def omega(run: Planned) -> float:
    return float(run.settings.terms.get("overlap", {}).get("weight", 0.0))


def setting(run: Planned, key: str) -> Any:
    value: Any = run.settings.model_dump()
    for part in key.split("."):
        value = value[part]
    return value


def test_there_is_a_plan_for_every_table_and_figure_with_results() -> None:
    figures = [n for n in range(2, 21) if n != 4]  # 1 and 4 are drawings of the method
    assert plan_names() == [f"table{n}" for n in range(1, 8)] + [f"figure{n}" for n in figures]
    assert set(plan_names()) == {*WANTED, *ABLATIONS, "table5"}


@pytest.mark.parametrize("name", WANTED)
def test_runs_are_those_of_the_paper(name: str) -> None:
    methods, benchmarks, seeds, grid, _ = WANTED[name]
    runs = paper_runs(name)
    (key, values), *_ = [*grid.items(), ("seed", [None])]
    wanted = Counter((m, b, s, v) for m in methods for b in benchmarks for s in range(seeds) for v in values)
    found = Counter(
        (r.settings.method, r.settings.benchmark, r.settings.seed, setting(r, key) if grid else None) for r in runs
    )
    assert found == wanted


@pytest.mark.parametrize("name", [*WANTED, *ABLATIONS])
def test_what_the_grid_leaves_alone_is_the_papers_setting(name: str) -> None:
    grid = WANTED[name][3] if name in WANTED else {}
    for run in paper_runs(name):
        settings, benchmark = run.settings, run.settings.benchmark
        assert settings.optimizer.lr == RATES[benchmark]
        assert (settings.optimizer.momentum, settings.optimizer.weight_decay) == (0.9, 1e-4)
        assert (settings.encoder.name, settings.encoder.width) == ("resnet18", 64)
        assert settings.stream.image_size == (32 if benchmark == C else 224)
        usual = "simclr" if name in ("table7", "figure19") else "simsiam"
        assert settings.objective.name == ("none" if settings.method == "scale" else usual)
        assert settings.objective.projection == 2048
        assert settings.evaluate.probe == "linear"
        if settings.method == "pretrain":
            assert (settings.stream.epochs, settings.schedule.batch) == (100, 256)
            assert (settings.optimizer.schedule, settings.optimizer.warmup) == ("cosine", 0.1)
            continue
        assert (settings.schedule.batch, settings.schedule.stream_batch) == (138, 10)
        passes = settings.schedule.passes
        assert passes == 6 or "schedule.passes" in grid
        assert settings.memory.capacity == 2000 or "memory.capacity" in grid
        if settings.method == "solar" and name not in ABLATIONS:
            assert settings.terms["overlap"]["k"] == 500
            assert settings.memory.ema == 0.5
            main = 1.0 if name in NOT_MAIN else OMEGA[benchmark]
            assert omega(run) == main or "terms.overlap.weight" in grid
        minibatches = ImageCounts.expected(settings).minibatches(settings)
        if name == "table6":
            assert len(minibatches) == 1
        else:
            exact = 0 if benchmark == C else 0.03
            assert minibatches[-1] * passes == pytest.approx(STEPS[benchmark] * passes / 6, rel=exact)


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_change_what_they_say_and_nothing_else(name: str) -> None:
    rows, _ = ABLATIONS[name]
    runs = paper_runs(name)
    found = Counter(
        (
            run.settings.method,
            run.settings.memory.keep,
            run.settings.memory.draw,
            run.settings.memory.ema,
            omega(run),
            run.settings.benchmark,
            run.settings.seed,
        )
        for run in runs
    )
    wanted = Counter(
        (*row, weight, benchmark, seed)
        for *row, on_c, on_m in rows
        for benchmark, weight in ((C, on_c), (M, on_m))
        for seed in range(3)
    )
    assert found == wanted
    for run in runs:
        assert run.settings.optimizer.lr == RATES[run.settings.benchmark]
        assert (run.settings.schedule.passes, run.settings.memory.capacity) == (6, 2000)
        if omega(run):
            assert run.settings.terms["overlap"]["k"] == 500


def test_runs_that_plans_share_are_counted_once() -> None:
    order = ["table1", "table2", "table3", "table4", "table6", "table7"]
    order += [name for name in plan_names() if name.startswith("figure")]
    new = {**{name: told[4] for name, told in WANTED.items()}, **{name: told[1] for name, told in ABLATIONS.items()}}
    seen: set[str] = set()
    for name in order:
        addresses = {run.address for run in paper_runs(name)}
        assert len(addresses - seen) == new[name], name
        seen |= addresses
    assert len(seen) == 306


def test_an_address_names_what_decides_the_result_and_nothing_else() -> None:
    base = resolve_run("solar", "synthetic", 0, {})
    assert address_of(base) == address_of(resolve_run("solar", "synthetic", 0, {"data.path": "/elsewhere"}))
    assert address_of(base) == address_of(resolve_run("solar", "synthetic", 0, {"checkpoint.every": 7}))
    others = [
        resolve_run("solar", "synthetic", 1, {}),
        resolve_run("solar", "synthetic", 0, {"optimizer.lr": 0.31}),
        resolve_run("solar", "synthetic", 0, {"evaluate.probe": "ridge"}),
        resolve_run("er-fifo", "synthetic", 0, {}),
    ]
    addresses = {address_of(other) for other in (base, *others)} | {address_of(base, "parent")}
    assert len(addresses) == 6


@pytest.mark.slow
def test_the_mini_scale_is_the_fixed_protocol() -> None:
    scale = read_scale("mini")
    for run in runs_of(read_plan("table1"), scale):
        settings = run.settings
        assert settings.benchmark == C
        assert (settings.stream.image_size, settings.stream.fraction, settings.stream.experiences) == (16, 0.2, 20)
        assert (settings.encoder.name, settings.encoder.width) == ("resnet18", 16)
        assert (settings.memory.capacity, settings.schedule.passes, settings.schedule.batch) == (400, 6, 138)
        assert settings.optimizer.lr == 0.05
        assert ImageCounts.expected(settings).minibatches(settings)[-1] * 6 == 6000
        if settings.method == "solar":
            assert settings.terms["overlap"] | {"k": 100, "weight": 1.0} == settings.terms["overlap"]
    sizes = {run.settings.memory.capacity for run in runs_of(read_plan("figure6"), scale)}
    assert sizes == {100, 200, 400, 1000}
    drawn = runs_of(read_plan("table2"), read_scale("mini", "synthetic"))
    assert {run.settings.memory.capacity for run in drawn} == {200}
    assert {run.settings.terms["overlap"]["k"] for run in drawn if omega(run)} == {50}
    assert {run.settings.benchmark for run in drawn} == {"synthetic"}


def test_what_starts_from_pre_training_has_a_network_that_fits() -> None:
    for scale in (read_scale("paper"), read_scale("mini"), read_scale("mini", "synthetic")):
        first, *others = runs_of(read_plan("table3"), scale)
        assert first.settings.method == "pretrain"
        for run in others:
            assert run.parent is first
            assert run.settings.encoder == first.settings.encoder
            assert run.settings.objective.projection == first.settings.objective.projection
            assert run.settings.stream.image_size == first.settings.stream.image_size


@pytest.mark.parametrize("name", [name for name in plan_names() if name.startswith("table") and name != "table5"])
def test_every_row_of_a_table_has_its_number_in_the_paper(name: str) -> None:
    plan = read_plan(name)
    measure = "seconds" if name == "table6" else "final"
    for row in plan.rows:
        for benchmark in plan.benchmarks:
            assert paper_number(name, row.name, benchmark, measure)[0] is not None


def test_some_of_the_papers_numbers() -> None:
    assert paper_number("table1", "SOLAR", C, "final") == (49.5, 0.5)
    assert paper_number("table1", "CLA-R", M, "final") == (43.1, 4.6)
    assert paper_number("table2", "FIFO + Overlap", M, "average") == (37.9, None)
    assert paper_number("table7", "MinRed", M, "average") == (43.30, None)
    assert paper_number("table6", "SCALE", M, "seconds") == (4288, None)


def test_wrong_names_are_told_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="table2"):
        chosen(["tabel2"])
    with pytest.raises(SettingError, match="synthetic"):
        read_scale("mini", "synthetc")
    with pytest.raises(SettingError, match="paper"):
        read_scale("paper", "synthetic")
    with pytest.raises(SettingError, match="SOLAR"):
        chosen(["table1"], ["SOLR"])
    assert [plan.name for plan in chosen(["table1", "table2", "table3"], ["SOLAR"])] == ["table1", "table3"]
    few = of_rows(runs_of(read_plan("table3"), read_scale("paper")), ["SOLAR"])
    assert [run.row for run in few] == ["Pre-trained", "SOLAR"]
    assert [plan.name for plan in chosen(["table2", "table2"])] == ["table2"]
    assert len(chosen(["all"])) == 25


KEPT = sorted(path.parent for path in (ROOT / "docs" / "results").glob("*/*/run.toml"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
def test_kept_runs_of_earlier_versions_are_at_their_addresses(folder: Path) -> None:
    """Settings that were added since then have their defaults in them, and change no address."""
    assert folder.name.endswith(address_of(read_settings(folder / "run.toml"))[:12])


def test_an_address_tells_apart_what_gives_another_result() -> None:
    usual = {"memory.capacity": 40}
    wanted = [
        usual,
        {**usual, "terms.overlap.k": 7},
        {**usual, "terms.overlap.weight": 0.0},
        {**usual, "memory.center": "running"},
        {**usual, "memory.keep": "fifo"},
        {**usual, "memory.draw": "uniform"},
        {**usual, "objective.name": "byol"},
        {**usual, "stream.classes": 7},
        {**usual, "encoder.width": 3},
        {**usual, "encoder.name": "resnet18"},
        {**usual, "optimizer.name": "lars-sgd"},
        {**usual, "optimizer.name": "adamw"},
        {**usual, "optimizer.name": "adamw", "optimizer.beta1": 0.8},
    ]
    runs = [resolve_run("solar", "synthetic", seed, settings) for settings in wanted for seed in (0, 1)]
    runs.append(resolve_run("er-fifo", "synthetic", 0, usual))
    addresses = {address_of(run) for run in runs} | {address_of(runs[0], "a parent")}
    assert len(addresses) == len(runs) + 1
    moved = runs[0].model_copy(update={"data": DataSettings(path="/elsewhere")})
    assert address_of(moved) == address_of(runs[0])


def test_a_term_with_all_its_defaults_is_still_another_run() -> None:
    with_term = resolve_run("er-fifo", "synthetic", 0, {"terms.overlap.weight": 1.0})
    assert address_of(with_term) != address_of(resolve_run("er-fifo", "synthetic", 0, {}))


def test_own_plans_are_no_part_of_all_and_take_other_seeds() -> None:
    assert {"evidence", "evidence-crop20"} <= set(own_plans())
    assert not set(own_plans()) & {plan.name for plan in chosen(["all"])}
    [plan] = chosen(["evidence"], seeds=[3, 5])
    runs = runs_of(plan, read_scale("mini", "pacs"))
    assert {run.settings.seed for run in runs} == {3, 5}
    assert {run.settings.benchmark for run in runs} == {"pacs"}
