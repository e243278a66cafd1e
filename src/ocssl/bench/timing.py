"""How benchmarks measure: alternating rounds in one process, quartiles, limits, and child processes."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ocssl.errors import OcsslError

Workload = Callable[[], object]
Times = dict[str, list[float]]  # name of a workload -> seconds of each round
Unit = Literal["x", "s", "ms", "us", "images/s", "MB", "bytes", "count"]
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    quick: bool = False
    threads: int = 2

    def rounds(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Spread:
    """The median of many measurements, and the quartiles around it."""

    low: float
    middle: float
    high: float
    rounds: int


@dataclass(frozen=True)
class Bar:
    """A promise about a figure."""

    limit: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}"


@dataclass(frozen=True)
class Row:
    """One figure. `part` and `name` together are its key, by which it is compared with an earlier run."""

    part: str
    name: str
    value: Spread
    unit: Unit
    bar: Bar | None = None
    faster: bool = False  # the figure says how many times faster than a peer: more is better
    note: str = ""

    @property
    def key(self) -> str:
        return f"{self.part}: {self.name}"

    @property
    def more_is_better(self) -> bool:
        return self.faster or self.unit == "images/s"

    def json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v not in (None, "")}


def spread(values: Sequence[float], scale: float = 1.0) -> Spread:
    """Median and quartiles of values in another unit; one value alone is all three."""
    scaled = [scale * value for value in values]
    if len(scaled) == 1:
        return exact(scaled[0])
    low, middle, high = statistics.quantiles(scaled, n=4, method="inclusive")
    return Spread(low, middle, high, len(scaled))


def exact(value: float) -> Spread:
    """A figure that does not vary, such as a count of bytes."""
    return Spread(value, value, value, 1)


def interleaved(workloads: Mapping[str, Workload], rounds: int, warmup: int = 1) -> Times:
    """Seconds of every workload in every round; every second round runs them backwards. Warm-up is not counted.

    Workloads that are compared run in turn, so that the machine's noise meets them all.
    """
    times: Times = {name: [] for name in workloads}
    for number in range(-warmup, rounds):
        for name in list(workloads) if number % 2 else reversed(list(workloads)):
            start = time.perf_counter()
            workloads[name]()
            seconds = time.perf_counter() - start
            if number >= 0:
                times[name].append(seconds)
    return times


def ratio(times: Times, above: str, below: str) -> Spread:
    """How many times longer `above` takes than `below`: the ratios of neighbours, round by round."""
    return spread([a / b for a, b in zip(times[above], times[below], strict=True)])


# ---- other processes ------------------------------------------------------------------------------------------------


def python(*words: str) -> str:
    """What a new interpreter prints when it is started with these words."""
    process = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if process.returncode:
        why = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise OcsslError(f"a process that was to be measured ended with {process.returncode}: {why}.")
    return process.stdout


def in_process(function: Callable[..., None], *arguments: str | int) -> Any:
    """The JSON that a function prints in a process where nothing else has run."""
    name = function.__name__
    return json.loads(python("-c", f"from {function.__module__} import {name}; {name}{arguments!r}"))


def resident_mb(field: str = "VmRSS") -> float | None:
    """The memory of this process by Linux, in MB: now (VmRSS) or at most (VmHWM). None on other systems.

    The peak of getrusage is no use here: a new process inherits that of its parent.
    """
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) / 2**10 for line in lines if line.startswith(f"{field}:")), None)
