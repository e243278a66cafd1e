"""Commands that learn: `ocssl run`, `pretrain`, `resume`, `demo`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ocssl.cli.app import BAD_INPUT, FAILED, Assignments, Count, Seed, Switch, app, console
from ocssl.errors import NonFiniteLoss, OcsslError, SettingError

if TYPE_CHECKING:
    from ocssl.ranks import Ranks
    from ocssl.runs.config import RunSettings
    from ocssl.streams import Benchmark

Track = Annotated[list[Literal["tensorboard", "wandb"]] | None, Parameter(negative=())]
PATHS = ("folder", "parquet")  # benchmarks whose name holds a path


@app.command
def run(
    method: str,
    benchmark: str = "synthetic",
    /,
    *,
    out: Path | None = None,
    seed: Seed = 0,
    set: Assignments = None,
    data: Path | None = None,
    bad_images: Literal["skip", "stop"] | None = None,
    workers: Count | None = None,
    cache: Path | None = None,
    init: Path | None = None,
    probe_compat: Literal["none", "authors"] | None = None,
    parts: Path | None = None,
    track: Track = None,
    device: Literal["cpu", "cuda"] = "cpu",
    quiet: Switch = False,
) -> int:
    """Train a method on a benchmark, evaluating on the way.

    Example: ocssl run solar cifar100 --data cifar-100-python --seed 1 --set memory.capacity=500

    Parameters
    ----------
    method
        A method (see: ocssl list methods) or the path of a recipe of your own (.toml).
    benchmark
        A benchmark (see: ocssl list benchmarks), or your own images: folder:PATH, parquet:PATH, hf:NAME.
    out
        The run folder; by default runs/METHOD-BENCHMARK-seedN.
    seed
        Decides initial weights, order inside experiences, views and memory.
    set
        A setting as key=value; may be given several times.
    data
        The folder or archive with the benchmark's data.
    bad_images
        Skip images that cannot be used, and list them, or stop at the first.
    workers
        Decode images on the way with so many processes, instead of once into the cache.
    cache
        The folder for decoded images; by default the user's cache folder.
    init
        Start from the weights of this run folder or saved learner.
    probe_compat
        authors: the linear probe as in the authors' code, which drops partial batches.
    parts
        A Python file with rules, objectives or terms of your own; it is run before anything else.
    track
        Also write the run's numbers to tensorboard or wandb; may be given twice.
    device
        Where to compute.
    quiet
        Print nothing but warnings, errors and the result.
    """
    from ocssl.parts import load_parts
    from ocssl.runs.config import parse_assignments

    load_parts(parts)
    reading: dict[str, Any] = {
        "data.path": _data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.workers": workers,
        "data.decode": None if workers is None else "live",
        "data.cache": str(cache.absolute()) if cache else None,
        "init.path": str(init.absolute()) if init else None,
        "evaluate.compat": probe_compat,
    }
    flags = {key: value for key, value in reading.items() if value is not None}
    given = flags | parse_assignments(set or [])
    with _ranks(device) as ranks:
        return _start(method, benchmark, seed, given, out, device, quiet, parts, ranks, track)


@app.command
def pretrain(
    benchmark: str,
    /,
    *,
    out: Path | None = None,
    epochs: Count = 100,
    batch: Count = 256,
    seed: Seed = 0,
    set: Assignments = None,
    data: Path | None = None,
    bad_images: Literal["skip", "stop"] | None = None,
    cache: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    quiet: Switch = False,
) -> int:
    """Pre-train offline: SimSiam over many epochs of all images, the learning rate warming up and falling as a cosine.

    Example: ocssl pretrain inat --data inat2021 --out plants && ocssl run solar inat --data inat2021 --init plants

    Parameters
    ----------
    benchmark
        A benchmark (see: ocssl list benchmarks), or your own images: folder:PATH, parquet:PATH, hf:NAME.
    out
        The run folder; by default runs/pretrain-BENCHMARK-seedN.
    epochs
        Times that all images are gone through.
    batch
        Images a step.
    seed
        Decides initial weights, order and views.
    set
        A setting as key=value; may be given several times.
    data
        The folder or archive with the benchmark's data.
    bad_images
        Skip images that cannot be used, and list them, or stop at the first.
    cache
        The folder for decoded images; by default the user's cache folder.
    device
        Where to compute.
    quiet
        Print nothing but warnings, errors and the result.
    """
    from ocssl.runs.config import parse_assignments

    given: dict[str, Any] = {
        "stream.epochs": epochs,
        "schedule.batch": batch,
        "schedule.stream_batch": batch,
        "data.path": _data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.cache": str(cache.absolute()) if cache else None,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    settings = flags | parse_assignments(set or [])
    with _ranks(device) as ranks:
        return _start("pretrain", benchmark, seed, settings, out, device, quiet, None, ranks)


@app.command
def resume(
    folder: Path,
    /,
    *,
    data: Path | None = None,
    parts: Path | None = None,
    track: Track = None,
    device: Literal["cpu", "cuda"] = "cpu",
    quiet: Switch = False,
) -> int:
    """Continue a run that was stopped or killed; the result is the same to the bit.

    Example: ocssl resume runs/solar-synthetic-seed0

    Parameters
    ----------
    folder
        The run folder.
    data
        Where the benchmark's data lie, if they have been moved.
    parts
        A Python file with rules, objectives or terms of your own; it is run before anything else.
    track
        Also write the run's numbers to tensorboard or wandb; may be given twice.
    device
        Where to compute.
    quiet
        Print nothing but warnings, errors and the result.
    """
    from ocssl.parts import load_parts

    load_parts(parts)
    with _ranks(device) as ranks:
        return _execute(folder, device, quiet, ranks, data=data, parts=parts, track=track)


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

    return run_demo(out, seed, console())


def _data_path(benchmark: str, data: Path | None) -> str | None:
    """Where the images lie, as a path that holds from anywhere: a run is continued from another folder, too."""
    from ocssl.streams.benchmark import parse_name

    kind, place = parse_name(benchmark)
    if place is not None and data is not None:
        raise SettingError(f"{benchmark} already says where the images lie; leave --data out.")
    if kind in PATHS and place is None and data is None:
        raise SettingError(f"{kind} needs the path of your images: {kind}:PATH.")
    if place is not None and (kind in PATHS or Path(place).is_dir()):
        data = Path(place)
    return None if data is None else str(data.expanduser().absolute())


def _start(
    method: str,
    benchmark: str,
    seed: int,
    overrides: dict[str, Any],
    out: Path | None,
    device: str,
    quiet: bool,
    parts: Path | None,
    ranks: Ranks,
    track: Track = None,
) -> int:
    from ocssl.learner import Learner
    from ocssl.runs.config import resolve_run
    from ocssl.runs.folder import create
    from ocssl.runs.initial import start_from
    from ocssl.runs.progress import Bars
    from ocssl.runs.run import make_stream
    from ocssl.runs.tracking import require_libraries
    from ocssl.streams import load_benchmark

    require_libraries(track or [])
    settings = _with_digest(resolve_run(method, benchmark, seed, {"compute.ranks": ranks.size} | overrides))
    with ranks.in_turn(), Bars(console(silent=not ranks.first), quiet) as bars:
        loaded = load_benchmark(settings.benchmark, settings.stream, settings.data, bars.report)
    make_stream(loaded, settings)  # with the lines below: whatever is wrong is said before a folder is made
    where = ranks.device(device)
    size = settings.stream.image_size
    learner = Learner(method, image_size=size, settings=settings.learner(), device=where, ranks=ranks)
    start_from(learner, settings.init)
    kind, _, place = benchmark.partition(":")
    name = f"{kind}-{Path(place).name}" if place else kind
    folder = out or Path("runs") / f"{Path(method).stem}-{name}-seed{seed}"
    if ranks.first:
        create(folder, settings)
    ranks.wait()
    return _execute(folder, device, quiet, ranks, loaded, parts=parts, track=track)


@contextmanager
def _ranks(device: str) -> Iterator[Ranks]:
    """The processes that torchrun started, or this one alone. Of several that fail the first says why, once."""
    from ocssl.ranks import joined

    with joined(device) as ranks:
        try:
            yield ranks
        except OcsslError as error:
            if ranks.speaks():
                raise
            raise SystemExit(FAILED if isinstance(error, NonFiniteLoss) else BAD_INPUT) from None


def _with_digest(settings: RunSettings) -> RunSettings:
    """Note the checksum of the weights that a run starts from, so that it is continued from the same."""
    if settings.init.path is None:
        return settings
    from ocssl.runs.initial import digest, read_weights

    noted = settings.init.model_copy(update={"sha256": digest(read_weights(settings.init.path))})
    return settings.model_copy(update={"init": noted})


def _execute(
    folder: Path,
    device: str,
    quiet: bool,
    ranks: Ranks,
    loaded: Benchmark | None = None,
    data: Path | None = None,
    parts: Path | None = None,
    track: Track = None,
) -> int:
    from ocssl.runs.progress import Bars, Progress
    from ocssl.runs.run import execute
    from ocssl.runs.stop import stop_on_signals
    from ocssl.runs.tracking import require_libraries
    from ocssl.runs.worker import end_with_parent

    require_libraries(track or [])
    screen = console(silent=not ranks.first)
    with stop_on_signals() as stop, Bars(screen, quiet) as bars:
        end_with_parent(stop)
        metrics = execute(folder, Progress(bars), stop, device, loaded, data, ranks, track or ())
    if metrics is None:
        again = f"{ranks.command} resume {folder}" + (f" --parts {parts}" if parts else "")
        screen.print(f"stopped and saved; continue with: {again}", highlight=False, soft_wrap=True)
        return 128 + (stop.signal or 0)
    screen.print(_summary(metrics, folder), highlight=False, soft_wrap=True)
    return 0


def _summary(metrics: dict[str, Any], folder: Path) -> str:
    what = f"{metrics['method']} on {metrics['benchmark']}, seed {metrics['seed']}: "
    if metrics["final_accuracy"] is not None:
        start = "" if metrics.get("start_accuracy") is None else f" (start {metrics['start_accuracy']:.1f} %)"
        what += (
            f"final accuracy {metrics['final_accuracy']:.1f} %{start}, average {metrics['average_accuracy']:.1f} %, "
        )
    bad = metrics.get("bad_images", {}).get("count", 0)
    skipped = f", {bad} bad {'image' if bad == 1 else 'images'} skipped" if bad else ""
    return f"{what}{metrics['steps']} steps in {metrics['seconds']:.0f} s{skipped}; {folder}"
