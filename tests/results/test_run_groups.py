"""Facts about which runs a report takes together, sets against one another, or leaves apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_folders import make_full_run

from ocssl._core.measures import MEASURES
from ocssl.results import write_report
from ocssl.results.chart import evaluation_chart, rounded
from ocssl.results.compare import compare
from ocssl.results.figures import all_charts, loss_map
from ocssl.results.latent_decay import LEAST
from ocssl.results.read_runs import Evaluation, MemorySummary, Run
from ocssl.results.rerun_command import rerun_command
from ocssl.results.run_groups import by_series, circumstances, comparable, name_runs, short, shortened
from ocssl.results.summary import NO_DECAY, TOO_FEW, decay_words, summary
from ocssl.results.tables import methods, numbers_of_methods, tasks
from ocssl.runs.config import resolve_run, to_toml
from ocssl.settings import flatten

pytestmark = pytest.mark.slow

DECAYING = [(50.0, 0.2)] * 6 + [(50.0 - 4 * i, 0.2 + 0.08 * i) for i in range(1, 7)]  # accuracy, Overlap


def made(
    method: str = "solar",
    seed: int = 0,
    measured: list[tuple[float, float]] | None = None,
    *,
    finished: bool = True,
    images: str | None = "cats",
    benchmark: str = "synthetic",
    settings: dict[str, Any] | None = None,
) -> Run:
    """A run as it was read: evaluations of accuracy and Overlap, evenly over the stream."""
    known = resolve_run("solar", "synthetic", seed, settings or {})
    measured = [(40.0 + seed, 0.2)] * 6 if measured is None else measured
    run = Run(Path(method), method, benchmark, seed, to_toml(known), dict(flatten(known.model_dump(mode="json"))))
    run.finished, run.images = finished, images
    run.evaluations = [
        Evaluation(i, 100 * i / len(measured), 10.0 * i, {"accuracy": accuracy, "deviation": 0.5, "overlap": overlap})
        for i, (accuracy, overlap) in enumerate(measured, 1)
    ]
    run.final, run.average = measured[-1][0], sum(a for a, _ in measured) / len(measured)
    return run


def named(*runs: Run) -> list[Run]:
    name_runs(list(runs))
    return list(runs)


def test_recipes_whose_paths_begin_alike_are_two_series() -> None:
    place = "/home/someone/projects/continual/recipes"
    runs = named(made(f"{place}/variant_a.toml"), made(f"{place}/variant_b.toml"))
    assert len(by_series(runs)) == 2
    assert [run.series[-14:] for run in runs] == ["variant_a.toml", "variant_b.toml"]
    assert max(len(run.series) for run in runs) <= 36


def test_names_that_cannot_be_told_apart_when_short_are_numbered() -> None:
    texts = ["a" * 40 + end for end in "xyz"]
    assert len(set(map(short, texts))) == 1
    assert len(set(shortened(texts).values())) == 3
    folders = [f"folder:{'d' * 40}{end}/{'e' * 50}" for end in "xy"]
    assert len({run.series for run in named(*(made(benchmark=name) for name in folders))}) == 2


def test_seeds_on_other_images_are_no_seeds_of_the_same_series() -> None:
    runs = named(made(seed=0, images="cats"), made(seed=1, images="cars"))
    assert len(by_series(runs)) == 2
    assert [run.series for run in runs] == ["solar (images=cats)", "solar (images=cars)"]
    assert len(by_series(named(made(seed=0), made(seed=1)))) == 1


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"images": "cars"}, "images"),
        ({"settings": {"evaluate.every": 10}}, "evaluate.every"),
        ({"settings": {"evaluate.compat": "authors"}}, "evaluate.compat"),
        ({"settings": {"stream.imbalance": 2.0}}, "stream.imbalance"),
    ],
)
def test_other_images_streams_and_schedules_of_evaluation_are_not_compared(other: dict[str, Any], told: str) -> None:
    runs = named(made("solar"), made("er-fifo", **other))
    assert len(comparable(runs)) == 2
    assert compare(runs) == []
    assert all(told in circumstances(run, runs) for run in runs)
    assert len(compare(named(made("solar"), made("er-fifo")))) == 1


def test_a_setting_that_an_earlier_version_did_not_have_makes_no_other_series() -> None:
    earlier, today, other = made(seed=0), made(seed=1), made(seed=2, settings={"optimizer.encoder_start": 3})
    a_list, without_section = "views.local_scale", "preset"
    for key in ("optimizer.encoder_start", "stream.drift", a_list, without_section):
        assert key in earlier.settings
        del earlier.settings[key]
    assert len(by_series(named(earlier, today))) == 1
    assert len(comparable([earlier, today])) == 1
    assert set(by_series(named(earlier, other))) == {
        "solar (optimizer.encoder_start=0)",
        "solar (optimizer.encoder_start=3)",
    }


def test_a_finished_run_counts_before_a_copy_that_is_under_way() -> None:
    ill, young = made(measured=DECAYING), made(measured=[(50.0, 0.2)] * 5, finished=False)
    for runs in (named(ill, young), named(young, ill)):
        assert by_series(runs) == {"solar": [ill]}
        said = methods(runs).rows[0].cells[-1]
        assert said.startswith("decays from")
        assert any(f"solar {said}" in sentence for sentence in summary(runs))
    again = replace(ill, final=1.0)
    assert by_series(named(ill, again))["solar"][0] is again  # of two finished ones the last


@pytest.mark.parametrize("count", range(1, LEAST + 1))
def test_decay_is_not_denied_where_it_cannot_be_told(count: int) -> None:
    falling = [(60.0 - 10 * i, 0.1 + 0.2 * i) for i in range(count)]
    words = decay_words(named(made(measured=falling)))
    assert (words == TOO_FEW) == (count < LEAST)
    assert words != NO_DECAY


def test_decay_is_not_denied_where_places_in_the_stream_are_unknown() -> None:
    run = made(measured=DECAYING)
    run.evaluations = [replace(e, share=None) for e in run.evaluations]
    assert decay_words(named(run)) == TOO_FEW
    assert any(TOO_FEW in sentence for sentence in summary([run]))


def test_seeds_that_cannot_tell_have_no_vote_on_decay() -> None:
    runs = named(made(seed=0, measured=DECAYING), made(seed=1, measured=DECAYING[:3]), made(seed=2, measured=[(5, 0)]))
    start = numbers_of_methods(runs).rows[0].cells[-1]
    assert decay_words(runs).startswith(f"decays from {float(start):.0f} %")
    overlap = next(chart for chart in all_charts(runs, [])["latent"] if chart.key == "overlap")
    assert [shade.begin for shade in overlap.panels[0].shades] == [pytest.approx(float(start), abs=0.01)]


@pytest.mark.parametrize(("every", "lines"), [(0, 6), (10, 0)])
def test_lines_stand_at_ends_of_experiences_and_nowhere_else(every: int, lines: int) -> None:
    run = made(settings={"evaluate.every": every})
    chart = evaluation_chart(MEASURES["accuracy"], named(run))
    assert chart is not None
    assert len(chart.panels[0].boundaries) == lines


def test_a_run_of_several_ranks_is_made_again_by_torchrun() -> None:
    _, command = rerun_command(named(made(settings={"compute.ranks": 2}))[0])
    assert command == "torchrun --nproc-per-node 2 -m ocssl run solar synthetic --seed 0"
    _, resume = rerun_command(named(made("mine.toml", settings={"compute.ranks": 2}))[0])
    assert "&& torchrun --nproc-per-node 2 -m ocssl resume" in resume


def test_a_seed_without_accuracies_of_tasks_is_left_out_of_their_table() -> None:
    one, other = made(seed=0), made(seed=1)
    one.evaluations = [replace(e, tasks=(10.0 * e.experience, 5.0)) for e in one.evaluations]
    assert [row.cells for row in tasks(named(one, other)).rows] == [
        ("solar", "1", "60.0", "60.0"),
        ("solar", "2", "5.0", "5.0"),
    ]


def test_a_memory_at_an_unknown_place_of_the_stream_has_no_histogram() -> None:
    run = made()
    run.memories = [MemorySummary(None, 2.0, (), (), (0.0, 0.1, 0.2, 0.3, 0.4), (1.0, 1.0), ())]
    assert loss_map(named(run)) is None
    run.memories = [replace(run.memories[0], share=50.0)]
    assert loss_map(named(run)) is not None


def test_numbers_that_are_too_large_to_draw_are_left_out(tmp_path: Path) -> None:
    assert rounded([1.0, float("inf"), None]) == [1.0, None, None]
    folder = make_full_run(tmp_path / "run")
    events = (folder / "events.jsonl").read_text().replace('"overlap": 0.3,', '"overlap": 1e307,')
    assert "1e307" in events
    (folder / "events.jsonl").write_text(events)
    assert write_report([folder], tmp_path / "report.html", figures=tmp_path / "figures") > 0
