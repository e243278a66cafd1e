"""Where the runs of all plans stand: one folder a run, named by its address, so that plans share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ocssl.errors import OcsslError, RunFolderError
from ocssl.launch.pool import run_all
from ocssl.results.paper.plan import Planned
from ocssl.runs.config import RunSettings
from ocssl.runs.folder import finished, place
from ocssl.runs.initial_weights import digest, read_weights
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop
from ocssl.settings import DataSettings

RUNS = "runs"


class Shelf:
    """Run folders under one folder. `reading` says where the images of a benchmark lie, `run_all` who runs them."""

    def __init__(
        self,
        out: Path,
        reading: Mapping[str, DataSettings],
        device: str = "cpu",
        run_all: Callable[..., dict[str, str]] = run_all,
    ) -> None:
        self.out, self.reading, self.device, self.run_all = out, reading, device, run_all

    def make(self) -> None:
        """Make the folder for all of it; a place where that is not possible is told before anything is run."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(f"cannot write to {self.out}: {error.strerror}.") from None

    def folder(self, run: Planned) -> Path:
        return self.out / RUNS / run.folder

    def folders(self, runs: Iterable[Planned]) -> dict[str, Path]:
        """The folders of runs by their addresses."""
        return {run.address: self.folder(run) for run in runs}

    def open(self, runs: Iterable[Planned], bars: Bars, stop: Stop, workers: int) -> dict[str, str]:
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
                    ready[run.folder] = self._prepare(run)
                except OcsslError as error:
                    failures[run.folder] = str(error)
            failures |= self.run_all(ready, bars, stop, workers=workers)
        return failures

    def _prepare(self, run: Planned) -> Path:
        """The folder of a run, made where there is none; one that is there must hold this run."""
        folder = self.folder(run)
        place(folder, self._here(run))
        return folder

    def _here(self, run: Planned) -> RunSettings:
        """The settings with what belongs to this machine: where images lie, and the weights to start from."""
        update: dict[str, Any] = {"data": self.reading.get(run.settings.benchmark, run.settings.data)}
        if run.parent:
            parent = self.folder(run.parent)
            if finished(parent) is None:
                raise OcsslError(f"it starts from {parent}, which has not come to its end.")
            told = {"path": str(parent.absolute()), "sha256": digest(read_weights(parent))}
            update["init"] = run.settings.init.model_copy(update=told)
        return run.settings.model_copy(update=update)


def _generation(run: Planned) -> int:
    return 0 if run.parent is None else 1 + _generation(run.parent)
