"""A plan and a scale so small that their runs take a second; as a program it reproduces the plan in a folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from conftest import SMALL, SMALL_STREAM
from ocssl.results.paper import Plan, Scale, read_plan, read_scale
from ocssl.results.paper.reproduce import reproduce
from ocssl.results.paper.run_store import RunStore
from ocssl.runs.stop import Stop

SCALE: Scale = replace(
    read_scale("mini", "synthetic"),
    factor=0.012,
    special={**SMALL, **SMALL_STREAM, "stream.train": 60, "evaluate.per_task": True, "checkpoint.every": 2},
)


def tiny(name: str = "table2", rows: slice = slice(3, None, 2)) -> Plan:
    plan = read_plan(name)
    return replace(plan, rows=plan.rows[rows], seeds=[0])


if __name__ == "__main__":
    stop = Stop()
    failed = reproduce([tiny()], SCALE, RunStore(Path(sys.argv[1]), {}), Console(width=200), stop, 2)
    sys.exit(bool(failed))
