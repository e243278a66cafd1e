"""Running the parts, and what is kept of it: the machine, the rows, and how they compare with an earlier run."""

from __future__ import annotations

import importlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocssl import __version__
from ocssl.bench.rows import Effort, Row
from ocssl.errors import DataError, unknown
from ocssl.results.inspect_tables import write_json

PARTS = ("start", "step", "methods", "views", "memory", "overlap", "probes", "decode", "resident")
SLOWER = 1.15  # beyond this, and beyond the quartiles of both runs, a figure has become worse
FORMAT = 1


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The parts of these names, in their usual order; all if none is named."""
    for name in names:
        if name not in PARTS:
            raise unknown("benchmark part", name, PARTS)
    return tuple(part for part in PARTS if part in names) if names else PARTS


def measure(parts: Sequence[str], effort: Effort) -> Iterator[Row]:
    """The rows of the parts, each as soon as it is known. The number of threads is set, and set back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(effort.threads)
    try:
        for part in parts:
            rows: Callable[[Effort], Iterator[Row]] = importlib.import_module(f"ocssl.bench.{part}").rows
            yield from rows(effort)
    finally:
        torch.set_num_threads(before)


def machine(effort: Effort) -> dict[str, Any]:
    """What the figures depend on beside the code."""
    import torch

    return {
        "ocssl": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": effort.threads,
        "quick": effort.quick,
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def save(path: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    told = {"format": FORMAT, "machine": about, "rows": [row.json() for row in rows]}
    write_json(told, path)


@dataclass(frozen=True)
class Baseline:
    """Figures of an earlier run."""

    machine: dict[str, Any]
    middle: dict[str, tuple[float, float, float]]  # key of a row -> low, middle, high

    def against(self, row: Row) -> tuple[float, bool] | None:
        """How many times the earlier figure this one is, and whether that is worse beyond the noise of both runs."""
        if row.key not in self.middle:
            return None
        low, middle, high = self.middle[row.key]
        if middle <= 0 or row.value.middle <= 0:
            return None
        times = row.value.middle / middle
        if row.more_is_better:
            return times, times < 1 / SLOWER and row.value.high < low
        return times, times > SLOWER and row.value.low > high


def load(path: Path) -> Baseline:
    """A file that `save` wrote."""
    try:
        told = json.loads(path.read_text())
        if told["format"] != FORMAT:
            raise DataError(f"{path}: written by another version (format {told['format']}); measure it again.")
        spreads = {f"{row['part']}: {row['name']}": row["value"] for row in told["rows"]}
        middle = {key: (float(v["low"]), float(v["middle"]), float(v["high"])) for key, v in spreads.items()}
        return Baseline(dict(told["machine"]), middle)
    except OSError as error:
        raise DataError(f"cannot read the baseline {path}: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} is not a file that `ocssl bench --output` wrote.") from None
