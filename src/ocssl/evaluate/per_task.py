"""What per-task accuracies say of a stream: past, current and future tasks, forgetting and transfer.

The accuracy matrix A [checkpoints, tasks] holds in row s the accuracy of every task after experience s, NaN where it
was not measured; what is not measured is left out of every mean, and a mean of nothing is None. ``tasks_seen`` names
the task of each experience, from 0; without it experience s is task s. A task may come back: it counts as learned
when it first came, and is past at every later checkpoint but its own. Results are in the matrix's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl.errors import DataError

Row = tuple[float | None, ...]


@dataclass(frozen=True)
class TaskSummary:
    """Everything that is read from an accuracy matrix; ``dataclasses.asdict`` of it can be written as JSON."""

    past: Row  # [checkpoints] mean over the other tasks that came before
    current: Row  # [checkpoints] the task of the experience just learned
    future: Row  # [checkpoints] mean over the tasks that have not come yet
    final: float | None  # mean over tasks after the last experience
    average: float | None  # mean over checkpoints of the mean over tasks
    forgetting: float | None
    backward_transfer: float | None
    forward_transfer: float | None


def summarise(
    matrix: npt.ArrayLike, tasks_seen: Sequence[int] | None = None, baseline: npt.ArrayLike | None = None
) -> TaskSummary:
    """All figures of an accuracy matrix at once; ``baseline`` [tasks] is the accuracy of the untrained encoder."""
    past, current, future = past_current_future(matrix, tasks_seen)
    table = _table(matrix)
    means = [_mean(row) for row in table]
    return TaskSummary(
        past=past,
        current=current,
        future=future,
        final=means[-1],
        average=_mean(mean for mean in means if mean is not None),
        forgetting=forgetting(table, tasks_seen),
        backward_transfer=backward_transfer(table, tasks_seen),
        forward_transfer=None if baseline is None else forward_transfer(table, baseline, tasks_seen),
    )


def past_current_future(matrix: npt.ArrayLike, tasks_seen: Sequence[int] | None = None) -> tuple[Row, Row, Row]:
    """For each checkpoint: mean accuracy of the other tasks seen before, of the task just seen, of those unseen."""
    table = _table(matrix)
    seen = _seen(table, tasks_seen)
    rows: list[tuple[float | None, float | None, float | None]] = []
    for s, row in enumerate(table):
        before = set(seen[:s]) - {seen[s]}
        after = set(range(len(row))) - before - {seen[s]}
        rows.append((_mean(row[sorted(before)]), _mean(row[[seen[s]]]), _mean(row[sorted(after)])))
    past, current, future = zip(*rows, strict=True)
    return past, current, future


def forgetting(matrix: npt.ArrayLike, tasks_seen: Sequence[int] | None = None) -> float | None:
    """Mean over the tasks seen, without the last, of the best accuracy at an earlier checkpoint minus the final one.

    Chaudhry et al. (2018). Earlier means any checkpoint but the last, also before the task was learned: a
    representation can be good for a task that has not come yet. Negative where the end is better than ever before.
    """
    table = _table(matrix)
    falls = []
    for j in _learned(_seen(table, tasks_seen)):
        earlier = table[:-1, j][~np.isnan(table[:-1, j])]
        falls.append(earlier.max() - table[-1, j] if len(earlier) else math.nan)
    return _mean(falls)


def backward_transfer(matrix: npt.ArrayLike, tasks_seen: Sequence[int] | None = None) -> float | None:
    """Mean over the tasks seen, without the last, of the final accuracy minus that right after the task first came.

    Lopez-Paz and Ranzato (2017). Negative where what was learned later has hurt.
    """
    table = _table(matrix)
    learned = _learned(_seen(table, tasks_seen))
    return _mean(table[-1, j] - table[s, j] for j, s in learned.items())


def forward_transfer(
    matrix: npt.ArrayLike, baseline: npt.ArrayLike, tasks_seen: Sequence[int] | None = None
) -> float | None:
    """Mean over the tasks seen, without the first, of the accuracy just before the task first came minus ``baseline``.

    Lopez-Paz and Ranzato (2017); ``baseline`` [tasks] is the accuracy of the untrained encoder. Positive where what was
    learned earlier helps.
    """
    table = _table(matrix)
    untrained = _numbers("baseline", baseline)
    if untrained.shape != (table.shape[1],):
        raise DataError(f"baseline has shape {untrained.shape}: wanted {table.shape[1]} accuracies, one a task.")
    first = _first_seen(_seen(table, tasks_seen))
    return _mean(table[s - 1, j] - untrained[j] for j, s in first.items() if s > 0)


def _numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Real numbers as float64; NaN is allowed, infinity is not."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} has type {array.dtype}: wanted real numbers, NaN where nothing was measured.")
    if np.isinf(array).any():
        raise DataError(f"{name} holds infinite values: wanted finite numbers, NaN where nothing was measured.")
    return array.astype(np.float64)


def _table(matrix: npt.ArrayLike) -> npt.NDArray[np.float64]:
    table = _numbers("matrix", matrix)
    if table.ndim != 2 or table.size == 0:
        raise DataError(f"matrix has shape {table.shape}: wanted [checkpoints, tasks], with no empty axis.")
    return table


def _seen(table: npt.NDArray[np.float64], tasks_seen: Sequence[int] | None) -> list[int]:
    """The task of each checkpoint."""
    checkpoints, tasks = table.shape
    if tasks_seen is None:
        if checkpoints > tasks:
            raise DataError(
                f"matrix has {checkpoints} checkpoints of {tasks} tasks: say which came when in tasks_seen."
            )
        return list(range(checkpoints))
    seen = np.asarray(tasks_seen)
    if seen.dtype.kind not in "iu" or seen.shape != (checkpoints,) or seen.min() < 0 or seen.max() >= tasks:
        raise DataError(f"tasks_seen is {list(tasks_seen)}: wanted {checkpoints} integers from 0 to {tasks - 1}.")
    return [int(task) for task in seen]


def _first_seen(seen: Sequence[int]) -> dict[int, int]:
    """The checkpoint right after each task first came, in that order."""
    first: dict[int, int] = {}
    for s, task in enumerate(seen):
        first.setdefault(task, s)
    return first


def _learned(seen: Sequence[int]) -> dict[int, int]:
    """As _first_seen, without the task of the last experience: nothing has come after it."""
    return {task: s for task, s in _first_seen(seen).items() if task != seen[-1]}


def _mean(values: Iterable[float]) -> float | None:
    """Mean of the numbers that are not NaN; None when there is none."""
    measured = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(measured) / len(measured) if measured else None
