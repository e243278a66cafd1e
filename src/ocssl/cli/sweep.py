"""Commands for many runs: `ocssl sweep`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ocssl.cli.app import FAILED, app, console
from ocssl.cli.options import Count, Data, Device, Parts, Quiet, Ray, Switch, Threads, Track
from ocssl.cli.start import data_path, require_there, with_digest
from ocssl.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.launch.sweep import Planned, Spec


@app.command
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
) -> int:
    """Run methods, benchmarks, seeds and a grid of settings side by side; the same command again goes on.

    Example: ocssl sweep sizes.toml --workers 2, where sizes.toml holds the lines methods = ["solar", "er-fifo"],
    seeds = [0, 1, 2], [grid], "memory.capacity" = [200, 400]; more in docs/sweeps.md.

    Parameters
    ----------
    spec
        The TOML file that says what to run.
    out
        The folder for all run folders; by default what the file says, or runs/NAME-OF-THE-FILE.
    workers
        Runs at a time; 0: as many as there are cores, or as the cluster has.
    dry_run
        List the runs and make nothing.
    """
    from ocssl._core.plugins import load_parts
    from ocssl.launch.pool import runner
    from ocssl.launch.sweep import plan, read_spec
    from ocssl.runs.tracking import require_libraries
    from ocssl.settings import whole

    whole("--workers", workers, 0, 4096)
    whole("--threads", threads, 1, 1024)
    load_parts(parts)
    wanted = _placed(read_spec(spec), data)
    if ray is None:  # else they lie on the cluster's nodes
        require_there(wanted.data.values())
    require_libraries(track or ())
    folder = out or wanted.out or Path("runs") / spec.stem
    runs = [replace(run, settings=with_digest(run.settings)) for run in plan(wanted)]
    screen = console()
    if dry_run:
        _list(runs, folder, screen)
        return 0
    options = [word for name in track or () for word in ("--track", name)]
    options += ["--parts", str(parts.absolute())] if parts else []
    with runner(ray, threads, device) as run_all:
        return _go(runs, folder, screen, partial(run_all, workers=workers, options=options), quiet)


def _placed(spec: Spec, data: Path | None) -> Spec:
    """The sweep with the places of its images as paths that hold from anywhere."""
    from ocssl.data.sources.source import parse_name

    places = {name: Path(place) for name, place in spec.data.items()}
    if data is not None:
        open_ones = [b for b in spec.benchmarks if b not in places and parse_name(b) != ("synthetic", None)]
        if len(open_ones) != 1:
            raise SettingError(
                f"--data is for one benchmark, and {len(open_ones)} of the sweep need one; write [data] in its file."
            )
        places[open_ones[0]] = data
    known = {name: data_path(name, places.get(name)) for name in spec.benchmarks}
    return replace(spec, data={name: place for name, place in known.items() if place is not None})


def _list(runs: list[Planned], out: Path, screen: Console) -> None:
    """A line for each run: name, steps, what is there of it, and its point in the grid."""
    from ocssl.launch.sweep_folder import steps_of
    from ocssl.runs.folder import METRICS, SETTINGS

    total, width = 0, max(len(run.name) for run in runs)
    for run in runs:
        steps, folder = steps_of(run), out / run.name
        total += steps or 0
        state = "finished" if (folder / METRICS).exists() else "started" if (folder / SETTINGS).exists() else "new"
        known = "steps unknown" if steps is None else f"{steps:,} steps"
        point = " ".join(f"{key}={value}" for key, value in run.point.items())
        line = f"{run.name:<{width}}  {known:>14}  {state:<8}  {point}".rstrip()
        screen.print(line, soft_wrap=True)
    screen.print(f"{len(runs)} runs, {total:,} steps where they are known; in {out}", soft_wrap=True)


def _go(runs: list[Planned], out: Path, screen: Console, run_all: Callable[..., dict[str, str]], quiet: bool) -> int:
    from ocssl.launch.sweep_folder import prepare, results, table, write_csv
    from ocssl.runs.progress import Bars
    from ocssl.runs.stop import stop_on_signals

    with stop_on_signals() as stop, Bars(screen, quiet) as bars:
        folders = prepare(out, runs)
        failures = run_all(folders, bars, stop)
    metrics = results(folders)
    place = write_csv(out, runs, metrics, failures)
    if metrics:
        screen.print("accuracy, per cent: mean ± standard deviation over seeds", soft_wrap=True)
        screen.print(table(runs, metrics))
    for name, reason in failures.items():
        screen.print(f"failed: {name}: {reason}", soft_wrap=True)
    screen.print(f"{len(metrics)} of {len(runs)} runs are finished; all numbers: {place}", soft_wrap=True)
    if stop:
        screen.print("stopped and saved; the same command goes on")
        return 128 + (stop.signal or 0)
    if metrics:
        screen.print(f"report: ocssl report {out} -o report.html", soft_wrap=True)
    return FAILED if failures else 0
