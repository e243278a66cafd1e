"""The parts of `ocssl bench`: run, printed as they are measured, saved, and compared with an earlier run."""

import importlib
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ocssl import __version__
from ocssl._files.untrusted import read_json, reading
from ocssl.bench.timing import Effort, Row
from ocssl.errors import DataError, unknown
from ocssl.results.evaluate_runs import write_json

PARTS = ("start", "step", "methods", "views", "memory", "overlap", "probes", "decode", "resident")
MODULES = {
    "start": "startup_and_memory",
    "step": "steps",
    "methods": "steps",
    "resident": "startup_and_memory",
}  # the others: by name
SLOWER = 1.15  # beyond this, and beyond the quartiles of both runs, a figure has become worse
BUSY = 0.5  # load per core from which figures are not to be trusted
FORMAT = 1
NAME, QUARTILES = 66, 22  # characters


def select_parts(names: Sequence[str]) -> tuple[str, ...]:
    """The parts of these names, in their usual order; all if none is named."""
    for name in names:
        if name not in PARTS:
            raise unknown("benchmark part", name, PARTS)
    return tuple(part for part in PARTS if part in names or not names)


def measure(parts: Sequence[str], effort: Effort) -> Iterator[Row]:
    """The rows of the parts, each as soon as it is known. The number of threads is set, and set back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(effort.threads)
    try:
        for part in parts:
            module = importlib.import_module(f"ocssl.bench.{MODULES.get(part, part)}")
            yield from getattr(module, f"{part}_rows")(effort)
    finally:
        torch.set_num_threads(before)


def machine(effort: Effort) -> dict[str, Any]:
    """What the figures depend on beside the code."""
    import torch

    return {
        "ocssl": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": effort.threads,
        "quick": effort.quick,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _busy() -> str:
    """What other programs do to the figures, before anything is measured; empty where the machine is quiet."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load < BUSY * cores:
        return ""
    return f"the machine is busy (load {load:.1f} on {cores} cores); close other programs and measure again."


def save(path: Path, machine: dict[str, Any], rows: Sequence[Row]) -> None:
    write_json(content(machine, rows), path)


def content(machine: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """All figures, as they are saved."""
    return {"format": FORMAT, "machine": machine, "rows": [row.json() for row in rows]}


@dataclass(frozen=True)
class Baseline:
    """Figures of an earlier run."""

    machine: dict[str, Any]
    figures: dict[str, tuple[float, float, float]]  # key of a row -> low, middle, high

    def compare(self, row: Row) -> tuple[float, bool] | None:
        """How many times the earlier figure this one is, and whether that is worse beyond the noise of both runs."""
        low, middle, high = self.figures.get(row.key, (0.0, 0.0, 0.0))
        if middle <= 0 or row.value.middle <= 0:
            return None
        times = row.value.middle / middle
        if row.more_is_better:
            return times, times < 1 / SLOWER and row.value.high < low
        return times, times > SLOWER and row.value.low > high


def load_baseline(path: Path) -> Baseline:
    """A file that `save` wrote."""
    with reading(path, DataError):
        content = read_json(path)
    try:
        if content["format"] != FORMAT:
            raise DataError(f"{path}: written by another version (format {content['format']}); measure it again.")
        spreads = {f"{row['part']}: {row['name']}": row["value"] for row in content["rows"]}
        figures = {key: (float(v["low"]), float(v["middle"]), float(v["high"])) for key, v in spreads.items()}
        return Baseline(dict(content["machine"]), figures)
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} is not a file that `ocssl bench --output` wrote.") from None


class Printer:
    """Prints rows as they come, and remembers those that miss their bar or are worse than before."""

    def __init__(self, screen: Console, baseline: Baseline | None = None) -> None:
        self.screen, self.baseline = screen, baseline
        self.missed: list[str] = []
        self.worse: list[str] = []
        self.busy = _busy()

    def head(self, machine: dict[str, Any]) -> None:
        """Print the machine, and how that of the baseline differs."""
        about = "{processor}, {cores} cores, {threads} threads, {instructions}, torch {torch}".format(**machine)
        self._print(f"{about}{', quick' if machine['quick'] else ''}; median, quartiles")
        if self.busy:
            self._print(f"Warning: {self.busy}", "yellow")
        before = self.baseline.machine if self.baseline else machine
        changed = {key: value for key, value in machine.items() if key != "ocssl" and before.get(key) != value}
        if changed:
            others = "; ".join(f"{key} {before.get(key)}, here {value}" for key, value in changed.items())
            self._print(f"The baseline is from elsewhere: {others}. Only ratios (x) compare.", "yellow")

    def show(self, row: Row) -> None:
        value, unit = row.value, row.unit
        figure = f"{number(value.middle)} {'' if unit == 'count' else unit}".strip()
        quartiles = f"{number(value.low)} to {number(value.high)}" if value.rounds > 1 else ""
        line, style = f"{row.key:<{NAME}} {figure:>14}  {quartiles:<{QUARTILES}}", ""
        if row.bar:
            met = row.bar.met(value.middle)
            line += f" {'met' if met else 'MISSED'}: {row.bar}"
            style = "green" if met else "bold red"
            self.missed += [] if met else [row.key]
        compared = self.baseline.compare(row) if self.baseline else None
        if compared:
            times, worse = compared
            line += f"  {number(times)} of before{', WORSE' if worse else ''}"
            style = "bold red" if worse else style
            self.worse += [row.key] if worse else []
        self._print(line.rstrip(), style)

    def foot(self) -> bool:
        """Print what is missed or worse. Returns whether anything is."""
        for title, keys in (("Bars that were missed", self.missed), ("Worse than before", self.worse)):
            if keys:
                self._print(f"{title}: {'; '.join(keys)}", "bold red")
        if self.busy and (self.missed or self.worse):
            self._print(f"The cause may be other programs: {self.busy}", "yellow")
        return bool(self.missed or self.worse)

    def _print(self, text: str, style: str = "") -> None:
        self.screen.print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)


def number(value: float) -> str:
    """A number with three or four significant digits."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 100 else 2 if size >= 10 else 3}f}"
