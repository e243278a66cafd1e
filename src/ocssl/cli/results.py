"""Commands that look: `ocssl evaluate`, `diagnose`, `report`, `list`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ocssl.cli.app import app, console
from ocssl.cli.options import (
    COMPAT,
    Checkpoint,
    Compat,
    Count,
    Device,
    Moved,
    Output,
    Parts,
    Processes,
    RunFolder,
    Switch,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ocssl.runs.progress import Bars

Probe = Literal["linear", "ridge", "knn"]


@app.command
def evaluate(
    folder: RunFolder,
    /,
    *,
    checkpoint: Checkpoint = "all",
    probe: Annotated[list[Probe] | None, Parameter(negative=())] = None,
    per_task: Switch = False,
    probe_compat: Annotated[Compat, COMPAT] = "none",
    data: Moved = None,
    workers: Processes = 0,
    parts: Parts = None,
    device: Device = "cpu",
    output: Output = None,
    quiet: Switch = False,
) -> int:
    """Probe the checkpoints of a run: features are encoded once, and every probe is trained on them.

    Nothing in the run folder changes.

    Example: ocssl evaluate runs/solar-cifar100-seed0 --probe linear --probe knn --per-task -o probes.json

    Parameters
    ----------
    probe
        linear, ridge or knn; may be given several times. By default the run's own.
    per_task
        Also a probe of its own for every task: past, current and future tasks, forgetting, forward transfer.
    output
        A JSON file for all numbers.
    quiet
        Print no progress.
    """
    from ocssl.results.inspect import evaluate_run
    from ocssl.results.inspect_tables import evaluation_table

    found = evaluate_run(
        folder,
        checkpoint,
        probe,
        per_task,
        probe_compat,
        data=data,
        workers=workers,
        bars=_bars(quiet),
        device=device,
        parts=parts,
    )
    return _show(found, evaluation_table(found), output)


@app.command
def diagnose(
    folder: RunFolder,
    /,
    *,
    checkpoint: Checkpoint = "all",
    on: Annotated[list[Literal["stream", "memory", "test"]] | None, Parameter(negative=())] = None,
    samples: Count = 2000,
    views: Count = 20,
    times: Switch = False,
    data: Moved = None,
    workers: Processes = 0,
    parts: Parts = None,
    device: Device = "cpu",
    output: Output = None,
    quiet: Switch = False,
) -> int:
    """The latent space at the checkpoints of a run: Deviation, Overlap, spectrum, rank, uniformity, alignment.

    Latent Rehearsal Decay shows as Deviation falling and Overlap rising. Nothing in the run folder changes.

    Example: ocssl diagnose runs/solar-cifar100-seed0 --on stream --on memory -o latent.json

    Parameters
    ----------
    on
        Images to measure on: stream, memory (what was stored at that moment) or test; may be given several times.
    samples
        Images of each, chosen at random; 0: all.
    views
        Random views of each image.
    times
        Also the spectrum and uniformity of past, current and future tasks' test images.
    output
        A JSON file for all numbers, spectra included.
    quiet
        Print no progress.
    """
    from ocssl.results.inspect import diagnose_run
    from ocssl.results.inspect_tables import diagnosis_table

    found = diagnose_run(
        folder,
        checkpoint,
        on or ["stream"],
        samples,
        views,
        times,
        data=data,
        workers=workers,
        bars=_bars(quiet),
        device=device,
        parts=parts,
    )
    return _show(found, diagnosis_table(found), output)


@app.command
def report(
    folders: list[Path],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
    figures: Path | None = None,
    tables: Path | None = None,
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
    from ocssl.results import write_report

    size = write_report(folders, output, figures, tables)
    console().print(f"report: {output} ({size / 1e6:.1f} MB)", soft_wrap=True)
    for what, place in (("figures", figures), ("tables", tables)):
        if place:
            console().print(f"{what}: {place}", soft_wrap=True)
    return 0


Kind = Literal["methods", "objectives", "rules", "terms", "benchmarks", "encoders", "experiments", "settings"]


@app.command(name="list")
def list_(kind: Kind, /) -> int:
    """The names that settings and commands understand, with a line on each.

    Settings are listed with their defaults, which methods and benchmarks change; what held in a run is in its run.toml.

    Example: ocssl list methods

    Parameters
    ----------
    kind
        What to list.
    """
    from ocssl.cli.listing import names

    screen = console()
    for title, table in names(kind).items():
        if title:
            screen.print(title, style="bold")
        width = max(map(len, table))
        for name, line in table.items():
            screen.print(f"{name:<{width}}  {line}".rstrip(), soft_wrap=True)
    return 0


def _bars(quiet: bool) -> Bars:
    from ocssl.runs.progress import Bars

    return Bars(console(), quiet)


def _show(found: dict[str, Any], table: Table, output: Path | None) -> int:
    """Print a table, and write all numbers to a file if one is named."""
    from ocssl.results.inspect_tables import write_json

    screen = console()
    screen.print(table)
    if output:
        write_json(found, output)
        screen.print(f"all numbers: {output}", soft_wrap=True)
    return 0
