"""`ocssl check`: what a run over the user's images would use and skip, its time and memory, and its command."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ocssl._core.host_memory import free_bytes
from ocssl.cli.app import IMAGES, app, console, print_json
from ocssl.cli.options import Assignments, Count, Json, Quiet
from ocssl.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocssl.cost import Machine
    from ocssl.cost.data_survey import Check

LISTED = 20  # files that are not used, by name; --json has all
CLASSES = 8
LONG = 600  # seconds above which a smaller size is recommended
LARGE = 0.25  # the part of the free memory above which it is


@app.command(group=IMAGES)
def check(
    source: Annotated[str, Parameter(help="A folder of images, or parquet:PATH, wds:PATTERN, hf:NAME.")],
    /,
    *,
    method: str = "solar-c",
    set: Assignments = None,
    most: Annotated[Count, Parameter(help="Decode at most this many images, evenly spaced; 0: all.")] = 10_000,
    workers: Count = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Check your images before a run: counts, sizes, faults, labels, and the time and memory that a run takes here.

    Writes nothing. Exit code 0 if a run can start, whatever it would skip.

    Example: ocssl check photos

    Parameters
    ----------
    method
        The method whose run is estimated.
    workers
        Processes that decode; 0: one per core, at most 8.
    """
    from ocssl.cli.run import benchmark_of, data_path, given_settings
    from ocssl.cost import QUICK_SHAPES, calibrate
    from ocssl.cost.data_survey import PRESETS, check
    from ocssl.data.decode.image_set import MOST_WORKERS
    from ocssl.data.sources import BENCHMARKS
    from ocssl.data.sources.source import after_colon, own_source, parse_name
    from ocssl.runs.config import resolve_run
    from ocssl.runs.progress import Bars
    from ocssl.settings import checked_int

    word = benchmark_of(source)
    if not after_colon(word.partition(":")[0]):
        word = own_source(source)
    most, workers = checked_int("--most", most, 0, 2**40), checked_int("--workers", workers, 0, 256)
    processes = workers or min(MOST_WORKERS, os.cpu_count() or 1)
    flags = {"data.path": data_path(word, None), "data.workers": processes if processes > 1 else 0}
    given = given_settings(flags, set)
    settings = {preset: resolve_run(method, word, 0, given, preset) for preset in PRESETS}
    screen = console(silent=json)
    with Bars(screen, quiet or json) as bars:

        def measure() -> Machine:
            bars.report("measuring this machine", 0, 1)
            return calibrate(rounds=1, shapes=QUICK_SHAPES)

        found = check(settings, measure, most, bars.report)
    plain = benchmark_of(source) == word and not source.startswith("-")  # what a command would take it for
    command = _command(source if plain else word, method, set or [], found)
    if json:
        print_json(_content(source, found, command))
    ignored = "levels" if "levels" in BENCHMARKS.options(parse_name(word)[0]) else "label"
    for line in _lines(source, found, command, f"stream.{ignored}=none"):
        screen.print(line, soft_wrap=True)
    return 0


def _command(source: str, method: str, assignments: list[str], found: Check) -> str:
    free = free_bytes()
    full = found.costs[0]
    heavy = full.seconds > LONG or (free is not None and full.bytes > LARGE * free[0])
    words = ["ocssl", "run", method, source, *(["--preset", "cpu"] if heavy else [])]
    return shlex.join([*words, *(word for one in assignments for word in ("--set", one))])


def _lines(source: str, found: Check, command: str, unlabelled: str) -> Iterator[str]:
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.reasons().items())
    of = f"{found.used:,} of {counted(found.files, 'file')}"
    yield f"{source}: {of} can be used{f'; not: {reasons}' if reasons else ''}"
    if found.looked_at < found.used:
        yield f"  looked at {counted(found.looked_at, 'image')}; raise --most to see more"
    yield f"  formats   {', '.join(f'{count:,} {name}' for name, count in found.formats.items())}"
    if found.widths and found.heights:
        least, middle, largest = (f"{w} x {h}" for w, h in zip(found.widths, found.heights, strict=True))
        yield f"  sizes     median {middle} pixels, sides from {least} to {largest}; {found.bytes / 1e6:,.1f} MB"
    yield f"  labels    {_labels(found, unlabelled)}"
    if found.note:
        yield f"  note      {found.note}"
    parts = (counted(found.experiences, "experience"), counted(found.costs[0].minibatches, "minibatch"))
    yield f"  stream    {', '.join(parts)}"
    for cost in found.costs:
        name = "full size" if cost.preset == "none" else f"--preset {cost.preset}"
        steps, memory = counted(cost.steps, "step"), f"{cost.bytes / 1e6:,.0f} MB"
        yield f"  {name:<13} {steps}, about {_time(cost.seconds)} and {memory} here"
    for fault in found.skipped[:LISTED]:
        yield f"  not used  {fault.name}: {fault.reason}"
    if len(found.skipped) > LISTED:
        yield f"  and {len(found.skipped) - LISTED:,} more: --json lists all"
    yield f"start with: {command}"


def _labels(found: Check, unlabelled: str) -> str:
    """What the classes are, and the setting that ignores them."""
    if not found.classes:
        return "none: one experience, no probe"
    shown = ", ".join(f"{name} ({count:,})" for name, count in list(found.classes.items())[:CLASSES])
    more = f" and {len(found.classes) - CLASSES:,} more" if len(found.classes) > CLASSES else ""
    classes = counted(len(found.classes), "class")
    return f"{classes}, guessed from the source: {shown}{more} (--set {unlabelled} to ignore)"


def _time(seconds: float) -> str:
    """A rough time.

    >>> [_time(seconds) for seconds in (0.2, 50, 400, 9000)]
    ['1 s', '50 s', '7 min', '2.5 h']
    """
    if seconds < 60:
        return f"{max(1, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _content(source: str, found: Check, command: str) -> dict[str, Any]:
    """All facts, for programs."""
    facts = {key: value for key, value in asdict(found).items() if key not in ("skipped", "costs")}
    return {
        "source": source,
        **facts,
        "skipped": found.reasons(),
        "list": [{"name": f.name, "kind": f.kind, "reason": f.reason} for f in found.skipped],
        "runs": [asdict(cost) for cost in found.costs],
        "command": command,
    }
