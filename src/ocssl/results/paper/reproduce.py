"""Tables and figures of the paper made again: their runs brought to the end, then what is drawn from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ocssl.errors import OcsslError, RunFolderError
from ocssl.results.inspect import diagnose_run
from ocssl.results.paper.draw import draw, numbers, table_of
from ocssl.results.paper.gather import Group, Result, gather
from ocssl.results.paper.panels import panels_of
from ocssl.results.paper.plan import Plan, of_rows, runs_of
from ocssl.results.paper.run_store import Shelf
from ocssl.results.paper.scale import Scale
from ocssl.results.paper.tables import Table, accuracy_table, rules_table, time_table, title_of
from ocssl.runs.folder import write_out
from ocssl.runs.progress import Bars
from ocssl.runs.snapshots import places
from ocssl.runs.stop import Stop, Stopped

DIAGNOSES = "diagnoses"
VIEWS = 20
LOOKED = {"position", "experience", "stream", "memory", "test", "times"}  # what a look has at least


def reproduce(
    plans: Sequence[Plan],
    scale: Scale,
    shelf: Shelf,
    console: Console,
    stop: Stop,
    workers: int = 0,
    only: Sequence[str] = (),
) -> dict[str, str]:
    """Run plans, of all rows or of some, and show what is there; returns what failed.

    What is asked to stop is continued by the same call.
    """
    wanted = [(plan, runs_of(plan, scale)) for plan in plans]
    shelf.make()
    failures: dict[str, str] = {}
    for alone in (False, True):  # where time is measured, nothing else runs
        runs = [run for plan, runs in wanted if plan.alone == alone for run in of_rows(runs, only)]
        with Bars(console) as bars:
            failures |= shelf.open(runs, bars, stop, 1 if alone else workers)
        if stop:
            return failures
    looks = _Looks(shelf, scale, console, workers, stop)
    for plan, runs in wanted:
        groups = gather(runs, shelf.folders(runs))
        if not groups and runs:
            continue
        try:
            _show(plan, scale, groups, looks, console)
        except Stopped:
            break
        except OcsslError as error:
            failures[plan.name] = str(error)
    return failures


def _show(plan: Plan, scale: Scale, groups: Sequence[Group], looks: _Looks, console: Console) -> None:
    title, written = title_of(plan, scale), list[Path]()
    for number, show in enumerate(plan.show, 1):
        path = looks.shelf.out / (plan.name if len(plan.show) == 1 else f"{plan.name}-{number}")
        if show["kind"] in ("table", "time", "rules"):
            table = _table(plan, scale, groups, show)
            table.show(console)
            for suffix, text in ((".md", table.markdown()), (".tex", table.latex()), (".csv", table.csv())):
                written.append(path.with_suffix(suffix))
                write_out(written[-1], text.encode())
            continue
        panels = panels_of(show, groups, looks)
        for panel in panels:
            table_of(panel, title, scale.note).show(console)
        if panels:
            written += draw(panels, f"{title}. {scale.note}" if scale.benchmark else title, path)
            written.append(path.with_suffix(".csv"))
            write_out(written[-1], numbers(panels, scale.label).encode())
    console.print(f"written: {', '.join(map(str, written))}", markup=False, highlight=False, soft_wrap=True)


def _table(plan: Plan, scale: Scale, groups: Sequence[Group], show: dict[str, Any]) -> Table:
    if show["kind"] == "rules":
        return rules_table(plan, scale)
    if show["kind"] == "time":
        return time_table(plan, scale, groups, show["against"])
    return accuracy_table(plan, scale, groups, show.get("start"))


class _Looks:
    """Looks back at runs, each made once, when a figure asks for it, and kept beside the runs."""

    def __init__(self, shelf: Shelf, scale: Scale, console: Console, workers: int, stop: Stop) -> None:
        self.shelf, self.scale, self.console, self.workers, self.stop = shelf, scale, console, workers, stop

    def __call__(self, result: Result) -> list[dict[str, Any]]:
        path = self.shelf.out / DIAGNOSES / f"{result.planned.address[:32]}-{self.scale.diagnosed}.json"
        if not path.exists():
            evaluated = {0, *result.metrics["positions"]}  # other checkpoints depend on when a run was stopped
            found = diagnose_run(
                result.folder,
                ",".join(str(position) for position in sorted(places(result.folder)) if position in evaluated),
                ("stream", "memory", "test"),
                self.scale.diagnosed,
                VIEWS,
                times=True,
                data=self._images(result),
                workers=self.workers,
                bars=Bars(self.console),
                device=self.shelf.device,
                stop=self.stop,
            )
            write_out(path, json.dumps(found["checkpoints"]).encode())
        try:
            rows: list[dict[str, Any]] = json.loads(path.read_bytes())
        except (OSError, ValueError):
            rows = []
        known = isinstance(rows, list) and all(isinstance(row, dict) and row.keys() >= LOOKED for row in rows)
        if not known or not rows:
            raise RunFolderError(f"{path} is damaged; remove it, and it is made again.")
        return rows

    def _images(self, result: Result) -> Path | None:
        """Where the images of a run lie by now; else its folder says where they lay."""
        known = self.shelf.reading.get(result.planned.settings.benchmark)
        return Path(known.path) if known and known.path else None
