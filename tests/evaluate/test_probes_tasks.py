"""Many linear probes side by side: each result is that of the task alone."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.errors import DataError, SettingError
from ocssl.evaluate import linear_classifiers
from ocssl.evaluate.linear_classifiers import cross_entropy_gradient, linear_probe, linear_probes
from ocssl.evaluate.probes import Task


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    given = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(given)


def task(train=120, test=60, val=None, classes=4, d=9, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, d))

    def part(n):
        y = rng.integers(0, classes, n)
        return centres[y] + noise * rng.normal(size=(n, d)), y * 3 - seed

    return Task(*part(train), *part(test), *(part(val) if val else ()))


def alone(one, **options):
    return linear_probe(one.train_x, one.train_y, one.test_x, one.test_y, val_x=one.val_x, val_y=one.val_y, **options)


def assert_same(results, wanted):
    assert len(results) == len(wanted)
    for result, want in zip(results, wanted, strict=True):
        assert (result.accuracy, result.scored, result.val_accuracy) == (want.accuracy, want.scored, want.val_accuracy)
        assert result.learning_rates == want.learning_rates
        np.testing.assert_array_equal(result.predictions, want.predictions)


UNEQUAL = [
    task(),
    task(train=700, test=300, val=100, classes=7, noise=2, seed=1),
    task(train=30, test=1, classes=1, seed=2),  # one class
    task(train=1, test=5, classes=1, seed=3),
    task(train=257, test=257, val=3, classes=2, d=30, noise=4, seed=4),
    task(train=600, test=512, val=512, classes=5, noise=3, seed=5),
    task(train=40, test=40, noise=0.01, seed=6),  # separable
]


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.slow
def test_each_result_is_that_of_the_task_alone_whatever_the_company(threads, seed):
    wanted = [alone(one, seed=seed) for one in UNEQUAL]
    assert len({len(want.learning_rates) for want in wanted}) > 2  # they stop at different epochs
    assert_same(linear_probes(UNEQUAL, seed=seed), wanted)
    assert_same(linear_probes(UNEQUAL[::-1], seed=seed), wanted[::-1])
    assert torch.get_num_threads() == threads


def test_as_the_authors_each_result_is_that_of_the_task_alone(threads):
    tasks = [task(train=300 + 70 * i, test=200 + 100 * i, val=250 + i, noise=3, seed=i) for i in range(5)]
    wanted = [alone(one, compat="authors") for one in tasks]
    assert [want.scored for want in wanted] == [200, 256, 256, 256, 512]
    assert_same(linear_probes(tasks, compat="authors"), wanted)
    assert [plain.scored for plain in linear_probes(tasks)] == [200, 300, 400, 500, 600]


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 9), st.integers(0, 12), st.integers(1, 6)), max_size=5),
    st.integers(1, 40),
)
@pytest.mark.slow
def test_any_sizes_give_the_results_of_the_tasks_alone(sizes, batch):
    tasks = [task(*size[:3], classes=size[3], noise=2, seed=i) for i, size in enumerate(sizes)]
    options = {"epochs": 12, "batch": batch, "lr": 0.1, "seed": 5}
    assert_same(linear_probes(tasks, **options), [alone(one, **options) for one in tasks])


def test_as_many_tasks_run_at_a_time_as_torch_has_threads_each_on_one(threads, monkeypatch):
    together, running, seen = threading.Barrier(threads), set(), set()

    def watched(weight, x, y):
        if threading.get_ident() not in running:
            running.add(threading.get_ident())
            together.wait(timeout=60)  # passes only when so many are at work at once
        seen.add(torch.get_num_threads())
        return cross_entropy_gradient(weight, x, y)

    monkeypatch.setattr(linear_classifiers, "cross_entropy_gradient", watched)
    linear_probes([task(seed=i) for i in range(2 * threads)], epochs=2)
    assert len(running) == threads
    assert seen == {1}


def test_the_global_generator_is_left_alone():
    state = torch.get_rng_state()
    linear_probes(UNEQUAL[:2], epochs=2)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_task_gives_no_result():
    assert linear_probes([]) == []


def test_the_caller_s_arrays_stay_as_they_are():
    before = [np.array(part) for part in (UNEQUAL[1].train_x, UNEQUAL[1].train_y, UNEQUAL[1].test_x)]
    linear_probes([UNEQUAL[1]] * 2, epochs=2)
    for was, now in zip(before, (UNEQUAL[1].train_x, UNEQUAL[1].train_y, UNEQUAL[1].test_x), strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize(
    ("wrong", "options", "said"),
    [
        (
            Task(np.ones((3, 2)), [0, 1], np.ones((3, 2)), [0, 1, 0]),
            {},
            r"task 1: train_y .* shape \(2,\)",
        ),
        (Task(np.ones((3, 2)), [0, 1, 0], np.ones((3, 1)), [0, 1, 0]), {}, "task 1: test_x has 1 features, train_x 2"),
        (task(train=200, val=9), {"compat": "authors"}, 'task 1: there are 200 samples to train on: compat="authors"'),
    ],
)
def test_a_task_that_cannot_be_probed_is_named_before_anything_is_trained(wrong, options, said, monkeypatch, threads):
    monkeypatch.setattr(linear_classifiers, "cross_entropy_gradient", None)
    with pytest.raises(DataError, match=said):
        linear_probes([task(train=300, val=20), wrong], **options)
    assert torch.get_num_threads() == threads


def test_a_failure_while_training_comes_out_and_the_threads_are_given_back(monkeypatch, threads):
    monkeypatch.setattr(linear_classifiers, "cross_entropy_gradient", None)
    with pytest.raises(TypeError):
        linear_probes(UNEQUAL)
    assert torch.get_num_threads() == threads


def test_wrong_options_are_errors():
    with pytest.raises(DataError, match="epochs is 0"):
        linear_probes([task()], epochs=0)
    with pytest.raises(SettingError, match="compat is 'x'"):
        linear_probes([], compat="x")
