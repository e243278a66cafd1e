"""The demo: SOLAR against Reservoir and FIFO replay on the embedded stream, in two minutes on two cores."""

from pathlib import Path
from typing import Any

from rich.console import Console

from ocssl._core.table import Row, Table
from ocssl._files.atomic import remove_folder
from ocssl.cli.app import print_json
from ocssl.errors import OcsslError, RunFolderError
from ocssl.launch.process_pool import run_all
from ocssl.results import write_report
from ocssl.results.compare import LEAST_PAIRS, TOO_FEW
from ocssl.runs.config import RunSettings, read_settings, resolve_run
from ocssl.runs.folder import SETTINGS, create, finished
from ocssl.runs.progress import Bars
from ocssl.runs.stop import stop_on_signals

MARK = ".demo"  # in the folders that the demo made and may replace
METHODS = ("er-reservoir", "er-fifo", "solar")
COMMON: dict[str, Any] = {  # the synthetic benchmark, scaled down until three methods fit in two minutes
    "encoder.width": 8,
    "objective.projection": 256,
    "memory.capacity": 200,
    "schedule.passes": 8,
    "stream.train": 60,
    "evaluate.probe": "ridge",
    "evaluate.latent_samples": 200,
    "evaluate.latent_views": 8,
}
OWN: dict[str, dict[str, Any]] = {"solar": {"terms.overlap.k": 50}}  # a quarter of the memory, as in the paper


def run_demo(out: Path, seed: int, console: Console, json: bool = False) -> int:
    """Run the three methods side by side, then print their table and the report's place."""
    console.print("An encoder learns from an unlabeled stream whose classes keep changing; each image is seen once.")
    console.print("Three methods side by side; about two minutes on two cores.\n")
    folders = {method: out / method for method in METHODS}
    for method, folder in folders.items():
        _prepare(folder, resolve_run(method, "synthetic", seed, COMMON | OWN.get(method, {})))
    with stop_on_signals() as stop, Bars(console) as bars:
        failures = run_all(folders, bars, stop, workers=len(METHODS), shared=True)
    for name, reason in failures.items():
        raise OcsslError(f"the run {folders[name]} failed: {reason}")
    if stop:
        console.print("stopped and saved; continue with: ocssl demo")
        return 128 + (stop.signal or 0)
    report = out / "report.html"
    write_report(list(folders.values()), report)
    _table([finished(folder) or {} for folder in folders.values()]).show(console)
    console.print(f"report: {report.resolve()}", soft_wrap=True)
    if json:
        print_json({"report": str(report), "runs": [finished(folder) for folder in folders.values()]})
    return 0


def _prepare(folder: Path, settings: RunSettings) -> None:
    """Keep an interrupted demo to continue; remove one that is finished or had other settings."""
    if (folder / SETTINGS).exists():
        if not (folder / MARK).exists():
            raise RunFolderError(f"{folder} holds a run that is not the demo's; name another folder with --out.")
        if finished(folder) or read_settings(folder / SETTINGS) != settings:
            remove_folder(folder)
    if not (folder / SETTINGS).exists():
        create(folder, settings)
        (folder / MARK).touch()


def _table(results: list[dict[str, Any]]) -> Table:
    rows = []
    for found in sorted(results, key=lambda found: -found["average_accuracy"]):
        numbers = (f"{found[key]:.1f}" for key in ("start_accuracy", "final_accuracy", "average_accuracy"))
        rows.append(Row([found["method"], *numbers, f"{found['seconds']:.0f}"]))
    headers = ["method", "start", "final", "average", "seconds"]
    caption = f"One seed each, best average first: {TOO_FEW} which is better ({LEAST_PAIRS} are needed)."
    return Table(headers, rows, title="accuracy of a ridge probe, per cent", caption=caption, framed=True)
