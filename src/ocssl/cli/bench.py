"""Commands that measure the machine: `ocssl bench`."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ocssl.cli.app import FAILED, TOOLS, app, console, print_json
from ocssl.cli.options import Count, Json, Output, Switch


@app.command(group=TOOLS)
def bench(
    parts: Annotated[list[str] | None, Parameter(negative=())] = None,
    /,
    *,
    quick: Switch = False,
    threads: Count = 0,
    output: Output = None,
    compare: Path | None = None,
    json: Json = False,
) -> int:
    """Measure the speed of each part on this machine, compared with a simple implementation of it.

    Prints each measurement with its quartiles and, if there is one, its limit. Close other programs first. Ends with
    exit code 1 if a limit is missed or, with --compare, a measurement is worse than before.

    Example: ocssl bench --quick -o before.json; then, after a change: ocssl bench --quick --compare before.json

    Parameters
    ----------
    parts
        start, step, methods, views, memory, overlap, probes, decode, resident; by default all.
    quick
        Fewer rounds and smaller sizes: under two minutes.
    threads
        Threads of the tensor operations; 0: as many as there are cores.
    output
        A JSON file for all measurements.
    compare
        A file that --output wrote on this machine: its measurements are shown beside the new ones.
    """
    from ocssl.bench import harness
    from ocssl.bench.timing import Effort, Row
    from ocssl.settings import checked_int

    names = harness.select_parts(parts or [])
    baseline = harness.load_baseline(compare) if compare else None
    effort = Effort(quick=quick, threads=checked_int("--threads", threads, 0, 1024) or os.cpu_count() or 1)
    screen, machine = console(silent=json), harness.machine(effort)
    printer = harness.Printer(screen, baseline)
    printer.head(machine)
    rows: list[Row] = []
    if output:
        harness.save(output, machine, rows)  # before anything is measured: the file may not be writable
    for row in harness.measure(names, effort):
        printer.show(row)
        rows.append(row)
        if output:
            harness.save(output, machine, rows)
    if output:
        screen.print(f"all figures: {output}", soft_wrap=True)
    failed = printer.foot()
    if json:
        print_json(harness.content(machine, rows))
    return FAILED if failed else 0
