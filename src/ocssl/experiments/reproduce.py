"""Tables and figures of the paper made again: their runs brought to the end, then what is drawn from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ocssl import checkpoint
from ocssl.experiments.drawing import draw, numbers, table_of
from ocssl.experiments.panels import panels_of
from ocssl.experiments.plan import Plan, runs_of
from ocssl.experiments.results import Group, Result, gather
from ocssl.experiments.scale import Scale
from ocssl.experiments.shelf import Shelf
from ocssl.experiments.tables import Table, accuracy_table, rules_table, time_table, title_of
from ocssl.runs.looking import diagnose_run
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop

DIAGNOSES = "diagnoses"
VIEWS = 20
LOOKING = ("places", "uniformity", "spectrum")  # kinds of figures that need a look back at the runs


def reproduce(
    plans: Sequence[Plan], scale: Scale, shelf: Shelf, console: Console, stop: Stop, workers: int, threads: int
) -> dict[str, str]:
    """Run and show plans; returns what failed. What is asked to stop is continued by the same call."""
    wanted = [(plan, runs_of(plan, scale)) for plan in plans]
    failures: dict[str, str] = {}
    for alone in (False, True):  # where time is measured, nothing else runs
        runs = [run for plan, runs in wanted if plan.alone == alone for run in runs]
        with Bars(console) as bars:
            failures |= shelf.open(runs, bars, stop, 1 if alone else workers, threads)
        if stop:
            return failures
    for plan, runs in wanted:
        groups = gather(runs, shelf.folders(runs))
        if groups or not runs:
            _show(plan, scale, groups, shelf, console, workers)
    return failures


def _show(plan: Plan, scale: Scale, groups: Sequence[Group], shelf: Shelf, console: Console, workers: int) -> None:
    title, written = title_of(plan, scale), list[Path]()
    for number, show in enumerate(plan.show, 1):
        path = shelf.out / (plan.name if len(plan.show) == 1 else f"{plan.name}-{number}")
        if show["kind"] in ("table", "time", "rules"):
            table = _table(plan, scale, groups, show)
            console.print(table.screen())
            for suffix, text in ((".md", table.markdown()), (".tex", table.latex()), (".csv", table.csv())):
                written.append(path.with_suffix(suffix))
                checkpoint.replace_file(written[-1], text.encode())
            continue
        looks = _Looks(shelf, scale, console, workers) if show["kind"] in LOOKING else None
        panels = panels_of(plan, show, groups, looks or (lambda _: []))
        for panel in panels:
            console.print(table_of(panel, title, scale.note).screen())
        if panels:
            written += draw(panels, f"{title}. {scale.note}" if scale.benchmark else title, path)
            written.append(path.with_suffix(".csv"))
            checkpoint.replace_file(written[-1], numbers(panels).encode())
    console.print(f"written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)


def _table(plan: Plan, scale: Scale, groups: Sequence[Group], show: dict[str, Any]) -> Table:
    if show["kind"] == "rules":
        return rules_table(plan, scale)
    if show["kind"] == "time":
        return time_table(plan, scale, groups, show["against"])
    return accuracy_table(plan, scale, groups, show.get("start"))


class _Looks:
    """Looks back at runs, each made once and kept beside the runs."""

    def __init__(self, shelf: Shelf, scale: Scale, console: Console, workers: int) -> None:
        self.shelf, self.scale, self.console, self.workers = shelf, scale, console, workers

    def __call__(self, result: Result) -> list[dict[str, Any]]:
        path = self.shelf.out / DIAGNOSES / f"{result.planned.address[:32]}-{self.scale.diagnosed}.json"
        if not path.exists():
            found = diagnose_run(
                result.folder,
                "all",
                ("stream", "memory", "test"),
                self.scale.diagnosed,
                VIEWS,
                times=True,
                data=None,  # the run folder says where its images lie
                workers=self.workers,
                bars=Bars(self.console),
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.replace_file(path, json.dumps(found["checkpoints"]).encode())
        rows: list[dict[str, Any]] = json.loads(path.read_bytes())
        return rows
