"""A run: a learner on a benchmark, evaluated on the way, recorded in a folder, and continued from it bit for bit."""

from __future__ import annotations

import fcntl
import json
import math
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from ocssl import __version__, checkpoint
from ocssl.assembly import require_known
from ocssl.errors import CheckpointError, NonFiniteLoss, RunFolderError, SettingError
from ocssl.evaluate.evaluation import evaluate
from ocssl.learner import Info, Learner
from ocssl.runs.config import RunSettings, read_settings, to_toml
from ocssl.runs.events import Events
from ocssl.runs.progress import Progress
from ocssl.runs.stop import Stop
from ocssl.statistics import collapsed
from ocssl.streams import Benchmark, ExperienceStream, load_benchmark

SETTINGS, EVENTS, METRICS, CHECKPOINTS = "run.toml", "events.jsonl", "metrics.json", "checkpoints"


@dataclass
class Position:
    """How far a run has come; saved with every checkpoint."""

    minibatches: int = 0
    seconds: float = 0.0  # spent on training and evaluation, all sessions together
    events: int = 0  # bytes of the diary that belong to it
    warned: bool = False  # of collapse
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def create(folder: Path, settings: RunSettings) -> None:
    """Make a run folder; an existing one is never overwritten."""
    try:
        _refuse_used(folder)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.replace_file(folder / SETTINGS, to_toml(settings).encode())
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror}.") from None


def _refuse_used(folder: Path) -> None:
    if (folder / SETTINGS).exists():
        how = "see its metrics.json" if (folder / METRICS).exists() else f"continue it with: ocssl resume {folder}"
        raise RunFolderError(f"{folder} already holds a run ({how}); name another folder with --out.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(f"{folder} is not empty and not a run; name another folder with --out.")


def finished(folder: Path) -> dict[str, Any] | None:
    """The metrics of a run that has come to its end."""
    try:
        found: dict[str, Any] = json.loads((folder / METRICS).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise RunFolderError(f"{folder / METRICS} is damaged: it is not JSON.") from None
    if not isinstance(found, dict) or not found.keys() >= {"method", "benchmark", "seed", "final_accuracy"}:
        raise RunFolderError(f"{folder / METRICS} is damaged: it holds no metrics of a run.")
    return found


def execute(
    folder: Path, progress: Progress, stop: Stop, device: str = "cpu", benchmark: Benchmark | None = None
) -> dict[str, Any] | None:
    """Start or continue the run of a folder; returns its metrics, or None if it was asked to stop before the end.

    A benchmark that was loaded before need not be loaded again.
    """
    settings = read_settings(folder / SETTINGS)
    with _only_one(folder):
        done = finished(folder)
        if done is not None:
            return done
        events = Events(folder / EVENTS)
        try:
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
            benchmark = benchmark or load_benchmark(settings.benchmark, settings.stream)
            return _Session(folder, settings, benchmark, events, progress, stop, device).run()
        except OSError as error:
            raise RunFolderError(f"cannot go on in {folder}: {error}.") from None
        finally:
            events.close()


def make_stream(benchmark: Benchmark, settings: RunSettings) -> ExperienceStream:
    """The stream that a run learns from."""
    options = settings.stream
    stream = benchmark.stream(settings.schedule.stream_batch, settings.seed, options.drop_last, options.epochs)
    if not len(stream):
        raise SettingError(
            f"no experience of {benchmark.name} has the {settings.schedule.stream_batch} images of a minibatch; "
            "lower schedule.stream_batch or raise stream.fraction."
        )
    return stream


class _Session:
    """One process's part of a run."""

    def __init__(
        self,
        folder: Path,
        settings: RunSettings,
        benchmark: Benchmark,
        events: Events,
        progress: Progress,
        stop: Stop,
        device: str,
    ) -> None:
        self.folder, self.settings, self.benchmark = folder, settings, benchmark
        self.events, self.progress, self.stop = events, progress, stop
        self.stream = make_stream(benchmark, settings)
        self.learner, self.position = self._restore(device)
        if not events.cut(self.position.events):
            progress.warn(f"{folder / EVENTS} is shorter than it was: what was recorded before is lost.")
        self.started = time.perf_counter()

    def _go(self) -> dict[str, Any] | None:
        position, ends = self.position, self.stream.ends()
        self.progress.start(self.settings.method, len(self.stream), position.minibatches)
        if position.minibatches == 0 and not position.evaluations:
            self.events.write("start", version=__version__, minibatches=len(self.stream), experiences=len(ends))
            if self.settings.evaluate.start:
                self._evaluate(0)
        else:
            self.events.write("resume", position=position.minibatches)
        for batch in self.stream.batches(position.minibatches):
            info = self.learner.partial_fit(batch.images, ids=batch.ids)
            position.minibatches += 1
            self._record(info, batch.task)
            if position.minibatches in ends:
                self._evaluate(ends.index(position.minibatches) + 1)
                if self.settings.schedule.boundaries and position.minibatches < len(self.stream):
                    self.learner.boundary()
            if self.stop or position.minibatches % self.settings.checkpoint.every == 0:
                self._save()
            if self.stop and position.minibatches < len(self.stream):
                return None
        self._save()
        metrics = self._metrics()
        self.events.write("end", **metrics)
        checkpoint.replace_file(self.folder / METRICS, json.dumps(metrics, indent=1).encode())
        return metrics

    def run(self) -> dict[str, Any] | None:
        """Go to the end or the next stop; a loss or weights that are not finite are recorded before they are raised."""
        try:
            return self._go()
        except NonFiniteLoss as error:
            self.events.write("non-finite-loss", position=self.position.minibatches, ids=error.ids, message=str(error))
            last = max(_whole_checkpoints(self.folder), default=None)
            kept = f"The last good checkpoint is {last}." if last else "No checkpoint was made yet."
            raise NonFiniteLoss(f"{error} {kept}", error.ids) from None

    def _record(self, info: Info, task: int) -> None:
        memory = self.learner.memory
        stored = float(memory.store["loss"].mean()) if len(memory) else math.nan
        facts = asdict(info)
        self.events.write(
            "step", position=self.position.minibatches, task=task, **facts, stored=len(memory), stored_loss=stored
        )
        self.progress.step(self.position.minibatches, info)
        if collapsed(info.spread, info.rank) and not self.position.warned:
            self.position.warned = True
            message = (
                "the encoder is collapsing: all images get nearly the same features "
                f"(spread {info.spread:.3f}, effective rank {info.rank:.1f}); try a lower optimizer.lr."
            )
            self.events.write("collapse", position=self.position.minibatches, message=message)
            self.progress.warn(message)

    def _evaluate(self, experience: int) -> None:
        options, position = self.settings.evaluate, self.position
        self.learner.require_finite()
        result = evaluate(
            self.learner,
            self.benchmark,
            options.probe,
            options.latent_samples,
            options.latent_views,
            self.settings.seed,
        )
        facts = {
            "experience": experience,
            "position": position.minibatches,
            "step": self.learner.steps,
            "seen": self.learner.seen,
            **asdict(result),
        }
        position.evaluations.append(facts)
        self.events.write("evaluation", **facts, seconds=self._seconds())
        self.progress.evaluated(experience, result)

    def _seconds(self) -> float:
        return self.position.seconds + time.perf_counter() - self.started

    def _metrics(self) -> dict[str, Any]:
        after = [e for e in self.position.evaluations if e["experience"] > 0]
        start = [e["accuracy"] for e in self.position.evaluations if e["experience"] == 0]
        accuracies = [e["accuracy"] for e in after]
        return {
            "method": self.settings.method,
            "benchmark": self.settings.benchmark,
            "seed": self.settings.seed,
            "probe": self.settings.evaluate.probe,
            "start_accuracy": start[0] if start else None,
            "final_accuracy": accuracies[-1],
            "average_accuracy": sum(accuracies) / len(accuracies),
            "accuracies": accuracies,
            "deviations": [e["deviation"] for e in after],
            "overlaps": [e["overlap"] for e in after],
            "collapsed": self.position.warned,
            "steps": self.learner.steps,
            "seen": self.learner.seen,
            "seconds": round(self._seconds(), 3),
        }

    def _save(self) -> None:
        position = self.position
        folder = self.folder / CHECKPOINTS / f"{position.minibatches:08d}"
        position.seconds, self.started = self._seconds(), time.perf_counter()
        position.events = self.events.sync()
        self.learner.save(folder, {"position": asdict(position)})
        for old in sorted(_whole_checkpoints(self.folder), reverse=True)[self.settings.checkpoint.keep :]:
            shutil.rmtree(old)

    def _restore(self, device: str) -> tuple[Learner, Position]:
        """The newest checkpoint that is whole, or the beginning; damaged ones are named and passed over."""
        settings = self.settings
        require_known(settings)  # a part that has no name here is no damage
        found = sorted(_whole_checkpoints(self.folder), reverse=True)
        damaged = []
        for folder in found:
            try:
                tensors, facts = checkpoint.read(folder)
                learner, position = (
                    Learner.restore(tensors, facts, device=device),
                    Position(**facts["extra"]["position"]),
                )
            except (CheckpointError, KeyError, TypeError) as error:
                self.progress.warn(f"{folder} is passed over: {error}")
                damaged.append(folder)
                continue
            self._require_same_settings(learner)
            for other in damaged:  # out of the way, or it would count as one of the last good ones
                shutil.rmtree(other)
            return learner, position
        if found:
            raise CheckpointError(f"no checkpoint of {self.folder} can be read; start again in another folder.")
        learner = Learner(
            settings.method,
            image_size=settings.stream.image_size,
            seed=settings.seed,
            settings=settings.learner(),
            device=device,
        )
        return learner, Position()

    def _require_same_settings(self, learner: Learner) -> None:
        wanted = (self.settings.learner(), self.settings.seed, self.settings.stream.image_size)
        if (learner.settings, learner.seed, learner.image_size) != wanted:
            raise RunFolderError(
                f"{self.folder / SETTINGS} is not what this run was started with; put it back or start another run."
            )


def _whole_checkpoints(folder: Path) -> list[Path]:
    """Checkpoint folders whose writing came to its end; whether they are still good shows when they are read."""
    return [path.parent for path in (folder / CHECKPOINTS).glob(f"*/{checkpoint.MANIFEST}")]


class _only_one:
    """A lock on a run folder: two processes in one would destroy each other's record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        self.file: IO[bytes] = open(self.folder / SETTINGS, "rb")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.file.close()
            raise RunFolderError(f"another process is running in {self.folder}.") from None

    def __exit__(self, *exception: object) -> None:
        self.file.close()
