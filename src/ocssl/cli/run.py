"""Commands that learn: `ocssl run`, `pretrain`, `resume`, `demo`; and what they share with `sweep` and `reproduce`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ocssl.cli import options
from ocssl.cli.app import BAD_INPUT, FAILED, app, console
from ocssl.cli.options import Assignments, Benchmark, Count, Data, Device, Moved, Parts, Quiet, RunFolder, Seed, Track
from ocssl.errors import NonFiniteLoss, OcsslError, SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl._distributed.ranks import Ranks
    from ocssl.data import Benchmark as LoadedBenchmark
    from ocssl.runs.config import RunSettings
    from ocssl.runs.stop import Stop

PATHS = ("folder", "parquet")  # benchmarks whose name holds a path


@app.command
def run(
    method: str,
    benchmark: Benchmark = "synthetic",
    /,
    *,
    out: Path | None = None,
    seed: Seed = 0,
    set: Assignments = None,
    data: Data = None,
    bad_images: options.BadImages = None,
    workers: Count | None = None,
    cache: options.Cache = None,
    init: Path | None = None,
    probe_compat: Annotated[options.Compat | None, options.COMPAT] = None,
    parts: Parts = None,
    track: Track = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Train a method on a benchmark, evaluating on the way.

    Example: ocssl run solar cifar100 --data cifar-100-python --seed 1 --set memory.capacity=500

    Parameters
    ----------
    method
        A method (see: ocssl list methods) or the path of a recipe of your own (.toml).
    out
        The run folder; by default runs/METHOD-BENCHMARK-seedN.
    seed
        Decides initial weights, order inside experiences, views and memory.
    workers
        Decode images during training with this many processes; by default all are decoded once, into the cache.
    init
        Start from the weights of this run folder or saved learner.
    """
    flags = {
        "data.path": data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.workers": workers,
        "data.decode": None if workers is None else "live",
        "data.cache": cache,
        "init.path": init,
        "evaluate.compat": probe_compat,
    }
    with job(device, quiet, parts, track) as how:
        return start(method, benchmark, seed, given_settings(flags, set), out, how)


@app.command
def pretrain(
    benchmark: Benchmark,
    /,
    *,
    out: Path | None = None,
    epochs: Count = 100,
    batch: Count = 256,
    seed: Seed = 0,
    set: Assignments = None,
    data: Data = None,
    bad_images: options.BadImages = None,
    cache: options.Cache = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Pre-train offline: SimSiam over many epochs of all images, with warm-up and a cosine learning rate.

    Example: ocssl pretrain inat --data inat2021 --out plants && ocssl run solar inat --data inat2021 --init plants

    Parameters
    ----------
    out
        The run folder; by default runs/pretrain-BENCHMARK-seedN.
    epochs
        Passes over all images.
    batch
        Images a step.
    seed
        Decides initial weights, order and views.
    """
    flags = {
        "stream.epochs": epochs,
        "schedule.batch": batch,
        "schedule.stream_batch": batch,
        "data.path": data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.cache": cache,
    }
    with job(device, quiet) as how:
        return start("pretrain", benchmark, seed, given_settings(flags, set), out, how)


@app.command
def resume(
    folder: RunFolder,
    /,
    *,
    data: Moved = None,
    parts: Parts = None,
    track: Track = None,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> int:
    """Continue a run that was stopped or killed. On the same machine and device the result is the same to the bit.

    Example: ocssl resume runs/solar-synthetic-seed0
    """
    with job(device, quiet, parts, track) as how:
        return resume_run(folder, how, data=data)


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
    from ocssl.cli.demo import run_demo

    return run_demo(out, seed, console())


# ---- from the command line to a run folder, and through the run -----------------------------------------------------


def chosen_device(name: str) -> str:
    """The device that auto stands for on this machine; any other name as it is."""
    if name != "auto":
        return name
    from ocssl._training.assembly import usable_device

    return str(usable_device(name))


@dataclass(frozen=True)
class Job:
    """How a command runs."""

    ranks: Ranks
    device: str
    quiet: bool
    parts: Path | None  # the user's Python file
    track: Sequence[str]

    def resume_words(self, data: Path | None) -> list[str]:
        """The options that the command which continues this one needs."""
        device = None if self.device == "cpu" else self.device
        return option_words(self.track, device=device, data=data, parts=self.parts)


@contextmanager
def job(device: str, quiet: bool, parts: Path | None = None, track: Sequence[str] | None = None) -> Iterator[Job]:
    """Join the processes that torchrun started, or none. If several fail, the first one prints why."""
    import torch

    from ocssl._core.registry import load_parts
    from ocssl._distributed.ranks import joined
    from ocssl.runs.tracking import require_libraries

    device = chosen_device(device)
    with joined(device) as ranks:
        try:
            load_parts(parts)
            require_libraries(track or ())
            yield Job(ranks, device, quiet, parts, track or ())
        except torch.OutOfMemoryError as error:
            raise SettingError(
                f"the device is out of memory ({str(error).partition('.')[0]}); lower schedule.batch, encoder.width or "
                "stream.image_size, or end other programs that use it, and continue a started run with: ocssl resume"
            ) from None
        except OcsslError as error:
            if ranks.first_to_fail():
                raise
            raise SystemExit(FAILED if isinstance(error, NonFiniteLoss) else BAD_INPUT) from None


def start(method: str, benchmark: str, seed: int, given: Mapping[str, Any], out: Path | None, job: Job) -> int:
    """Make a run folder and run it. Errors are found before there is a folder."""
    from ocssl.cost import ImageCounts, about_bytes
    from ocssl.data import load_benchmark
    from ocssl.runs.config import resolve_run
    from ocssl.runs.folder import create
    from ocssl.runs.progress import Bars
    from ocssl.runs.run import make_stream, new_learner

    ranks = job.ranks
    settings = with_digest(resolve_run(method, benchmark, seed, {"compute.ranks": ranks.size, **given}))
    with ranks.in_turn(), Bars(console(silent=not ranks.first), job.quiet) as bars:
        loaded = load_benchmark(settings.benchmark, settings.stream, settings.data, bars.report)
    steps = settings.schedule.passes * len(make_stream(loaded, settings))
    new_learner(settings, ranks.device(job.device), ranks)  # finds settings that do not fit together
    kind, _, place = benchmark.partition(":")
    name = f"{kind}-{Path(place).name}" if place else kind
    folder = out or Path("runs") / f"{Path(method).stem}-{name}-seed{seed}"
    if ranks.first:
        create(folder, settings)
        if not job.quiet:
            size = max(1, about_bytes(settings, ImageCounts.of(loaded)) / 1e6)  # does not depend on the stream's length
            memory = f"about {size:,.0f} MB of memory beside PyTorch's own"
            console().print(f"{folder}: {steps:,} steps, {memory}", soft_wrap=True)
    ranks.barrier()
    return resume_run(folder, job, loaded)


def resume_run(folder: Path, job: Job, loaded: LoadedBenchmark | None = None, data: Path | None = None) -> int:
    """Run what is left of a run folder, and print how it ended."""
    from ocssl._distributed.ranks import command
    from ocssl.launch.run_process import end_with_parent
    from ocssl.runs.progress import Bars, Progress
    from ocssl.runs.run import execute
    from ocssl.runs.stop import stop_on_signals

    screen = console(silent=not job.ranks.first)
    with stop_on_signals() as stop, Bars(screen, job.quiet) as bars:
        end_with_parent(stop)
        metrics = execute(folder, Progress(bars), stop, job.device, loaded, data, job.ranks, job.track)
    if metrics is None:
        again = f"{command(job.ranks.size)} {shlex.join(['resume', str(folder), *job.resume_words(data)])}"
        screen.print(f"stopped and saved; continue with: {again}", soft_wrap=True)
        return 128 + (stop.signal or 0)
    screen.print(_summary(metrics, folder), soft_wrap=True)
    return 0


def _summary(metrics: dict[str, Any], folder: Path) -> str:
    what = f"{metrics['method']} on {metrics['benchmark']}, seed {metrics['seed']}: "
    if metrics["final_accuracy"] is not None:
        start = "" if metrics.get("start_accuracy") is None else f" (start {metrics['start_accuracy']:.1f} %)"
        what += f"final accuracy {metrics['final_accuracy']:.1f} %{start}, "
        what += f"average {metrics['average_accuracy']:.1f} %, "
    bad = metrics.get("bad_images", {}).get("count", 0)
    skipped = f", {bad} bad {'image' if bad == 1 else 'images'} skipped" if bad else ""
    return f"{what}{metrics['steps']} steps in {metrics['seconds']:.0f} s{skipped}; {folder}"


def given_settings(flags: Mapping[str, Any], assignments: list[str] | None) -> dict[str, Any]:
    """The user's settings: flags that are not None, and `--set`, which wins."""
    from ocssl.runs.config import parse_assignments

    known = {key: str(value.absolute()) if isinstance(value, Path) else value for key, value in flags.items()}
    return {key: value for key, value in known.items() if value is not None} | parse_assignments(assignments or [])


def with_digest(settings: RunSettings) -> RunSettings:
    """The settings with the checksum of the weights that a run starts from, so that it resumes from the same."""
    if settings.init.path is None:
        return settings
    from ocssl.runs.initial_weights import digest, read_weights

    path = Path(settings.init.path).expanduser().absolute()  # a run may be resumed from another folder
    noted = settings.init.model_copy(update={"path": str(path), "sha256": digest(read_weights(path))})
    return settings.model_copy(update={"init": noted})


# ---- shared with sweep and reproduce --------------------------------------------------------------------------------


def data_path(benchmark: str, data: Path | None) -> str | None:
    """Where the images lie, as an absolute path: a run may be resumed from another folder."""
    from ocssl.data.sources.source import parse_name

    kind, place = parse_name(benchmark)
    if place is not None and data is not None:
        raise SettingError(f"{benchmark} already says where the images lie; leave --data out.")
    if kind in PATHS and place is None and data is None:
        raise SettingError(f"{kind} needs the path of your images: {kind}:PATH.")
    if place is not None and (kind in PATHS or Path(place).is_dir()):
        data = Path(place)
    return None if data is None else str(data.expanduser().absolute())


def require_exists(paths: Iterable[str]) -> None:
    """Images that are not where the user says are an error before anything is made."""
    for path in paths:
        if not Path(path).exists():
            raise SettingError(f"there is no {path}; name the folder or archive with the images.")


def option_words(track: Sequence[str] | None = None, **values: object) -> list[str]:
    """Options as words of a command line; those that are None are left out."""
    words = [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
    return words + [word for name in track or () for word in ("--track", name)]


def exit_code(screen: Console, stop: Stop, failures: Mapping[str, str]) -> int:
    """The exit code of a command with many runs."""
    if stop:
        screen.print("stopped and saved; the same command continues")
        return 128 + (stop.signal or 0)
    return FAILED if failures else 0
