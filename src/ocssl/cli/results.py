"""Commands that read runs, finished or not: `ocssl evaluate`, `diagnose`, `report`, `compare`; and `ocssl list`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ocssl.cli.app import START, STUDY, TOOLS, app, console, print_json
from ocssl.cli.options import (
    COMPAT,
    Checkpoint,
    Compat,
    Count,
    Device,
    Json,
    Moved,
    Number,
    Parts,
    Processes,
    RunFolder,
    Switch,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl._core.table import Table
    from ocssl.results.evaluate_runs import Inspection
    from ocssl.results.read_runs import Run

Probe = Literal["linear", "ridge", "knn"]
Kind = Literal[
    "methods",
    "objectives",
    "rules",
    "terms",
    "benchmarks",
    "sources",
    "encoders",
    "optimizers",
    "measures",
    "experiments",
    "settings",
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Inspecting:
    """Options of commands that measure the checkpoints of a run."""

    checkpoint: Checkpoint = "all"
    data: Moved = None
    workers: Processes = 0
    parts: Parts = None
    device: Device = "cpu"
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help="A JSON file for all numbers.")] = None
    quiet: Annotated[bool, Parameter(negative=(), help="Print no progress.")] = False
    json: Json = False

    def of(self, folder: Path) -> Inspection:
        from ocssl.cli.run import chosen_device
        from ocssl.results.evaluate_runs import Inspection
        from ocssl.runs.progress import Bars

        bars = Bars(console(), self.quiet or self.json)
        return Inspection(
            folder, bars, self.checkpoint, self.data, self.workers, chosen_device(self.device), self.parts
        )

    def show(self, found: dict[str, Any], table: Table) -> int:
        """Print a table, and write all numbers to a file if one is named."""
        from ocssl.results.evaluate_runs import write_json

        screen = console(silent=self.json)
        table.show(screen)
        if self.json:
            print_json(found)
        if self.output:
            write_json(found, self.output)
            screen.print(f"all numbers: {self.output}", soft_wrap=True)
        return 0


USUAL = Inspecting()
LEAST_FOLLOW, MOST_FOLLOW = 0.5, 86_400  # seconds


@app.command(group=STUDY)
def evaluate(
    folder: RunFolder,
    /,
    *,
    probe: Annotated[list[Probe] | None, Parameter(negative=())] = None,
    per_task: Switch = False,
    probe_compat: Annotated[Compat, COMPAT] = "none",
    how: Inspecting = USUAL,
) -> int:
    """Train linear, ridge or kNN probes on the features of each saved encoder of a run.

    Images are encoded once for all probes. The run folder does not change.

    Example: ocssl evaluate runs/solar-cifar100-seed0 --probe linear --probe knn --per-task -o probes.json

    Parameters
    ----------
    probe
        linear, ridge or knn; may be given several times. By default the run's own.
    per_task
        Also train one probe per task: accuracy on past, current and future tasks, forgetting, forward transfer.
    """
    from ocssl.results.evaluate_runs import evaluate_run, evaluation_table

    found = evaluate_run(how.of(folder), probe, per_task, probe_compat)
    return how.show(found, evaluation_table(found))


@app.command(group=STUDY)
def diagnose(
    folder: RunFolder,
    /,
    *,
    on: Annotated[list[Literal["stream", "memory", "test"]] | None, Parameter(negative=())] = None,
    samples: Count = 2000,
    views: Count = 20,
    times: Switch = False,
    how: Inspecting = USUAL,
) -> int:
    """Measure the latent space at each evaluation of a run: Deviation, Overlap, spectrum, uniformity, alignment.

    Deviation is how far the views of one image lie apart; Overlap is the share of image pairs whose views mix.
    Deviation that falls and Overlap that rises are signs of Latent Rehearsal Decay. The run folder does not change.

    Example: ocssl diagnose runs/solar-cifar100-seed0 --on stream --on memory -o latent.json

    Parameters
    ----------
    on
        Images to measure: stream (the default), memory (those stored at the checkpoint) or test; may be given several
        times.
    samples
        Images per set of --on, chosen at random; 0: all.
    views
        Random views of each image.
    times
        Also measure spectrum and uniformity on past, current and future tasks separately.
    """
    from ocssl.results.evaluate_runs import diagnose_run, diagnosis_table

    found = diagnose_run(how.of(folder), on or ["stream"], samples, views, times)
    return how.show(found, diagnosis_table(found))


@app.command(group=START)
def report(
    folders: list[Path],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
    figures: Path | None = None,
    tables: Path | None = None,
    follow: Number | None = None,
    parts: Parts = None,
    json: Json = False,
) -> int:
    """Write one self-contained HTML page about one or more runs.

    Example: ocssl report runs/solar-synthetic-seed0 runs/er-fifo-synthetic-seed0 -o report.html --figures figures

    Parameters
    ----------
    folders
        Run folders, or folders that contain run folders.
    output
        The HTML file to write.
    figures
        A folder for the charts as PDF and PNG.
    tables
        A folder for overview and comparison as LaTeX, Markdown and CSV.
    follow
        Write the page again after this many seconds, until all runs are finished. An open page reloads itself.
    """
    from ocssl._core.registry import load_parts
    from ocssl.results import write_report
    from ocssl.results.page import report_json

    load_parts(parts)
    screen = console(silent=json)
    if follow is not None:
        _follow(folders, output, follow, screen)
    size = write_report(folders, output, figures, tables)
    screen.print(f"report: {output} ({size / 1e6:.1f} MB)", soft_wrap=True)
    for what, place in (("figures", figures), ("tables", tables)):
        if place:
            screen.print(f"{what}: {place}", soft_wrap=True)
    return print_json({"report": str(output), "bytes": size, **report_json(folders)}) if json else 0


def _follow(folders: list[Path], output: Path, seconds: float, screen: Console) -> None:
    """Write the page every `seconds` until all runs are finished or the user stops it, then a last time."""
    from ocssl.errors import SettingError
    from ocssl.results import write_report
    from ocssl.results.read_runs import read_runs
    from ocssl.runs.stop import stop_on_signals

    if not LEAST_FOLLOW <= seconds <= MOST_FOLLOW:
        raise SettingError(f"--follow is {seconds:g}: give from {LEAST_FOLLOW} to {MOST_FOLLOW} seconds.")
    with stop_on_signals() as stop:
        while not all(run.finished for run in read_runs(folders)):
            write_report(folders, output, follow=seconds)
            screen.print(f"report: {output}, written again every {seconds:g} s until all runs are finished")
            ends = time.monotonic() + seconds
            while not stop and time.monotonic() < ends:
                time.sleep(min(0.2, seconds))
            if stop:
                return


@app.command(group=START)
def compare(folders: list[Path], /, *, label_free: Switch = False, json: Json = False, parts: Parts = None) -> int:
    """Compare methods pair by pair, seed by seed: mean difference, 95 % confidence interval, verdict.

    Each method is compared with SOLAR, or with the best method if SOLAR was not run. A verdict needs at least three
    shared seeds. Runs without labels are compared by instance@1, which needs none.

    Example: ocssl compare runs/solar-synthetic-seed0 runs/er-fifo-synthetic-seed0

    Parameters
    ----------
    folders
        Run folders, or folders that contain run folders.
    label_free
        Instead, show the rank correlation of label-free measures with probe accuracy, within runs and between methods.
    """
    from ocssl._core.registry import load_parts
    from ocssl.results import tables, without_labels
    from ocssl.results.compare import compare as differences
    from ocssl.results.run_groups import find_runs
    from ocssl.results.summary import summary

    load_parts(parts)
    runs = find_runs(folders)
    if label_free:
        return _label_free(runs, json)
    found, unlabelled = differences(runs), without_labels.standings(runs)
    if json:
        return print_json(tables.comparison_json(found) + without_labels.records(unlabelled))
    screen = console()
    for sentence in summary(runs):
        screen.print(sentence)
    if found:
        tables.comparison(found, runs).show(screen)
    if unlabelled:
        without_labels.table(unlabelled).show(screen)
    return 0


def _label_free(runs: list[Run], json: bool) -> int:
    from ocssl.errors import RunFolderError
    from ocssl.results.rank_correlation import label_free, label_free_tables

    found = label_free(runs)
    if not found["within"] and not found["between"]:
        raise RunFolderError(
            "nothing to correlate: it takes finished runs with labels and at least 5 evaluations, or 4 methods that "
            "can be compared (see: ocssl compare without --label-free)."
        )
    if json:
        return print_json(found)
    for table in label_free_tables(found):
        table.show(console())
    return 0


@app.command(name="list", group=TOOLS)
def list_(kind: Kind, /, *, json: Json = False) -> int:
    """List the names that settings and commands accept, with one line about each.

    The settings are listed with their defaults. Methods and benchmarks change some; run.toml has the values of a run.

    Example: ocssl list methods

    Parameters
    ----------
    kind
        What to list.
    """
    from ocssl.cli.list_names import names

    if json:
        return print_json(names(kind))
    screen = console()
    for title, table in names(kind).items():
        if title:
            screen.print(title, style="bold")
        width = max(map(len, table))
        for name, line in table.items():
            screen.print(f"{name:<{width}}  {line}".rstrip(), soft_wrap=True)
    return 0
