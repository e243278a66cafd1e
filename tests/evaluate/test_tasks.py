"""Past, current and future accuracy, forgetting and transfer against literal loops over the matrix."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.errors import DataError
from ocssl.evaluate.per_task import summarise

NAN = math.nan
TRIANGLE = np.array([[90.0, 40, 20], [70, 80, 30], [60, 85, 95]])  # three tasks, three checkpoints


def mean(values):
    values = [v for v in values if not math.isnan(v)]
    return sum(values) / len(values) if values else None


def summary_by_loops(matrix, seen, baseline):
    """Every figure as its sentence says, one number at a time."""
    checkpoints, tasks = len(matrix), len(matrix[0])
    past, current, future = [], [], []
    for s in range(checkpoints):
        groups = {"past": [], "current": [], "future": []}
        for j in range(tasks):
            came_before = any(seen[r] == j for r in range(s))
            group = "current" if j == seen[s] else "past" if came_before else "future"
            groups[group].append(matrix[s][j])
        past.append(mean(groups["past"]))
        current.append(mean(groups["current"]))
        future.append(mean(groups["future"]))
    forgotten, back, forward = [], [], []
    for j in range(tasks):
        if j not in seen:
            continue
        first = next(s for s in range(checkpoints) if seen[s] == j)
        if first > 0:
            forward.append(matrix[first - 1][j] - baseline[j])
        if j == seen[-1]:
            continue
        back.append(matrix[-1][j] - matrix[first][j])
        earlier = [matrix[s][j] for s in range(checkpoints - 1) if not math.isnan(matrix[s][j])]
        if earlier:
            forgotten.append(max(earlier) - matrix[-1][j])
    rows = [mean(row) for row in matrix]
    average = mean([row for row in rows if row is not None])
    return {
        "past": past,
        "current": current,
        "future": future,
        "final": rows[-1],
        "average": average,
        "forgetting": mean(forgotten),
        "backward_transfer": mean(back),
        "forward_transfer": mean(forward),
    }


def assert_close(got, want):
    assert (got is None) == (want is None)
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_close(one, other)
    elif want is not None:
        assert got == pytest.approx(want, abs=1e-9)


@st.composite
def streams(draw):
    checkpoints, tasks = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    number = st.one_of(st.just(NAN), st.floats(0, 100, allow_subnormal=False))
    matrix = [[draw(number) for _ in range(tasks)] for _ in range(checkpoints)]
    seen = [draw(st.integers(0, tasks - 1)) for _ in range(checkpoints)]
    return matrix, seen, [draw(number) for _ in range(tasks)]


@settings(deadline=None, max_examples=300)
@given(streams())
@pytest.mark.slow
def test_every_figure_is_that_of_the_loops_for_any_order_of_tasks(stream):
    matrix, seen, baseline = stream
    got, want = asdict(summarise(matrix, seen, baseline)), summary_by_loops(matrix, seen, baseline)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert_close(got[name], value)
    assert json.loads(json.dumps(got, allow_nan=False))["final"] == got["final"]


def test_a_small_stream_by_hand():
    result = summarise(TRIANGLE, baseline=[10, 15, 20])
    assert result.past == (None, 70.0, 72.5)
    assert result.current == (90.0, 80.0, 95.0)
    assert result.future == (30.0, 30.0, None)
    assert result.final == 80.0
    assert result.average == pytest.approx((50 + 60 + 80) / 3)
    assert result.forgetting == pytest.approx((30 + (80 - 85)) / 2)
    assert result.backward_transfer == pytest.approx((-30 + 5) / 2)
    assert result.forward_transfer == pytest.approx((25 + 10) / 2)


def test_forgetting_looks_at_all_checkpoints_but_the_last_also_at_those_before_the_task_came():
    matrix = [[50, 90], [50, 60], [40, 70]]
    result = summarise(matrix, [0, 1, 0])
    assert result.forgetting == 20.0  # task 1 was best before it came
    assert result.backward_transfer == 10.0


def test_a_task_that_comes_back_is_current_then_and_past_in_between():
    matrix = [[1, 2, 4], [1, 2, 4], [1, 2, 4]]
    back, same = summarise(matrix, [0, 1, 0]), summarise(matrix, [1, 1, 1])
    assert (back.past, back.current, back.future) == ((None, 1.0, 2.0), (1.0, 2.0, 1.0), (3.0, 4.0, 4.0))
    assert (same.past, same.current, same.future) == ((None,) * 3, (2.0,) * 3, (2.5,) * 3)


def test_tasks_that_never_came_are_future_and_neither_forgotten_nor_transferred():
    matrix = [[80, 10, 10], [70, 60, 10]]
    result = summarise(matrix, baseline=[0, 4, 50])
    assert result.future == (10.0, 10.0)
    assert result.forgetting == 10.0
    assert result.backward_transfer == -10.0
    assert result.forward_transfer == 6.0


def test_what_was_not_measured_is_left_out():
    matrix = np.array([[90, NAN, NAN], [NAN, 80, NAN], [60, NAN, 95]])
    result = summarise(matrix, baseline=[10, 10, 10])
    assert result.past == (None, None, 60.0)
    assert result.future == (None, None, None)
    assert result.final == 77.5
    assert result.forgetting == 30.0  # of task 0 alone: task 1 was not measured at the end
    assert result.forward_transfer is None


def test_one_checkpoint_says_nothing_of_forgetting_or_transfer():
    result = summarise([[50.0]], baseline=[10])
    assert (result.past, result.current, result.future) == ((None,), (50.0,), (None,))
    assert result.forgetting is result.backward_transfer is result.forward_transfer is None
    assert summarise(TRIANGLE).forward_transfer is None


def test_the_matrix_is_not_changed():
    matrix = TRIANGLE.copy()
    summarise(matrix, [0, 1, 2], [1, 2, 3])
    np.testing.assert_array_equal(matrix, TRIANGLE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1.0, 2.0],), r"matrix has shape \(2,\): wanted \[checkpoints, tasks\]"),
        ((np.zeros((0, 3)),), r"matrix has shape \(0, 3\)"),
        (([["a"]],), "matrix has type <U1"),
        (([[math.inf]],), "matrix holds infinite values"),
        ((np.zeros((3, 2)),), "3 checkpoints of 2 tasks: say which came when in tasks_seen"),
        ((TRIANGLE, [0, 1]), r"tasks_seen is \[0, 1\]: wanted 3 integers from 0 to 2"),
        ((TRIANGLE, [0, 1, 3]), r"tasks_seen is \[0, 1, 3\]: wanted 3 integers"),
        ((TRIANGLE, [0, -1, 2]), "wanted 3 integers from 0 to 2"),
        ((TRIANGLE, [0, 0.5, 2]), "wanted 3 integers from 0 to 2"),
        ((TRIANGLE, None, [1, 2]), r"baseline has shape \(2,\): wanted 3 accuracies"),
        ((TRIANGLE, None, [1, 2, math.inf]), "baseline holds infinite"),
    ],
)
def test_wrong_input_is_an_error_that_says_what_was_given(arguments, said):
    with pytest.raises(DataError, match=said):
        summarise(*arguments)
