"""Tables and figures of the paper: their runs are finished first, then shown and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ocssl._core.table import Table
from ocssl._files.atomic import write_out
from ocssl._files.untrusted import read_json
from ocssl.errors import OcsslError, RunFolderError
from ocssl.results.chart import Chart
from ocssl.results.draw_matplotlib import print_chart
from ocssl.results.evaluate_runs import Inspection, diagnose_run
from ocssl.results.paper import field
from ocssl.results.paper.paper_figures import panels_of, points_csv, table_of
from ocssl.results.paper.paper_tables import accuracy_table, rules_table, time_table, title_of
from ocssl.results.paper.plan import Plan, Scale, of_rows, runs_of
from ocssl.results.paper.run_store import Group, Result, RunStore
from ocssl.runs.progress import Bars
from ocssl.runs.snapshots import saved_states
from ocssl.runs.stop import Stop, Stopped

DIAGNOSES = "diagnoses"
VIEWS = 20
KEYS = {"position", "experience", "stream", "memory", "test", "times"}  # of a diagnosis, at least


def reproduce(
    plans: Sequence[Plan],
    scale: Scale,
    store: RunStore,
    console: Console,
    stop: Stop,
    workers: int = 0,
    only: Sequence[str] = (),
    shown: list[Table] | None = None,
) -> dict[str, str]:
    """Run plans, of all rows or of some, and show what is there; returns what failed.

    After a stop the same call continues. The tables are added to `shown` if it is given.
    """
    wanted = [(plan, runs_of(plan, scale)) for plan in plans]
    store.make()
    failures: dict[str, str] = {}
    for alone in (False, True):  # where time is measured, nothing else runs
        runs = [run for plan, runs in wanted if plan.alone == alone for run in of_rows(runs, only)]
        with Bars(console) as bars:
            failures |= store.run(runs, bars, stop, 1 if alone else workers)
        if stop:
            return failures
    diagnoses = Diagnoses(store, scale, console, workers, stop)
    for plan, runs in wanted:
        groups = store.gather(runs)
        if not groups and runs:
            continue
        try:
            _show(plan, scale, groups, diagnoses, console, [] if shown is None else shown)
        except Stopped:
            break
        except OcsslError as error:
            failures[plan.name] = str(error)
    return failures


def _show(
    plan: Plan, scale: Scale, groups: Sequence[Group], diagnoses: Diagnoses, console: Console, shown: list[Table]
) -> None:
    title, written = title_of(plan, scale), list[Path]()
    for number, show in enumerate(plan.show, 1):
        path = diagnoses.store.out / (plan.name if len(plan.show) == 1 else f"{plan.name}-{number}")
        files: dict[str, bytes] = {}
        if show["kind"] in ("table", "time", "rules"):
            table = _table(plan, scale, groups, show)
            tables = [table]
            files = {"md": table.markdown().encode(), "tex": table.latex().encode(), "csv": table.csv().encode()}
        elif show["kind"] == "field":
            tables = field.tables(plan, runs_of(plan, scale), groups, show["against"])
            files = {"md": "\n".join(table.markdown() for table in tables).encode()}
        else:
            panels = panels_of(show, groups, diagnoses)
            tables = [table_of(panel, title, scale.note) for panel in panels]
            if panels:
                files = print_chart(Chart("", f"{title}. {scale.note}" if scale.benchmark else title, "", panels))
                files["csv"] = points_csv(panels, scale.label).encode()
        for table in tables:
            shown.append(table)
            table.show(console)
        for suffix, content in files.items():
            written.append(path.with_suffix(f".{suffix}"))
            write_out(written[-1], content)
    console.print(f"written: {', '.join(map(str, written))}", markup=False, highlight=False, soft_wrap=True)


def _table(plan: Plan, scale: Scale, groups: Sequence[Group], show: dict[str, Any]) -> Table:
    if show["kind"] == "rules":
        return rules_table(plan, scale)
    if show["kind"] == "time":
        return time_table(plan, scale, groups, show["against"])
    return accuracy_table(plan, scale, groups, show.get("start"))


class Diagnoses:
    """Latent metrics of runs at their evaluations: measured when a figure first asks for them, and kept in files."""

    def __init__(self, store: RunStore, scale: Scale, console: Console, workers: int, stop: Stop) -> None:
        self.store, self.scale, self.console, self.workers, self.stop = store, scale, console, workers, stop

    def __call__(self, result: Result) -> list[dict[str, Any]]:
        path = self.store.out / DIAGNOSES / f"{result.planned.address[:32]}-{self.scale.diagnosed}.json"
        if not path.exists():
            evaluated = {0, *result.metrics["positions"]}  # other checkpoints depend on when a run was stopped
            moved = self.store.reading.get(result.planned.settings.benchmark)
            wanted = Inspection(
                result.folder,
                Bars(self.console),
                ",".join(str(position) for position in sorted(saved_states(result.folder)) if position in evaluated),
                Path(moved.path) if moved and moved.path else None,
                self.workers,
                self.store.device,
                stop=self.stop,
            )
            found = diagnose_run(wanted, ("stream", "memory", "test"), self.scale.diagnosed, VIEWS, times=True)
            write_out(path, json.dumps(found["checkpoints"]).encode())
        try:
            rows: list[dict[str, Any]] = read_json(path)
        except (OSError, ValueError):
            rows = []
        known = isinstance(rows, list) and all(isinstance(row, dict) and row.keys() >= KEYS for row in rows)
        if not known or not rows:
            raise RunFolderError(f"{path} is damaged; remove it, and it is made again.")
        return rows
