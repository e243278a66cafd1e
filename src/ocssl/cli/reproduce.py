"""The command that reproduces the paper's tables and figures: `ocssl reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ocssl.cli.app import STUDY, app, complain, console, print_json
from ocssl.cli.options import Cache, Count, Device, Json, Ray, Seeds, Switch, Threads
from ocssl.cli.run import chosen_device, exit_code, given_settings, require_exists
from ocssl.errors import SettingError

if TYPE_CHECKING:
    from ocssl.settings import DataSettings


@app.command(group=STUDY)
def reproduce(
    what: Annotated[list[str], Parameter(negative=())],
    /,
    *,
    scale: Literal["mini", "paper"] = "mini",
    benchmark: str | None = None,
    only: Annotated[list[str] | None, Parameter(negative=())] = None,
    seed: Seeds = None,
    out: Path | None = None,
    data: Annotated[list[str] | None, Parameter(negative=())] = None,
    cache: Cache = None,
    workers: Count = 0,
    threads: Threads = 1,
    device: Device = "cpu",
    ray: Ray = None,
    dry_run: Switch = False,
    machine: str | None = None,
    json: Json = False,
) -> int:
    """Reproduce tables and figures of the SOLAR paper, with its numbers beside ours.

    Runs that several tables share are trained once. After a stop or a crash, the same command continues. The output
    folder has the figures, the tables (Markdown, LaTeX, CSV) and the runs.

    Example: ocssl reproduce table2 --scale mini --benchmark synthetic

    Parameters
    ----------
    what
        table1 to table7, figure2, figure3, figure5 to figure20, or all of these; evidence or field (see: ocssl list
        experiments).
    scale
        paper: the exact settings of the SOLAR paper, for GPUs; mini: one fixed, smaller protocol for a CPU.
    benchmark
        The benchmark of the mini scale: cifar100 (the default), mini-imagenet, pacs or synthetic.
    only
        Train only this row of tables and figures, such as SOLAR; may be given several times. Finished runs of other
        rows are shown, too.
    seed
        Run these seeds instead of those of the paper (0, 1 and 2); may be given several times.
    out
        The output folder; by default reproduced/SCALE-BENCHMARK, or reproduced/paper.
    data
        The folder or archive with the benchmark's data. With several benchmarks: NAME=PATH, once per benchmark.
    workers
        Runs at a time; 0: as many as there are cores.
    dry_run
        Only list the runs with their steps, work, memory and estimated time.
    machine
        For a dry run: a GPU (such as a100-40gb) instead of this machine, which is measured in about 20 seconds.
    """
    from ocssl.results.paper import read_scale
    from ocssl.results.paper.plan import chosen
    from ocssl.settings import checked_int

    rows = only or []
    plans, size = chosen(what, rows, seed or []), read_scale(scale, benchmark)
    workers, threads = checked_int("--workers", workers, 0, 4096), checked_int("--threads", threads, 1, 1024)
    on_device, screen = chosen_device(device), console(silent=json)
    if dry_run:
        from ocssl.cost import calibrate, gpu
        from ocssl.results.paper.paper_tables import cost_of, cost_table
        from ocssl.runs.progress import Bars

        with Bars(screen) as bars:
            if not machine:
                bars.say("measuring this machine ...")
            rates = gpu(machine) if machine else calibrate()
            costs = cost_of(plans, size, rates, bars.report, rows)
        if costs:
            cost_table(costs, size, rates).show(screen)
            if json:
                print_json(cost_table(costs, size, rates).records())
        else:
            screen.print("nothing to run: it is made from the recipes of the package.")
        return 0
    if machine:
        raise SettingError("--machine is for --dry-run: runs are made on this machine.")

    from ocssl._core.table import Table
    from ocssl.launch.process_pool import runner
    from ocssl.results.paper.reproduce import reproduce as make
    from ocssl.results.paper.run_store import RunStore
    from ocssl.runs.stop import stop_on_signals

    wanted = {name for plan in plans for name in size.benchmarks(plan.benchmarks)}
    place = out or Path("reproduced") / (f"{scale}-{size.benchmark}" if size.benchmark else scale)
    reading = _reading(sorted(wanted), data or [], cache)
    if ray is None:  # else they are on the cluster's nodes
        require_exists(found.path for found in reading.values() if found.path)
    with runner(ray, threads, on_device) as run_all, stop_on_signals() as stop:
        store, shown = RunStore(place, reading, on_device, run_all), list[Table]()
        failures = make(plans, size, store, screen, stop, workers, rows, shown)
    for name, reason in failures.items():
        complain(f"{name}: {reason}")
    if json:
        print_json({table.title: table.records() for table in shown})
    return exit_code(screen, stop, failures)


def _reading(wanted: list[str], data: list[str], cache: Path | None) -> dict[str, DataSettings]:
    """How the images of each benchmark are read, with the paths that the user gave."""
    from ocssl.errors import unknown
    from ocssl.runs.config import resolve_run

    paths: dict[str, str] = {}
    for word in data:
        name, equals, path = word.partition("=")
        if not equals or (name not in wanted and Path(word).expanduser().exists()):
            if len(wanted) > 1:
                raise SettingError(f"--data {word!r}: which of {', '.join(wanted)} is it? Say NAME=PATH.")
            name, path = wanted[0], word
        if name not in wanted:
            raise unknown("benchmark", name, wanted)
        paths[name] = str(Path(path).expanduser().absolute())
    given = {name: given_settings({"data.path": paths.get(name), "data.cache": cache}, None) for name in wanted}
    return {name: resolve_run("solar", name, 0, given[name]).data for name in wanted}
