"""What per-task accuracies say of a stream: past, current and future tasks, forgetting and transfer.

The accuracy matrix A [checkpoints, tasks] holds in row s the accuracy of every task after experience s, NaN where it
was not measured; what is not measured is left out of every mean, and a mean of nothing is None. ``tasks_seen`` names
the task of each experience, from 0; without it experience s is task s. A task may come back: it counts as learned
when it first came, and is past at every later checkpoint but its own. Results are in the matrix's unit.
"""

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
    """Everything that is read from an accuracy matrix; ``dataclasses.asdict`` of it can be written as JSON.

    Forgetting is that of Chaudhry et al. (2018). Earlier means any checkpoint but the last, also before the task was
    learned: a representation can be good for a task that has not come yet. Backward transfer, negative where later
    learning has hurt, and forward transfer, positive where earlier learning helps, are those of Lopez-Paz and Ranzato
    (2017).
    """

    past: Row  # [checkpoints] mean over the other tasks that came before
    current: Row  # [checkpoints] the task of the experience just learned
    future: Row  # [checkpoints] mean over the tasks that have not come yet
    final: float | None  # mean over tasks after the last experience
    average: float | None  # mean over checkpoints of the mean over tasks
    forgetting: float | None  # best accuracy at an earlier checkpoint - final; tasks seen, without the last
    backward_transfer: float | None  # final accuracy - that right after the task first came; without the last
    forward_transfer: float | None  # accuracy just before the task first came - baseline; without the first


def summarise(
    matrix: npt.ArrayLike, tasks_seen: Sequence[int] | None = None, baseline: npt.ArrayLike | None = None
) -> TaskSummary:
    """All figures of an accuracy matrix at once; ``baseline`` [tasks] is the accuracy of the untrained encoder."""
    table = _numbers("matrix", matrix)
    if table.ndim != 2 or table.size == 0:
        raise DataError(f"matrix has shape {table.shape}: wanted [checkpoints, tasks], with no empty axis.")
    seen = _seen(table, tasks_seen)
    past, current, future = zip(*(_past_current_future(row, seen[: s + 1]) for s, row in enumerate(table)), strict=True)
    first = {task: s for s, task in reversed(list(enumerate(seen)))}  # the checkpoint right after a task first came
    learned = {task: s for task, s in first.items() if task != seen[-1]}  # nothing has come after the last
    means = [_mean(row) for row in table]
    untrained = None if baseline is None else _numbers("baseline", baseline)
    if untrained is not None and untrained.shape != (table.shape[1],):
        raise DataError(f"baseline has shape {untrained.shape}: wanted {table.shape[1]} accuracies, one per task.")
    return TaskSummary(
        past=past,
        current=current,
        future=future,
        final=means[-1],
        average=_mean(mean for mean in means if mean is not None),
        forgetting=_mean(_best(table[:-1, task]) - table[-1, task] for task in learned),
        backward_transfer=_mean(table[-1, task] - table[s, task] for task, s in learned.items()),
        forward_transfer=None
        if untrained is None
        else _mean(table[s - 1, task] - untrained[task] for task, s in first.items() if s > 0),
    )


def _past_current_future(row: npt.NDArray[np.float64], seen: Sequence[int]) -> tuple[float | None, ...]:
    """Mean accuracy of the other tasks seen before a checkpoint, of the task just seen, of those unseen."""
    before = set(seen) - {seen[-1]}
    after = set(range(len(row))) - set(seen)
    return _mean(row[sorted(before)]), _mean(row[[seen[-1]]]), _mean(row[sorted(after)])


def _best(values: npt.NDArray[np.float64]) -> float:
    """The highest number; NaN where none was measured."""
    measured = values[~np.isnan(values)]
    return float(measured.max()) if len(measured) else math.nan


def _numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Real numbers as float64; NaN is allowed, infinity is not."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} has type {array.dtype}: wanted real numbers, NaN where nothing was measured.")
    if np.isinf(array).any():
        raise DataError(f"{name} holds infinite values: wanted finite numbers, NaN where nothing was measured.")
    return array.astype(np.float64)


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


def _mean(values: Iterable[float]) -> float | None:
    """Mean of the numbers that are not NaN; None when there is none."""
    measured = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(measured) / len(measured) if measured else None
