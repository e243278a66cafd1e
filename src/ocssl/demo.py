"""The demo: SOLAR against Reservoir and FIFO replay on the embedded stream, in two minutes on two cores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ocssl.report import write_report
from ocssl.runs.config import RunSettings, read_settings, resolve_run
from ocssl.runs.progress import Progress
from ocssl.runs.run import SETTINGS, create, execute, finished
from ocssl.runs.stop import Stop, stop_on_signals

METHODS = ("er-reservoir", "er-fifo", "solar")
COMMON: dict[str, Any] = {  # the synthetic benchmark, scaled down until three methods fit in two minutes
    "encoder.name": "resnet10",
    "encoder.width": 8,
    "objective.projection": 256,
    "objective.bottleneck": 64,
    "memory.capacity": 200,
    "schedule.passes": 8,
    "optimizer.lr": 0.3,
    "stream.train": 60,
    "evaluate.probe": "ridge",
    "evaluate.latent_samples": 200,
    "evaluate.latent_views": 8,
}
OWN: dict[str, dict[str, Any]] = {"solar": {"terms.overlap.k": 50}}  # a quarter of the memory, as in the paper


def run_demo(out: Path, seed: int, console: Console) -> int:
    """Run the three methods one after another, then print their table and the report's place."""
    console.print("An encoder learns from an unlabeled stream whose classes keep changing; each image is seen once.")
    with stop_on_signals() as stop:
        results = []
        for method in METHODS:
            metrics = _run(out / method, resolve_run(method, "synthetic", seed, COMMON | OWN.get(method, {})), console, stop)
            if metrics is None:
                console.print("stopped and saved; continue with: ocssl demo", highlight=False)
                return 128 + (stop.signal or 0)
            results.append(metrics)
    report = out / "report.html"
    write_report([out / method for method in METHODS], report)
    console.print(_table(results))
    console.print(f"report: {report.resolve()}", highlight=False, soft_wrap=True)
    return 0


def _run(folder: Path, settings: RunSettings, console: Console, stop: Stop) -> dict[str, Any] | None:
    """Continue an interrupted demo; start again over a finished one or one with other settings."""
    console.print(f"\n[bold]{settings.method}[/]")
    if (folder / SETTINGS).exists() and (finished(folder) or read_settings(folder / SETTINGS) != settings):
        shutil.rmtree(folder)
    if not (folder / SETTINGS).exists():
        create(folder, settings)
    with Progress(console) as progress:
        return execute(folder, progress, stop)


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(title="accuracy of a ridge probe, per cent", title_justify="left")
    table.add_column("method")
    for column in ("start", "final", "average", "seconds"):
        table.add_column(column, justify="right")
    for row in results:
        numbers = (row["start_accuracy"], row["final_accuracy"], row["average_accuracy"])
        table.add_row(row["method"], *(f"{number:.1f}" for number in numbers), f"{row['seconds']:.0f}")
    return table
