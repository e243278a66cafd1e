"""What the runs of a plan have brought, gathered over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ocssl.errors import RunFolderError
from ocssl.results.paper.plan import Planned
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, finished
from ocssl.runs.timing import read_timing

Values = list[float | None]
NOT_TRAINING = ("probe", "save")  # phases that are no part of learning
WINDOWS = 50  # parts of the stream over which the loss is averaged


@dataclass(frozen=True)
class Result:
    """A run that came to its end."""

    planned: Planned
    folder: Path
    metrics: Mapping[str, Any]

    def course(self, measure: str) -> tuple[Values, Values]:
        """Accuracy or loss along the stream: shares of it in per cent, and values."""
        total = self.metrics["positions"][-1]
        if measure == "loss":
            return self._loss(total)
        return [100 * position / total for position in self.metrics["positions"]], list(self.metrics["accuracies"])

    def _loss(self, total: int) -> tuple[Values, Values]:
        windows: dict[int, list[float]] = {}
        for event in read_events(self.folder / EVENTS):
            if event["event"] == "step" and event.get("ssl") is not None and "position" in event:
                windows.setdefault((event["position"] - 1) * WINDOWS // total, []).append(event["ssl"])
        return [100 * (window + 0.5) / WINDOWS for window in windows], [fmean(values) for values in windows.values()]

    def training_seconds(self) -> float:
        """What learning alone took: no probing and no saving."""
        return sum(spent for phase, spent in read_timing(self.folder).items() if phase not in NOT_TRAINING)


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    row: str
    point: dict[str, Any]
    benchmark: str
    results: list[Result]
    wanted: int  # seeds that the plan asks for

    @property
    def short(self) -> str:
        """Said beside a group's numbers where not all seeds are there."""
        return f" ({len(self.results)} of {self.wanted} seeds)" if len(self.results) < self.wanted else ""

    def number(self, value: Callable[[Result], float | None]) -> tuple[float | None, float | None]:
        """Mean and standard deviation over the seeds; the latter needs two."""
        return mean_and_deviation([value(result) for result in self.results])

    def course(self, value: Callable[[Result], tuple[Values, Values]]) -> tuple[Values, Values, Values]:
        """Mean and standard deviation over the seeds at every point of a course."""
        courses = [value(result) for result in self.results]
        x, length = courses[0][0], min(len(y) for _, y in courses)
        spread = [mean_and_deviation([y[place] for _, y in courses]) for place in range(length)]
        return x[:length], [mean for mean, _ in spread], [deviation for _, deviation in spread]


def mean_and_deviation(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None, stdev(known) if len(known) > 1 else None


def gather(runs: Sequence[Planned], folders: Mapping[str, Path]) -> list[Group]:
    """The finished runs of a plan, seeds together, in the plan's order; `folders` by address.

    A run whose record is damaged is left out: whoever brought it to its end has told of it.
    """
    planned: dict[tuple[str, str, str], list[Planned]] = {}
    for run in runs:
        planned.setdefault((run.row, repr(run.point), run.benchmark), []).append(run)
    groups = []
    for seeds in planned.values():
        results = [Result(run, folders[run.address], metrics) for run in seeds if (metrics := _metrics(run, folders))]
        if results:
            groups.append(Group(seeds[0].row, seeds[0].point, seeds[0].benchmark, results, len(seeds)))
    return groups


def _metrics(run: Planned, folders: Mapping[str, Path]) -> dict[str, Any] | None:
    try:
        return finished(folders[run.address])
    except RunFolderError:
        return None
