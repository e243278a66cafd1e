"""The command line: `ocssl demo`, `run`, `resume`, `report`, `list`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import cyclopts
from cyclopts import App, CycloptsError, Parameter, Token

from ocssl import __version__
from ocssl.errors import NonFiniteLoss, OcsslError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.streams import Benchmark

app = App(
    name="ocssl",
    help="Online continual self-supervised learning: train an image encoder on a changing stream that is seen once.",
    version=__version__,
    version_flags=["--version"],
)

BAD_INPUT, FAILED = 2, 1


def _whole_number(type_: type, tokens: Sequence[Token]) -> int:
    return int(tokens[0].value)  # 1.5 is an error, not 2


Seed = Annotated[int, Parameter(converter=_whole_number)]


def main(words: Sequence[str] | None = None) -> None:
    """Entry point: errors that a user can act on become one sentence on stderr."""
    try:
        status = app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _complain(_one_sentence(error))
        sys.exit(BAD_INPUT)
    except NonFiniteLoss as error:
        _complain(str(error))
        sys.exit(FAILED)
    except OcsslError as error:
        _complain(str(error))
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    sys.exit(status if isinstance(status, int) else 0)


@app.command
def run(
    method: str,
    benchmark: str = "synthetic",
    /,
    *,
    out: Path | None = None,
    seed: Seed = 0,
    set: Annotated[list[str] | None, Parameter(negative=())] = None,
    parts: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    quiet: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Train a method on a benchmark, evaluating on the way.

    Example: ocssl run solar synthetic --seed 1 --set memory.capacity=500 --set schedule.passes=2

    Parameters
    ----------
    method
        A method (see: ocssl list methods) or the path of a recipe of your own (.toml).
    benchmark
        A benchmark (see: ocssl list benchmarks).
    out
        The run folder; by default runs/METHOD-BENCHMARK-seedN.
    seed
        Decides initial weights, order inside experiences, views and memory.
    set
        A setting as key=value; may be given several times.
    parts
        A Python file with rules, objectives or terms of your own; it is run before anything else.
    device
        Where to compute.
    quiet
        Print nothing but warnings, errors and the result.
    """
    from ocssl.learner import Learner
    from ocssl.parts import load_parts
    from ocssl.runs.config import parse_assignments, resolve_run
    from ocssl.runs.run import create, make_stream
    from ocssl.streams import load_benchmark

    load_parts(parts)
    settings = resolve_run(method, benchmark, seed, parse_assignments(set or []))
    loaded = load_benchmark(settings.benchmark, settings.stream)
    make_stream(loaded, settings)  # with the line below: whatever is wrong is said before a folder is made
    Learner(method, image_size=settings.stream.image_size, settings=settings.learner(), device=device)
    folder = out or Path("runs") / f"{Path(method).stem}-{benchmark}-seed{seed}"
    create(folder, settings)
    return _execute(folder, device, quiet, loaded, parts)


@app.command
def resume(
    folder: Path,
    /,
    *,
    parts: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    quiet: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Continue a run that was stopped or killed; the result is the same to the bit.

    Example: ocssl resume runs/solar-synthetic-seed0

    Parameters
    ----------
    folder
        The run folder.
    parts
        A Python file with rules, objectives or terms of your own; it is run before anything else.
    device
        Where to compute.
    quiet
        Print nothing but warnings, errors and the result.
    """
    from ocssl.parts import load_parts

    load_parts(parts)
    return _execute(folder, device, quiet, parts=parts)


@app.command
def demo(*, out: Path = Path("ocssl-demo"), seed: Seed = 0) -> int:
    """Three methods on the embedded stream, a table and a report, in about two minutes on two cores.

    Example: ocssl demo

    Parameters
    ----------
    out
        The folder for the three runs and report.html; runs of an earlier demo in it are replaced.
    seed
        Another seed gives another stream order, other weights and views.
    """
    from ocssl.demo import run_demo

    return run_demo(out, seed, _console())


@app.command
def report(
    folders: list[Path],
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("report.html"),
) -> int:
    """One self-contained HTML page on one or more runs.

    Example: ocssl report runs/solar-synthetic-seed0 runs/er-fifo-synthetic-seed0 -o report.html

    Parameters
    ----------
    folders
        Run folders, or folders that contain run folders.
    output
        The HTML file to write.
    """
    from ocssl.report import write_report

    size = write_report(folders, output)
    _console().print(f"report: {output} ({size / 1e6:.1f} MB)", highlight=False, soft_wrap=True)
    return 0


Kind = Literal["methods", "objectives", "rules", "terms", "benchmarks", "encoders"]


@app.command(name="list")
def list_(kind: Kind, /) -> int:
    """The names that settings and commands understand, with a line on each.

    Example: ocssl list methods

    Parameters
    ----------
    kind
        What to list.
    """
    from ocssl.listing import names

    console = _console()
    for title, table in names(kind).items():
        if title:
            console.print(title, style="bold")
        width = max(map(len, table))
        for name, line in table.items():
            console.print(f"{name:<{width}}  {line}", highlight=False, soft_wrap=True)
    return 0


def _execute(folder: Path, device: str, quiet: bool, loaded: Benchmark | None = None, parts: Path | None = None) -> int:
    from ocssl.runs.progress import Bars, Progress
    from ocssl.runs.run import execute
    from ocssl.runs.stop import stop_on_signals

    console = _console()
    with stop_on_signals() as stop, Bars(console, quiet) as bars:
        metrics = execute(folder, Progress(bars), stop, device, loaded)
    if metrics is None:
        again = f"ocssl resume {folder}" + (f" --parts {parts}" if parts else "")
        console.print(f"stopped and saved; continue with: {again}", highlight=False, soft_wrap=True)
        return 128 + (stop.signal or 0)
    console.print(_summary(metrics, folder), highlight=False, soft_wrap=True)
    return 0


def _summary(metrics: dict[str, Any], folder: Path) -> str:
    start = "" if metrics.get("start_accuracy") is None else f" (start {metrics['start_accuracy']:.1f} %)"
    return (
        f"{metrics['method']} on {metrics['benchmark']}, seed {metrics['seed']}: "
        f"final accuracy {metrics['final_accuracy']:.1f} %{start}, average {metrics['average_accuracy']:.1f} %, "
        f"{metrics['steps']} steps in {metrics['seconds']:.0f} s; {folder}"
    )


def _console() -> Console:
    from rich.console import Console

    return Console()


def _complain(message: str) -> None:
    sys.stderr.write(f"ocssl: {message}\n")


def _one_sentence(error: CycloptsError) -> str:
    """Cyclopts' own message in one line, with the nearest command where a command was misspelled."""
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens:
        word = error.unused_tokens[0]
        close = nearest(word, [name for name in app if not name.startswith("-")])
        hint = f"did you mean {close!r}?" if close else "see: ocssl --help"
        return f"unknown command {word!r}: {hint}"
    return " ".join(str(error).split())
