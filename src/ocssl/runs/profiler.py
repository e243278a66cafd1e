"""Where the time of a run goes, phase by phase, and `timing.json`, which records it.

A learner's parts are wrapped from outside, so the loop stays as it is. Seconds differ from run to run, so they have a
file to themselves; what a crash lost before the next checkpoint is not in them.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ocssl._files.atomic import replace_file
from ocssl._files.untrusted import read_json
from ocssl.learner import Learner

PHASES = ("draw", "views", "forward", "terms", "backward", "optimizer", "refresh", "insert", "rest")
AROUND = ("data", "probe", "save")  # what a run does around its learner
TIMING = "timing.json"
LARGEST = 2**20  # bytes of it

Item = TypeVar("Item")


class PhaseClock:
    """Counts the seconds of a learner's phases from now on.

    A phase inside another counts for itself alone: views that a memory rule asks for while it draws are `views`. On an
    asynchronous device a phase has the seconds of the program; those in which it waits for the device, once a
    minibatch, belong to `rest`.
    """

    def __init__(self, learner: Learner, before: Mapping[str, float] | None = None) -> None:
        self.seconds = dict.fromkeys((*PHASES, *AROUND), 0.0) | dict(before or {})
        self._running: list[str] = []
        self._since = 0.0
        memory = learner.memory
        for owner, name, phase in (
            (learner, "partial_fit", "rest"),
            (memory, "draw", "draw"),
            (learner, "_see", "views"),
            (learner.objective, "forward", "forward"),
            *((term, "forward", "terms") for term in learner.terms.values()),
            (learner, "_step", "backward"),
            (learner._optimizer, "step", "optimizer"),
            (memory, "refresh", "refresh"),
            (memory, "insert", "insert"),
        ):
            setattr(owner, name, self._timed(getattr(owner, name), phase))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Count what is done inside for a phase."""
        self._switch(phase)
        try:
            yield
        finally:
            self._switch(None)

    def each(self, phase: str, items: Iterable[Item]) -> Iterator[Item]:
        """The items, the waiting for each counted for a phase."""
        source = iter(items)
        while True:
            with self.during(phase):
                item = next(source, None)
            if item is None:
                return
            yield item

    def _timed(self, work: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            with self.during(phase):
                return work(*args, **options)

        return run

    def _switch(self, phase: str | None) -> None:
        """Begin a phase inside the current one, or end the current one."""
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now
        if phase is None:
            self._running.pop()
        else:
            self._running.append(phase)


def write_timing(folder: Path, seconds: Mapping[str, float]) -> None:
    """Record the seconds of each phase up to a checkpoint."""
    body = {phase: round(spent, 6) for phase, spent in seconds.items()}
    replace_file(folder / TIMING, json.dumps(body, indent=1).encode())


def read_timing(folder: Path) -> dict[str, float]:
    """The seconds by phase of a run folder; empty if there are none, or none that can be read."""
    try:
        found = read_json(folder / TIMING, LARGEST, links=False)
    except (OSError, ValueError):
        return {}
    return {phase: float(spent) for phase, spent in found.items() if _seconds(spent)} if isinstance(found, dict) else {}


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
