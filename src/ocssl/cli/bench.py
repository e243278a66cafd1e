"""Commands that measure the machine: `ocssl bench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ocssl.cli.app import FAILED, app, console
from ocssl.cli.options import Count, Output, Switch


@app.command
def bench(
    parts: Annotated[list[str] | None, Parameter(negative=())] = None,
    /,
    *,
    quick: Switch = False,
    threads: Count = 0,
    output: Output = None,
    compare: Path | None = None,
) -> int:
    """Speed and scale on this machine, as ratios of works that run in turn in one process.

    Every figure comes with its quartiles and, where there is one, the bar that it has to meet. Close other programs
    first: noise widens the quartiles. Ends with exit code 1 if a bar is missed or a figure is worse than before.

    Example: ocssl bench --quick -o before.json; then, after a change: ocssl bench --quick --compare before.json

    Parameters
    ----------
    parts
        start, step, methods, views, memory, overlap, probes, decode, resident; by default all.
    quick
        Fewer rounds and smaller sizes: under two minutes.
    threads
        Threads of the tensor operations; 0: one a core.
    output
        A JSON file for all figures.
    compare
        The file of an earlier run on the same machine: each figure is shown beside the one there.
    """
    from ocssl.bench import run
    from ocssl.bench.rows import Effort, Row
    from ocssl.bench.table import Table
    from ocssl.settings import whole

    names = run.chosen(parts or [])
    baseline = run.load(compare) if compare else None
    effort = Effort(quick=quick, threads=whole("--threads", threads, 0, 1024) or os.cpu_count() or 1)
    screen, about = console(), run.machine(effort)
    table = Table(screen, baseline)
    table.head(about)
    rows: list[Row] = []
    if output:
        run.save(output, about, rows)  # a place that cannot be written to is told before anything is measured
    for row in run.measure(names, effort):
        table.show(row)
        rows.append(row)
        if output:
            run.save(output, about, rows)
    if output:
        screen.print(f"all figures: {output}", soft_wrap=True)
    return FAILED if table.foot() else 0
