"""The search for Latent Rehearsal Decay: what it costs, and which of its cells decay.

    python benchmarks/decay_search.py budget docs/results/search-decay/specs   # core hours of all cells, 40 at most
    for spec in docs/results/search-decay/specs/*.toml; do ocssl sweep $spec --workers 1 --data DIR; done
    python benchmarks/decay_search.py table runs/wide-8px runs/narrow-8px           # also of kept runs

A run decays if, after its highest accuracy, accuracy falls by 2 points or more, Deviation falls and Overlap rises, each
from that evaluation to the last. A cell decays if Reservoir's run does in three seeds of three, and FIFO's in none. The
highest of noisy values is too high: about a point of every fall is chance, so a cell needs its seeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ocssl._core.table import Row, Table
from ocssl.cost import Machine, calibrate, estimate
from ocssl.launch.sweep import plan, read_spec
from ocssl.results.read_runs import Run, read_runs

FALL, SEEDS = 2.0, 3  # points of accuracy; seeds that all have to decay
MOST_HOURS = 40.0
RESERVOIR, FIFO = "er-reservoir", "er-fifo"
SAME = ("method", "seed", "memory.keep", "data.", "checkpoint.", "evaluate.")  # what a cell's runs may differ in


@dataclass(frozen=True)
class Course:
    """A run from its highest accuracy to its end."""

    fall: float  # points of accuracy
    deviation: float  # change
    overlap: float  # change

    @property
    def decays(self) -> bool:
        return self.fall >= FALL and self.deviation < 0 and self.overlap > 0


def course_of(run: Run) -> Course | None:
    """None without two evaluations that have all three measures; the untrained encoder does not count."""
    keys = ("accuracy", "deviation", "overlap")
    found = [tuple(e[key] for key in keys) for e in run.evaluations if e.experience > 0]
    rows = [(a, d, o) for a, d, o in found if a is not None and d is not None and o is not None]
    if len(rows) < 2:
        return None
    best = max(range(len(rows)), key=lambda i: rows[i][0])
    peak, last = rows[best], rows[-1]
    return Course(peak[0] - last[0], last[1] - peak[1], last[2] - peak[2])


@dataclass(frozen=True)
class Cell:
    """Runs that differ in rule and seed alone."""

    name: str
    reservoir: list[Course]
    fifo: list[Course]

    @property
    def decays(self) -> bool:
        """Three seeds of three with Reservoir, none with FIFO."""
        enough = min(len(self.reservoir), len(self.fifo)) >= SEEDS
        return enough and all(c.decays for c in self.reservoir) and not any(c.decays for c in self.fifo)

    @property
    def closeness(self) -> tuple[bool, float, float]:
        """The greater, the nearer to decay: seeds that decay, Reservoir's less FIFO's, then the fall of Reservoir."""
        share = [sum(c.decays for c in own) / max(1, len(own)) for own in (self.reservoir, self.fifo)]
        return self.decays, share[0] - share[1], fmean([c.fall for c in self.reservoir] or [-100.0])


def cells_of(runs: Sequence[Run]) -> list[Cell]:
    """The cells of finished runs of both rules, the nearest to decay first.

    Each is named by the settings in which cells differ, of those that all runs say: older ones say fewer.
    """
    both = [run for run in runs if run.finished and run.method in (RESERVOIR, FIFO)]
    courses = [(run, course) for run in both if (course := course_of(run))]
    settings = [{k: v for k, v in run.settings.items() if not k.startswith(SAME)} for run, _ in courses]
    shared = set.intersection(*map(set, settings)) if settings else set()
    keys = sorted(key for key in shared if len({repr(own[key]) for own in settings}) > 1)
    cells: dict[str, Cell] = {}
    for (run, course), own in zip(courses, settings, strict=True):
        name = ", ".join(f"{key}={own[key]}" for key in keys) or "all"
        cell = cells.setdefault(name, Cell(name, [], []))
        (cell.reservoir if run.method == RESERVOIR else cell.fifo).append(course)
    return sorted(cells.values(), key=lambda cell: cell.closeness, reverse=True)


def table_of(cells: Sequence[Cell]) -> Table:
    rows = []
    for cell in cells:
        own = [f"{sum(c.decays for c in side)} of {len(side)}" for side in (cell.reservoir, cell.fifo)]
        rows.append(Row([cell.name, *own, *_means(cell.reservoir), *_means(cell.fifo), "yes" if cell.decays else "no"]))
    heads = ["cell", "Reservoir decays", "FIFO decays", "fall", "Deviation", "Overlap", "fall", "Deviation", "Overlap"]
    above = ["", "", "", *["Reservoir, peak to end"] * 3, *["FIFO, peak to end"] * 3, ""]
    note = (
        "The cell nearest to decay first. Fall: points of accuracy below the highest; Deviation and Overlap: change "
        "since then. Means over seeds. Decays: three seeds of three with Reservoir, none with FIFO."
    )
    return Table([*heads, "decays"], rows, (0, 1, 2, 9), title="Search for decay", caption=note, above=above)


def _means(courses: Sequence[Course]) -> list[str]:
    if not courses:
        return ["-"] * 3
    columns = ((c.fall for c in courses), (c.deviation for c in courses), (c.overlap for c in courses))
    return [f"{fmean(column):+.{digits}f}" for column, digits in zip(columns, (1, 3, 3), strict=True)]


def budget(folder: Path, machine: Machine) -> Table:
    """What the specs of a folder cost with the seeds that they name."""
    rows, total = [], 0.0
    for path in sorted(folder.glob("*.toml")):
        runs = plan(read_spec(path))
        hours = sum(estimate(run.settings, machine).seconds for run in runs) / 3600
        steps = max(estimate(run.settings, machine).steps for run in runs)
        total += hours
        rows.append(Row([path.stem, f"{len(runs)}", f"{steps:,}", f"{hours:.1f}"]))
    state = "within" if total <= MOST_HOURS else "ABOVE"
    note = f"{total:.1f} core hours on {machine.name} in all, {state} the budget of {MOST_HOURS:g}."
    return Table(["spec", "runs", "steps a run", "core hours"], rows, title="Budget", caption=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["budget", "table"])
    parser.add_argument("folders", type=Path, nargs="+", help="budget: a folder of specs; table: folders of runs")
    options = parser.parse_args()
    if options.what == "budget":
        machine = calibrate(clock=time.process_time)
        print("\n".join(budget(folder, machine).markdown() for folder in options.folders))
    else:
        print(table_of(cells_of(read_runs(options.folders))).markdown())


if __name__ == "__main__":
    main()
