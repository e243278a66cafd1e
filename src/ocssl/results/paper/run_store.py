"""The runs of plans: one folder a run, named by its address, so that plans share them; and what they measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ocssl._core.table import mean_and_deviation
from ocssl.errors import OcsslError, RunFolderError
from ocssl.launch import process_pool
from ocssl.results.paper.plan import Planned, by_seeds
from ocssl.runs.config import RunSettings
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, create_or_check, finished
from ocssl.runs.initial_weights import digest, read_weights
from ocssl.runs.profiler import read_timing
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop
from ocssl.settings import DataSettings

RUNS = "runs"
Values = list[float | None]
NOT_TRAINING = ("probe", "save")  # phases that are no part of learning
WINDOWS = 50  # parts of the stream over which the loss is averaged


@dataclass
class RunStore:
    """Run folders under one folder. `reading` says where the images of a benchmark are, `run_all` who runs them."""

    out: Path
    reading: Mapping[str, DataSettings]
    device: str = "cpu"
    run_all: Callable[..., dict[str, str]] = process_pool.run_all

    def make(self) -> None:
        """Make the folder for all of it, so that one that cannot be made is an error before anything is run."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.out}: {error.strerror}.") from None

    def folder(self, run: Planned) -> Path:
        return self.out / RUNS / run.folder

    def run(self, runs: Iterable[Planned], bars: Bars, stop: Stop, workers: int) -> dict[str, str]:
        """Bring all runs to their end, those that others start from first; returns what failed."""
        failures: dict[str, str] = {}
        waves: dict[int, dict[str, Planned]] = {}
        for run in runs:
            waves.setdefault(_generation(run), {})[run.address] = run
        for _, wave in sorted(waves.items()):
            if stop:
                break
            ready = {}
            for run in wave.values():
                try:
                    ready[run.folder] = self.prepare(run)
                except OcsslError as error:
                    failures[run.folder] = str(error)
            failures |= self.run_all(ready, bars, stop, workers=workers)
        return failures

    def prepare(self, run: Planned) -> Path:
        """The folder of a run, made where there is none; one that is there must hold this run."""
        create_or_check(self.folder(run), self._settings(run))
        return self.folder(run)

    def gather(self, runs: Sequence[Planned]) -> list[Group]:
        """The finished runs of a plan, seeds together, in the plan's order; damaged ones are left out."""
        groups = []
        for seeds in by_seeds(runs):
            found = [(run, self._metrics(run)) for run in seeds]
            results = [Result(run, self.folder(run), metrics) for run, metrics in found if metrics]
            if results:
                groups.append(Group(seeds[0].row, seeds[0].point, seeds[0].benchmark, results, len(seeds)))
        return groups

    def _metrics(self, run: Planned) -> dict[str, Any] | None:
        try:
            return finished(self.folder(run))
        except RunFolderError:  # reported when it was run
            return None

    def _settings(self, run: Planned) -> RunSettings:
        """The settings with what belongs to this machine: where images are, and the weights to start from."""
        update: dict[str, Any] = {"data": self.reading.get(run.settings.benchmark, run.settings.data)}
        if run.parent:
            parent = self.folder(run.parent)
            if finished(parent) is None:
                raise OcsslError(f"it starts from {parent}, which is not finished.")
            start = {"path": str(parent.absolute()), "sha256": digest(read_weights(parent))}
            update["init"] = run.settings.init.model_copy(update=start)
        return run.settings.model_copy(update=update)


def _generation(run: Planned) -> int:
    return 0 if run.parent is None else 1 + _generation(run.parent)


@dataclass(frozen=True)
class Result:
    """A finished run."""

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


Course = Callable[[Result], tuple[Values, Values]]  # shares of the stream in per cent, and values


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

    def number(self, key: str) -> tuple[float | None, float | None]:
        """Mean and standard deviation of a metric over the seeds; the latter needs two."""
        return mean_and_deviation([result.metrics.get(key) for result in self.results])

    def course(self, value: Course) -> tuple[Values, Values, Values]:
        """Mean and standard deviation over the seeds at every point of a course."""
        courses = [value(result) for result in self.results]
        x, length = courses[0][0], min(len(y) for _, y in courses)
        spread = [mean_and_deviation([y[place] for _, y in courses]) for place in range(length)]
        return x[:length], [mean for mean, _ in spread], [deviation for _, deviation in spread]
