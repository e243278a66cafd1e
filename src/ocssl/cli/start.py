"""What the commands that learn have in common: from the words of a user to a run folder, and through the run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocssl.cli.app import BAD_INPUT, FAILED, console
from ocssl.errors import NonFiniteLoss, OcsslError, SettingError

if TYPE_CHECKING:
    from ocssl._distributed.ranks import Ranks
    from ocssl.data import Benchmark
    from ocssl.runs.config import RunSettings

PATHS = ("folder", "parquet")  # benchmarks whose name holds a path


@dataclass(frozen=True)
class Job:
    """How a command runs, whatever it runs."""

    ranks: Ranks
    device: str
    quiet: bool
    parts: Path | None  # the user's own Python file
    track: Sequence[str]  # who else is told the numbers

    def words(self, data: Path | None) -> list[str]:
        """What a command that goes on with a run has to be told again."""
        said = {"--device": None if self.device == "cpu" else self.device, "--data": data, "--parts": self.parts}
        words = [word for flag, value in said.items() if value is not None for word in (flag, str(value))]
        return words + [word for name in self.track for word in ("--track", name)]


@contextmanager
def job(device: str, quiet: bool, parts: Path | None = None, track: Sequence[str] | None = None) -> Iterator[Job]:
    """Join the processes that torchrun started, or none. Of several that fail the first says why, once."""
    import torch

    from ocssl._core.plugins import load_parts
    from ocssl._distributed.ranks import joined
    from ocssl.runs.tracking import require_libraries

    with joined(device) as ranks:
        try:
            load_parts(parts)
            require_libraries(track or ())
            yield Job(ranks, device, quiet, parts, track or ())
        except torch.OutOfMemoryError as error:
            raise SettingError(
                f"the memory of the device does not suffice ({str(error).partition('.')[0]}); lower schedule.batch, "
                "encoder.width or stream.image_size, or let fewer programs use it. What was saved goes on."
            ) from None
        except OcsslError as error:
            if ranks.speaks():
                raise
            raise SystemExit(FAILED if isinstance(error, NonFiniteLoss) else BAD_INPUT) from None


def start(method: str, benchmark: str, seed: int, given: Mapping[str, Any], out: Path | None, job: Job) -> int:
    """Make a run folder and run it. Whatever is wrong is said before there is a folder."""
    from ocssl.data import load_benchmark
    from ocssl.runs.config import resolve_run
    from ocssl.runs.folder import create
    from ocssl.runs.progress import Bars
    from ocssl.runs.run import make_stream

    ranks = job.ranks
    settings = with_digest(resolve_run(method, benchmark, seed, {"compute.ranks": ranks.size, **given}))
    with ranks.in_turn(), Bars(console(silent=not ranks.first), job.quiet) as bars:
        loaded = load_benchmark(settings.benchmark, settings.stream, settings.data, bars.report)
    steps = settings.schedule.passes * len(make_stream(loaded, settings))
    _try_learner(settings, job)
    kind, _, place = benchmark.partition(":")
    name = f"{kind}-{Path(place).name}" if place else kind
    folder = out or Path("runs") / f"{Path(method).stem}-{name}-seed{seed}"
    if ranks.first:
        create(folder, settings)
        if not job.quiet:
            console().print(f"{folder}: {steps:,} steps, {_memory(settings, loaded)}", soft_wrap=True)
    ranks.wait()
    return go_on(folder, job, loaded)


def _try_learner(settings: RunSettings, job: Job) -> None:
    """Make the learner of a run once, so that settings which do not fit together are told; it is gone afterwards."""
    from ocssl.learner import Learner
    from ocssl.runs.initial_weights import start_from

    size, device = settings.stream.image_size, job.ranks.device(job.device)
    learner = Learner(settings.method, image_size=size, settings=settings.learner(), device=device, ranks=job.ranks)
    start_from(learner, settings.init)


def _memory(settings: RunSettings, benchmark: Benchmark) -> str:
    """What a run will hold, in words: it does not depend on how long the stream is."""
    from ocssl.cost import Images, about_bytes

    size = max(1, about_bytes(settings, Images.of(benchmark)) / 1e6)
    return f"about {size:,.0f} MB of memory beside PyTorch's own"


def go_on(folder: Path, job: Job, loaded: Benchmark | None = None, data: Path | None = None) -> int:
    """Run what is left of a run folder, and say how it ended."""
    from ocssl._distributed.ranks import command
    from ocssl.launch.worker import end_with_parent
    from ocssl.runs.progress import Bars, Progress
    from ocssl.runs.run import execute
    from ocssl.runs.stop import stop_on_signals

    screen = console(silent=not job.ranks.first)
    with stop_on_signals() as stop, Bars(screen, job.quiet) as bars:
        end_with_parent(stop)
        metrics = execute(folder, Progress(bars), stop, job.device, loaded, data, job.ranks, job.track)
    if metrics is None:
        again = f"{command(job.ranks.size)} {shlex.join(['resume', str(folder), *job.words(data)])}"
        screen.print(f"stopped and saved; continue with: {again}", soft_wrap=True)
        return 128 + (stop.signal or 0)
    screen.print(_summary(metrics, folder), soft_wrap=True)
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


def data_path(benchmark: str, data: Path | None) -> str | None:
    """Where the images lie, as a path that holds from anywhere: a run is continued from another folder, too."""
    from ocssl.data.sources.source import parse_name

    kind, place = parse_name(benchmark)
    if place is not None and data is not None:
        raise SettingError(f"{benchmark} already says where the images lie; leave --data out.")
    if kind in PATHS and place is None and data is None:
        raise SettingError(f"{kind} needs the path of your images: {kind}:PATH.")
    if place is not None and (kind in PATHS or Path(place).is_dir()):
        data = Path(place)
    return None if data is None else str(data.expanduser().absolute())


def require_there(paths: Iterable[str]) -> None:
    """That images are where somebody says, told before anything is made."""
    for path in paths:
        if not Path(path).exists():
            raise SettingError(f"there is no {path}; name the folder or archive with the images.")


def with_digest(settings: RunSettings) -> RunSettings:
    """Note the checksum of the weights that a run starts from, so that it is continued from the same."""
    if settings.init.path is None:
        return settings
    from ocssl.runs.initial_weights import digest, read_weights

    path = Path(settings.init.path).expanduser().absolute()  # a run is continued from another folder, too
    noted = settings.init.model_copy(update={"path": str(path), "sha256": digest(read_weights(path))})
    return settings.model_copy(update={"init": noted})


def given_by(flags: Mapping[str, Any], assignments: list[str] | None) -> dict[str, Any]:
    """Settings that a user gave: by flags, of which None says nothing, and by `--set`, which has the last word."""
    from ocssl.runs.config import parse_assignments

    said = {key: str(value.absolute()) if isinstance(value, Path) else value for key, value in flags.items()}
    return {key: value for key, value in said.items() if value is not None} | parse_assignments(assignments or [])
