"""The command for many runs: `ocssl sweep`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ocssl.cli.app import STUDY, app, console, print_json
from ocssl.cli.options import Count, Data, Device, Json, Parts, Quiet, Ray, Switch, Threads, Track
from ocssl.cli.run import chosen_device, data_path, exit_code, option_words, require_exists, with_digest
from ocssl.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.launch.sweep import Planned, Spec


@app.command(group=STUDY)
def sweep(
    spec: Path,
    /,
    *,
    out: Path | None = None,
    workers: Count = 0,
    threads: Threads = 1,
    ray: Ray = None,
    device: Device = "cpu",
    data: Data = None,
    parts: Parts = None,
    track: Track = None,
    dry_run: Switch = False,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Run a grid of methods, benchmarks, seeds and settings in parallel. After a stop, the same command continues.

    Example: ocssl sweep sizes.toml --workers 2, where sizes.toml has these four lines (more in docs/sweeps.md):

    methods = ["solar", "er-fifo"]

    seeds = [0, 1, 2]

    [grid]

    "memory.capacity" = [200, 400]

    Parameters
    ----------
    spec
        The TOML file that says what to run.
    out
        The folder for all runs; by default the `out` of the file, or runs/NAME-OF-THE-FILE.
    workers
        Runs at a time; 0: as many as there are cores, or as the cluster has.
    dry_run
        List the runs without starting them.
    """
    from ocssl._core.registry import load_parts
    from ocssl.launch.process_pool import runner
    from ocssl.launch.sweep import plan, prepare, read_spec, results, table, write_csv
    from ocssl.runs.progress import Bars
    from ocssl.runs.stop import stop_on_signals
    from ocssl.runs.tracking import require_libraries
    from ocssl.settings import checked_int

    checked_int("--workers", workers, 0, 4096)
    checked_int("--threads", threads, 1, 1024)
    load_parts(parts)
    wanted = _with_paths(read_spec(spec), data)
    if ray is None:  # else they are on the cluster's nodes
        require_exists(wanted.data.values())
    require_libraries(track or ())
    folder = out or Path(wanted.out or f"runs/{spec.stem}")
    runs = [replace(run, settings=with_digest(run.settings)) for run in plan(wanted)]
    chosen, screen = chosen_device(device), console(silent=json)
    if dry_run:
        _list(runs, folder, screen)
        return 0
    options = option_words(track, parts=parts.absolute() if parts else None)
    with runner(ray, threads, chosen) as run_all, stop_on_signals() as stop, Bars(screen, quiet) as bars:
        folders = prepare(folder, runs)
        failures = run_all(folders, bars, stop, workers=workers, options=options)
    metrics = results(folders)
    place = write_csv(folder, runs, metrics, failures)
    if metrics:
        screen.print("accuracy, per cent: mean ± standard deviation over seeds", soft_wrap=True)
        screen.print(table(runs, metrics))
    for name, reason in failures.items():
        screen.print(f"failed: {name}: {reason}", soft_wrap=True)
    screen.print(f"{len(metrics)} of {len(runs)} runs are finished; all numbers: {place}", soft_wrap=True)
    if metrics and not stop:
        screen.print(f"report: ocssl report {folder} -o report.html", soft_wrap=True)
    if json:
        print_json({"runs": metrics, "failures": failures, "table": table(runs, metrics).records(), "csv": str(place)})
    return exit_code(screen, stop, failures)


def _with_paths(spec: Spec, data: Path | None) -> Spec:
    """The sweep with absolute paths of its images."""
    from ocssl.data.sources.source import is_drawn

    places = {name: Path(place) for name, place in spec.data.items()}
    if data is not None:
        without = [b for b in spec.benchmarks if b not in places and not is_drawn(b)]
        if len(without) != 1:
            raise SettingError(
                f"--data is for one benchmark, and {len(without)} of the sweep need one; write [data] in its file."
            )
        places[without[0]] = data
    known = {name: data_path(name, places.get(name)) for name in spec.benchmarks}
    return spec.model_copy(update={"data": {name: place for name, place in known.items() if place is not None}})


def _list(runs: list[Planned], out: Path, screen: Console) -> None:
    """A line for each run: name, steps, its state, and its point in the grid."""
    from ocssl.launch.sweep import steps_of
    from ocssl.runs.folder import METRICS, SETTINGS

    total, width = 0, max(len(run.name) for run in runs)
    for run in runs:
        steps, folder = steps_of(run), out / run.name
        total += steps or 0
        state = "finished" if (folder / METRICS).exists() else "started" if (folder / SETTINGS).exists() else "new"
        known = "steps unknown" if steps is None else f"{steps:,} steps"
        point = " ".join(f"{key}={value}" for key, value in run.point.items())
        screen.print(f"{run.name:<{width}}  {known:>14}  {state:<8}  {point}".rstrip(), soft_wrap=True)
    screen.print(f"{len(runs)} runs, {total:,} steps where they are known; in {out}", soft_wrap=True)
