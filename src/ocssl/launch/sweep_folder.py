"""The folder of a sweep: a folder for each run, and what came of them as a table and as `sweep.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ocssl._core.cells import mean_and_spread
from ocssl.errors import OcsslError, SettingError
from ocssl.launch.sweep import Planned
from ocssl.runs.folder import SETTINGS, finished, place, write_out

CSV = "sweep.csv"
NUMBERS = ("start_accuracy", "final_accuracy", "average_accuracy", "steps", "seconds")


def prepare(out: Path, runs: Sequence[Planned]) -> dict[str, Path]:
    """The folders of a sweep's runs by name, made where they are missing; one that holds another run is refused."""
    folders = {run.name: out / run.name for run in runs}
    for run in sorted(runs, key=lambda run: not (folders[run.name] / SETTINGS).exists()):  # refused before any is made
        place(folders[run.name], run.settings)
    return folders


def steps_of(run: Planned) -> int | None:
    """The optimizer steps of a run, where the size of its benchmark is known before it is read."""
    from ocssl.cost.images import Images
    from ocssl.cost.passes import passes_of

    try:
        ends = Images.expected(run.settings).minibatches(run.settings)
    except SettingError:
        return None
    return passes_of(run.settings.learner()).steps * (ends[-1] if ends else 0)


def results(folders: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """The metrics of those runs that have come to their end."""
    found = {}
    for name, folder in folders.items():
        try:
            metrics = finished(folder)
        except OcsslError:
            continue  # told as a failure of that run
        if metrics is not None:
            found[name] = metrics
    return found


def write_csv(
    out: Path, runs: Sequence[Planned], metrics: Mapping[str, Mapping[str, Any]], failures: Mapping[str, str]
) -> Path:
    """A row for each run: what it is, whether it is finished, and what it reached."""
    keys = list(dict.fromkeys(key for run in runs for key in run.point))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["run", "method", "benchmark", "seed", *keys, "state", *NUMBERS, "reason"])
    for run in runs:
        state = "failed" if run.name in failures else "finished" if run.name in metrics else "unfinished"
        numbers = [metrics.get(run.name, {}).get(key) for key in NUMBERS]
        what = [run.name, run.settings.method, run.settings.benchmark, run.settings.seed]
        point = [run.point.get(key, "") for key in keys]
        rows.writerow([*what, *point, state, *("" if n is None else n for n in numbers), failures.get(run.name, "")])
    write_out(out / CSV, text.getvalue().encode())
    return out / CSV


def table(runs: Sequence[Planned], metrics: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each method, benchmark and point of the grid: mean and standard deviation over seeds."""
    keys = list(dict.fromkeys(key for run in runs for key in run.point))
    shown = Table(box=None)
    several = len({run.settings.benchmark for run in runs}) > 1
    for column in ("method", *(["benchmark"] if several else [])):
        shown.add_column(column)
    for column in (*keys, "seeds", "final", "average"):
        shown.add_column(column, justify="right")
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        place = [run.settings.benchmark] if several else []
        row = (run.settings.method, *place, *(str(run.point.get(key, "-")) for key in keys))
        groups.setdefault(row, []).extend([metrics[run.name]] if run.name in metrics else [])
    for row, found in groups.items():
        spread = (mean_and_spread([m.get(key) for m in found]) for key in ("final_accuracy", "average_accuracy"))
        shown.add_row(*row, str(len(found)), *spread)
    return shown
