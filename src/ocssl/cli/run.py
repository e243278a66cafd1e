"""Commands that learn: `ocssl run`, `pretrain`, `resume`, `demo`; and what they share with `sweep` and `reproduce`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ocssl.cli import options
from ocssl.cli.app import BAD_INPUT, FAILED, START, STUDY, app, console, print_json
from ocssl.cli.options import Assignments, Benchmark, Count, Data, Device, Moved, Parts, Quiet, RunFolder, Seed, Track
from ocssl.errors import NonFiniteLoss, OcsslError, OutOfMemory, SettingError, counted

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl._distributed.ranks import Ranks
    from ocssl.data import Benchmark as LoadedBenchmark
    from ocssl.runs.config import RunSettings
    from ocssl.runs.stop import Stop


@app.command(group=START)
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
    preset: options.Preset = "none",
    probe_compat: Annotated[options.Compat | None, options.COMPAT] = None,
    parts: Parts = None,
    track: Track = None,
    device: Device = "cpu",
    quiet: Quiet = False,
    json: options.Json = False,
) -> int:
    """Train a method on a benchmark and evaluate it along the stream.

    Example: ocssl run solar cifar100 --data cifar-100-python --seed 1 --set memory.capacity=500

    Parameters
    ----------
    method
        A method (see: ocssl list methods) or the path of a recipe of your own (.toml).
    out
        The run folder; by default runs/METHOD-BENCHMARK-seedN.
    seed
        Seed for initial weights, views, memory and the order within each experience.
    workers
        Decode images during training, in this many processes. Default: decode all into the cache before training.
    init
        Start from the weights of this run folder or saved learner.
    """
    benchmark = benchmark_of(benchmark)
    flags = {
        "data.path": data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.workers": workers,
        "data.decode": None if workers is None else "live",
        "data.cache": cache,
        "init.path": init,
        "evaluate.compat": probe_compat,
    }
    with job(device, quiet, parts, track, json) as how:
        return start(method, benchmark, seed, given_settings(flags, set), out, how, preset)


@app.command(group=STUDY)
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
    json: options.Json = False,
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
        Images per step.
    seed
        The seed of initial weights, order and views.
    """
    benchmark = benchmark_of(benchmark)
    flags = {
        "stream.epochs": epochs,
        "schedule.batch": batch,
        "schedule.stream_batch": batch,
        "data.path": data_path(benchmark, data),
        "data.bad_images": bad_images,
        "data.cache": cache,
    }
    with job(device, quiet, json=json) as how:
        return start("pretrain", benchmark, seed, given_settings(flags, set), out, how)


@app.command(group=START)
def resume(
    folder: RunFolder,
    /,
    *,
    data: Moved = None,
    parts: Parts = None,
    track: Track = None,
    device: Device = "cpu",
    quiet: Quiet = False,
    json: options.Json = False,
) -> int:
    """Continue a run that was stopped or killed. On the same machine and device the result is the same to the bit.

    Example: ocssl resume runs/solar-synthetic-seed0
    """
    with job(device, quiet, parts, track, json) as how:
        return resume_run(folder, how, data=data)


@app.command(group=START)
def demo(*, out: Path = Path("ocssl-demo"), seed: Seed = 0, json: options.Json = False) -> int:
    """Train three methods on a small built-in stream, then print a table and write a report: about two minutes.

    Example: ocssl demo

    Parameters
    ----------
    out
        The folder for the three runs and report.html; runs of an earlier demo in it are replaced.
    seed
        The seed of stream order, initial weights and views.
    """
    from ocssl.cli.demo import run_demo

    return run_demo(out, seed, console(silent=json), json)


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
    json: bool = False  # print the result for programs, and nothing else

    def resume_words(self, data: Path | None) -> list[str]:
        """The options that the command which continues this one needs."""
        device = None if self.device == "cpu" else self.device
        return option_words(self.track, device=device, data=data, parts=self.parts)


@contextmanager
def job(
    device: str, quiet: bool, parts: Path | None = None, track: Sequence[str] | None = None, json: bool = False
) -> Iterator[Job]:
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
            yield Job(ranks, device, quiet or json, parts, track or (), json)
        except torch.OutOfMemoryError as error:
            raise SettingError(
                f"the device is out of memory ({str(error).partition('.')[0]}); lower schedule.batch, encoder.width or "
                "stream.image_size, or end other programs that use it, and continue a started run with: ocssl resume"
            ) from None
        except OcsslError as error:
            if ranks.first_to_fail():
                raise
            raise SystemExit(FAILED if isinstance(error, NonFiniteLoss) else BAD_INPUT) from None


def start(
    method: str,
    benchmark: str,
    seed: int,
    given: Mapping[str, Any],
    out: Path | None,
    job: Job,
    preset: str = "none",
) -> int:
    """Make a run folder and run it. Errors are found before there is a folder."""
    from ocssl.cost import ImageCounts, about_bytes, fitting_preset, most_bytes
    from ocssl.data import load_benchmark
    from ocssl.runs.config import resolve_run
    from ocssl.runs.folder import SKIPPED, create
    from ocssl.runs.progress import Bars
    from ocssl.runs.run import make_stream, moments, new_learner

    ranks = job.ranks
    given = {"compute.ranks": ranks.size, **given}
    with memory_advice():
        if preset == "auto":
            preset = fitting_preset(resolve_run(method, benchmark, seed, given, "gpu"), job.device)
        settings = with_digest(resolve_run(method, benchmark, seed, given, preset))
    with memory_advice(settings), ranks.in_turn(), Bars(console(silent=not ranks.first or job.json), job.quiet) as bars:
        loaded = load_benchmark(settings.benchmark, settings.stream, settings.data, bars.report)
    with memory_advice(settings):
        stream = make_stream(loaded, settings)
        steps = settings.schedule.passes * len(stream)
        new_learner(settings, ranks.device(job.device), ranks)  # finds settings that do not fit together
    kind, _, place = benchmark.partition(":")
    name = f"{kind}-{Path(place).name}" if place else kind
    folder = out or Path("runs") / f"{Path(method).stem}-{name}-seed{seed}"
    if ranks.first:
        create(folder, settings)
        if not job.quiet:
            size = max(1, about_bytes(settings, ImageCounts.of(loaded)) / 1e6)  # does not depend on the stream's length
            memory = f"about {size:,.0f} MB of memory beside PyTorch's own"
            evaluations = int(settings.evaluate.start) + len(moments(stream, settings.evaluate.every, loaded.labelled))
            parts = most_bytes(settings, ImageCounts.of(loaded), len(stream), evaluations, len(loaded.skipped()))
            disk = f"at most {sum(parts.values()) / 1e6:,.0f} MB on disk"
            if loaded.skipped():
                console().print(f"{loaded.usage()}; list: {folder / SKIPPED}", soft_wrap=True)
            if loaded.note:
                console().print(loaded.note, soft_wrap=True)
            console().print(f"{folder}: {counted(steps, 'step')}, {memory}, {disk}", soft_wrap=True)
    ranks.barrier()
    return resume_run(folder, job, loaded)


def resume_run(folder: Path, job: Job, loaded: LoadedBenchmark | None = None, data: Path | None = None) -> int:
    """Run what is left of a run folder, and print how it ended."""
    from ocssl._distributed.ranks import command
    from ocssl.launch.run_process import end_with_parent
    from ocssl.runs.progress import Bars, Progress
    from ocssl.runs.run import execute
    from ocssl.runs.stop import stop_on_signals

    screen = console(silent=not job.ranks.first or job.json)
    with memory_advice(folder=folder), stop_on_signals() as stop, Bars(screen, job.quiet) as bars:
        end_with_parent(stop)
        metrics = execute(folder, Progress(bars), stop, job.device, loaded, data, job.ranks, job.track)
    if metrics is not None:
        words, found = _summary(metrics, folder), {"finished": True, **metrics}
    else:
        again = f"{command(job.ranks.size)} {shlex.join(['resume', str(folder), *job.resume_words(data)])}"
        words, found = f"stopped and saved; continue with: {again}", {"finished": False, "continue": again}
    screen.print(words, soft_wrap=True)
    if job.json and job.ranks.first:
        print_json({"folder": str(folder), **found})
    return 0 if metrics is not None else 128 + (stop.signal or 0)


@contextmanager
def memory_advice(settings: RunSettings | None = None, folder: Path | None = None) -> Iterator[None]:
    """If the host's memory is not enough in the block: say which setting to lower, and what is left of a run."""
    try:
        yield
        return
    except Exception as error:
        from traceback import clear_frames

        from ocssl._core.host_memory import out_of_memory

        lack = out_of_memory(error)
        if lack is None:
            raise
        clear_frames(error.__traceback__)  # they hold what takes the memory
    raise _advised(lack.lack, settings, folder)


def _advised(lack: str, settings: RunSettings | None, folder: Path | None) -> OutOfMemory:
    from ocssl.cost.advice import lower
    from ocssl.runs.config import read_settings
    from ocssl.runs.folder import SETTINGS, complete_checkpoints

    if folder is None:
        return OutOfMemory(lack, lower(settings))
    last = max(complete_checkpoints(folder), default=None)
    kept = f"The last good checkpoint is {last}." if last else "No checkpoint was made yet."
    return OutOfMemory(lack, f"{lower(read_settings(folder / SETTINGS))} {kept}")


def _summary(metrics: dict[str, Any], folder: Path) -> str:
    what = f"{metrics['method']} on {metrics['benchmark']}, seed {metrics['seed']}: "
    if metrics["final_accuracy"] is not None:
        start = "" if metrics.get("start_accuracy") is None else f" (start {metrics['start_accuracy']:.1f} %)"
        what += f"final accuracy {metrics['final_accuracy']:.1f} %{start}, "
        what += f"average {metrics['average_accuracy']:.1f} %, "
    bad = metrics.get("bad_images", {}).get("count", 0)
    skipped = f", {bad} bad {'image' if bad == 1 else 'images'} skipped" if bad else ""
    return f"{what}{counted(metrics['steps'], 'step')} in {metrics['seconds']:.0f} s{skipped}; {folder}"


def given_settings(flags: Mapping[str, Any], assignments: list[str] | None) -> dict[str, Any]:
    """The user's settings: flags that are not None, and `--set`, which wins."""
    from ocssl.runs.config import parse_assignments

    known = {key: str(value.absolute()) if isinstance(value, Path) else value for key, value in flags.items()}
    return {key: value for key, value in known.items() if value is not None} | parse_assignments(assignments or [])


def with_digest(settings: RunSettings) -> RunSettings:
    """The settings with the checksums of the weights that a run starts from, so that it resumes from the same."""
    if settings.encoder.weights is not None:
        from ocssl.encoders.weights import digest as file_digest

        file = Path(settings.encoder.weights).expanduser().absolute()
        chosen = settings.encoder.model_copy(update={"weights": str(file), "sha256": file_digest(file)})
        settings = settings.model_copy(update={"encoder": chosen})
    if settings.init.path is not None:
        from ocssl.runs.initial_weights import digest, read_weights

        path = Path(settings.init.path).expanduser().absolute()  # a run may be resumed from another folder
        noted = settings.init.model_copy(update={"path": str(path), "sha256": digest(read_weights(path))})
        settings = settings.model_copy(update={"init": noted})
    return settings


# ---- shared with sweep and reproduce --------------------------------------------------------------------------------


def benchmark_of(word: str) -> str:
    """A benchmark by its name; an existing path, or one with a separator, is images of the user's own."""
    from ocssl import recipes
    from ocssl.data.sources.source import own_source

    known, owned = recipes.benchmarks(), own_source(word)
    is_path = "/" in word or Path(word).is_dir() or not owned.startswith("folder:")
    return word if word.partition(":")[0] in known or not is_path else owned


def data_path(benchmark: str, data: Path | None) -> str | None:
    """Where the images are, as an absolute path: a run may be resumed from another folder."""
    from ocssl.data.sources.source import after_colon, parse_name

    kind, place = parse_name(benchmark)
    if place is not None and data is not None:
        raise SettingError(f"{benchmark} already says where the images are; leave --data out.")
    takes_path = after_colon(kind) == "path"
    if takes_path and place is None and data is None:
        raise SettingError(f"{kind} needs the path of your images: {kind}:PATH.")
    if place is not None and (takes_path or Path(place).is_dir()):
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
