"""Commands that read finished or running runs: `ocssl evaluate`, `diagnose`, `report`, `compare`, `list`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ocssl.cli.app import app, console, print_json
from ocssl.cli.options import (
    COMPAT,
    Checkpoint,
    Compat,
    Count,
    Device,
    Json,
    Moved,
    Parts,
    Processes,
    RunFolder,
    Switch,
)

if TYPE_CHECKING:
    from ocssl._core.table import Table
    from ocssl.results.evaluate_runs import Inspection

Probe = Literal["linear", "ridge", "knn"]
Kind = Literal[
    "methods",
    "objectives",
    "rules",
    "terms",
    "benchmarks",
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


@app.command
def evaluate(
    folder: RunFolder,
    /,
    *,
    probe: Annotated[list[Probe] | None, Parameter(negative=())] = None,
    per_task: Switch = False,
    probe_compat: Annotated[Compat, COMPAT] = "none",
    how: Inspecting = USUAL,
) -> int:
    """Probe the checkpoints of a run: features are encoded once, and every probe is trained on them.

    Nothing in the run folder changes.

    Example: ocssl evaluate runs/solar-cifar100-seed0 --probe linear --probe knn --per-task -o probes.json

    Parameters
    ----------
    probe
        linear, ridge or knn; may be given several times. By default the run's own.
    per_task
        Also one probe per task: past, current and future tasks, forgetting, forward transfer.
    """
    from ocssl.results.evaluate_runs import evaluate_run, evaluation_table

    found = evaluate_run(how.of(folder), probe, per_task, probe_compat)
    return how.show(found, evaluation_table(found))


@app.command
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
    """The latent space at the evaluations of a run: Deviation, Overlap, spectrum, rank, uniformity, alignment.

    Latent Rehearsal Decay shows as Deviation falling and Overlap rising. Nothing in the run folder changes.

    Example: ocssl diagnose runs/solar-cifar100-seed0 --on stream --on memory -o latent.json

    Parameters
    ----------
    on
        Images to measure on: stream (the default), memory (what was stored at that moment) or test; may be repeated.
    samples
        Images of each, chosen at random; 0: all.
    views
        Random views of each image.
    times
        Also the spectrum and uniformity of past, current and future tasks' test images.
    """
    from ocssl.results.evaluate_runs import diagnose_run, diagnosis_table

    found = diagnose_run(how.of(folder), on or ["stream"], samples, views, times)
    return how.show(found, diagnosis_table(found))


@app.command
def report(
    folders: list[Path],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
    figures: Path | None = None,
    tables: Path | None = None,
    parts: Parts = None,
) -> int:
    """One self-contained HTML page on one or more runs.

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
    """
    from ocssl._core.registry import load_parts
    from ocssl.results import write_report

    load_parts(parts)
    size = write_report(folders, output, figures, tables)
    console().print(f"report: {output} ({size / 1e6:.1f} MB)", soft_wrap=True)
    for what, place in (("figures", figures), ("tables", tables)):
        if place:
            console().print(f"{what}: {place}", soft_wrap=True)
    return 0


@app.command
def compare(folders: list[Path], /, *, json: Json = False, parts: Parts = None) -> int:
    """Compare methods by the runs that share a seed: mean difference, 95 % interval, and whether it is better.

    Each method is compared with SOLAR, or with the best if SOLAR is not there. Fewer than three shared seeds are too
    few to tell.

    Example: ocssl compare runs/solar-synthetic-seed0 runs/er-fifo-synthetic-seed0

    Parameters
    ----------
    folders
        Run folders, or folders that contain run folders.
    """
    from ocssl._core.registry import load_parts
    from ocssl.results import tables
    from ocssl.results.compare import compare as differences
    from ocssl.results.run_groups import find_runs
    from ocssl.results.summary import summary

    load_parts(parts)
    runs = find_runs(folders)
    found = differences(runs)
    if json:
        return print_json(tables.comparison_json(found))
    screen = console()
    for sentence in summary(runs):
        screen.print(sentence)
    if found:
        tables.comparison(found, runs).show(screen)
    return 0


@app.command(name="list")
def list_(kind: Kind, /, *, json: Json = False) -> int:
    """The names that settings and commands understand, with a line on each.

    Methods and benchmarks override the defaults of settings that are listed; run.toml records the values of a run.

    Example: ocssl list methods

    Parameters
    ----------
    kind
        What to list.
    """
    from ocssl.cli.listing import names

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
