"""The work of a run: how it grows, how many minibatches and evaluations there are, how far the memory is filled."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from ocssl.cost import ImageCounts, Load, about_bytes, minibatch_load, resident_bytes, run_load
from ocssl.cost.layers import Layer
from ocssl.cost.work import encode_load, evaluation_count, evaluation_load, fullness
from ocssl.data import load_benchmark
from ocssl.errors import SettingError
from ocssl.runs.config import RunSettings, resolve_run
from ocssl.runs.run import equal_shares, make_stream, moments
from ocssl.settings import LearnerSettings, nest, validate

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "objective.projection": 16,
    "memory.capacity": 400,
    "schedule.batch": 12,
    "schedule.stream_batch": 4,
    "schedule.passes": 1,
}
DRAWN = {"stream.classes": 4, "stream.train": 21, "stream.test": 3, "stream.image_size": 8, "stream.experiences": 2}


def run(method: str = "er-fifo", **changes: Any) -> RunSettings:
    own = {key.replace("__", "."): value for key, value in changes.items()}
    return resolve_run(method, "synthetic", 0, TINY | DRAWN | own)


def test_loads_add_and_multiply() -> None:
    load = Load(1.0, 2.0, 3.0, 4.0)
    assert load + load * 2 == load * 3
    assert load.flops == 3.0


def test_work_is_linear_in_the_batch() -> None:
    one, two = (minibatch_load(run(schedule__batch=batch).learner(), 16) for batch in (12, 24))
    assert two.backward == 2 * one.backward
    assert two.forward == pytest.approx(2 * one.forward, rel=1e-3)  # products of all rows with one another are left
    assert two.calls == one.calls


def test_work_is_quadratic_in_width() -> None:
    narrow, wide, wider = (minibatch_load(run(encoder__width=width).learner(), 16) for width in (64, 128, 256))
    assert 3.9 < wide.flops / narrow.flops < wider.flops / wide.flops < 4
    assert wide.bytes / narrow.bytes < 4  # activations grow only linearly, weights quadratically


def test_work_is_that_of_pixels() -> None:
    small, large = (minibatch_load(run(encoder__width=8).learner(), size) for size in (16, 32))
    assert 3.9 < large.flops / small.flops <= 4


def test_statistics_of_more_slots_are_moved() -> None:
    few, many = (minibatch_load(run(memory__capacity=slots).learner(), 16) for slots in (1000, 100_000))
    assert many.bytes - few.bytes == pytest.approx(99_000 * 12 * 8)
    assert many.flops == few.flops


def test_encoding_by_hand() -> None:
    layers = {"a": Layer(10.0, 4.0), "b": Layer(30.0, 8.0)}
    assert encode_load(layers, 7, at_once=3) == Load(forward=280.0, bytes=7 * 6 * 12.0, calls=2 * 3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stream__experiences": 3},
        {"stream__fraction": 0.5, "stream__drop_last": False},
        {"stream__order": "iid", "stream__experiences": 5},
        {"stream__validation": 0.0, "stream__epochs": 2},
        {"stream__repeats": 3, "stream__stop": 4},
        {"stream__imbalance": 4.0, "stream__order": "iid"},
        {"evaluate__every": 4, "evaluate__start": False},
    ],
)
def test_images_are_those_of_the_benchmark(changes: dict[str, Any]) -> None:
    settings = run(**changes)
    benchmark = load_benchmark(settings.benchmark, settings.stream)
    stream = make_stream(benchmark, settings)
    read, expected = ImageCounts.of(benchmark), ImageCounts.expected(settings)
    assert read == expected
    assert read.minibatches(settings) == stream.ends()
    evaluated = moments(stream, settings.evaluate.every)
    assert evaluation_count(settings, stream.ends()) == len(evaluated) + settings.evaluate.start


@pytest.mark.parametrize("total", [1, 7, 8, 9, 100])
def test_a_stream_without_labels_is_evaluated_after_equal_shares(total: int) -> None:
    shares = equal_shares(total)
    assert evaluation_count(run(), [total], labelled=False) == len(shares) + 1
    assert shares[-1] == total
    gaps = [b - a for a, b in itertools.pairwise([0, *shares])]
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1
    assert evaluation_count(run(evaluate__every=5), [total], labelled=False) == -(-total // 5) + 1


def test_the_papers_setting() -> None:
    images = ImageCounts.expected(resolve_run("solar", "cifar100", 0, {}))
    assert (images.stream, images.val, images.test, images.classes) == (45_000, 5_000, 10_000, 100)
    assert images.experiences == (2250,) * 20
    with pytest.raises(SettingError, match="folder:photos has is not known"):
        ImageCounts.expected(resolve_run("solar", "folder:photos", 0, {}))


@pytest.mark.parametrize(
    ("method", "benchmark", "changes", "wanted"),
    [
        ("solar", "clear100", {}, ImageCounts((9_000,) * 11, 99_000, 11_000, 55_000, 100)),
        ("solar", "clear100", {"stream.stop": 2}, ImageCounts((9_000,) * 2, 99_000, 11_000, 55_000, 100)),
        ("solar", "clear100", {"stream.fraction": 0.5}, ImageCounts((4_500,) * 11, 49_500, 5_500, 55_000, 100)),
        ("solar", "clear100", {"stream.order": "class"}, ImageCounts((4_950,) * 20, 99_000, 11_000, 55_000, 100)),
        ("solar", "pacs", {"stream.validation": 0}, ImageCounts((1336, 1638, 1875, 3143), 7_992, 0, 1_998, 7)),
        ("solar", "inat", {}, ImageCounts((4_849,) * 50, 242_450, 26_939, 53_880, 152)),
        ("pretrain", "inat", {}, ImageCounts((192_195,), 192_195, 21_355, 42_710, 152)),
        ("solar", "imagenet100", {}, ImageCounts((5_850,) * 20, 117_000, 13_000, 5_000, 100)),
        ("solar", "mini-imagenet", {}, ImageCounts((900,) * 20, 18_000, 2_000, 5_000, 100)),
    ],
)
def test_benchmarks_say_how_many_images_they_have(
    method: str, benchmark: str, changes: dict[str, Any], wanted: ImageCounts
) -> None:
    assert ImageCounts.expected(resolve_run(method, benchmark, 0, changes)) == wanted


def test_the_size_of_another_kingdom_is_not_known() -> None:
    with pytest.raises(SettingError, match="images of Fungi"):
        ImageCounts.expected(resolve_run("solar", "inat", 0, {"stream.kingdom": "Fungi"}))


def test_what_the_optimizer_keeps_is_counted() -> None:
    def kept(**changes: Any) -> float:
        settings = run(**changes)
        return resident_bytes(settings, ImageCounts.expected(settings))["optimizer"]

    assert kept(optimizer__name="lars-sgd") == kept()
    assert kept(optimizer__momentum=0.0) == kept() / 2
    assert kept(optimizer__name="adamw") == pytest.approx(1.5 * kept(), rel=0.01)


def simulated(settings: LearnerSettings, minibatches: int) -> float:
    """Fill the memory one minibatch after another and add up all rows, as Algorithm 1 does."""
    schedule, capacity = settings.schedule, settings.memory.capacity

    def rows_of(count: int, stored: int, filling: bool) -> int:
        rows = 0
        for _ in range(count):
            if filling and schedule.admit == "before":
                stored = min(capacity, stored + schedule.stream_batch)
            for p in range(schedule.passes):
                fresh = schedule.stream_batch
                if schedule.stream_in == "none" or (schedule.stream_in == "first" and p > 0):
                    fresh = 0 if stored else fresh
                wanted = schedule.batch - fresh
                if not (schedule.short == "wait" and fresh and stored <= wanted):
                    rows += min(wanted, stored)
                rows += fresh
                first, last = p == 0, p == schedule.passes - 1
                if filling and ((first and schedule.admit == "first") or (last and schedule.admit == "last")):
                    stored = min(capacity, stored + schedule.stream_batch)
        return rows

    return rows_of(minibatches, 0, True) / rows_of(minibatches, capacity, False)


@trials(deadline=None, max_examples=60)
@given(
    st.integers(0, 40),
    st.integers(6, 30),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([("all", "last"), ("first", "first"), ("none", "before"), ("all", "before"), ("all", "first")]),
    st.sampled_from(["partial", "wait"]),
    st.integers(1, 30),
)
def test_fullness_is_that_of_a_simulation(
    capacity: int, batch: int, stream: int, passes: int, when: tuple[str, str], short: str, minibatches: int
) -> None:
    schedule = {"batch": batch, "stream_batch": stream, "passes": passes, "short": short}
    tree = {**nest({"memory.capacity": capacity}), "schedule": {**schedule, "stream_in": when[0], "admit": when[1]}}
    settings = validate(LearnerSettings, tree)
    assert fullness(settings, minibatches) == pytest.approx(simulated(settings, minibatches))


def test_a_memory_that_were_full_at_once_is_caught() -> None:
    settings = run().learner()
    assert fullness(settings, 5) < 0.9
    assert fullness(settings, 5) == pytest.approx(simulated(settings, 5))


def test_parts_of_a_run() -> None:
    settings = run()
    images = ImageCounts.expected(settings)
    parts = run_load(settings, images)
    assert set(parts) == {"training", "encoding", "probe", "latent", "saving"}
    longer = run_load(run(stream__train=210), ImageCounts.expected(run(stream__train=210)))
    assert longer["training"].backward > 9.9 * parts["training"].backward
    untold = ImageCounts(images.experiences, images.train, 0, 0, 0)
    assert evaluation_load(settings, untold)["probe"] == evaluation_load(settings, untold)["encoding"] == Load()


@pytest.mark.parametrize("probe", ["linear", "ridge", "knn"])
def test_probes_cost_something(probe: str) -> None:
    settings = run(evaluate__probe=probe)
    images = ImageCounts.expected(settings)
    alone = evaluation_load(settings, images)["probe"]
    both = evaluation_load(run(evaluate__probe=probe, evaluate__per_task=True), images)["probe"]
    assert 0 < alone.forward < both.forward < 3 * alone.forward


def test_what_is_resident() -> None:
    settings = run(memory__capacity=100)
    images = ImageCounts.expected(settings)
    parts = resident_bytes(settings, images)
    more = resident_bytes(run(memory__capacity=200), images)
    assert more["memory"] == 2 * parts["memory"]
    assert {**more, "memory": 0} == {**parts, "memory": 0}
    assert parts["images"] == (images.train + images.val + images.test) * 3 * 8 * 8
    two = resident_bytes(run(memory__capacity=100, schedule__batch=24), images)
    assert two["activations"] == 2 * parts["activations"]


@pytest.mark.parametrize("method", ["solar", "er-fifo", "scale", "cla-e"])
def test_what_is_said_before_a_run_is_near_what_is_counted(method: str) -> None:
    settings = resolve_run(method, "synthetic", 0, {})
    images = ImageCounts.expected(settings)
    assert about_bytes(settings, images) == pytest.approx(sum(resident_bytes(settings, images).values()), rel=0.1)
