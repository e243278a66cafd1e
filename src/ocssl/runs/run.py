"""A run: a learner on a benchmark, evaluated on the way, recorded in a folder, and continued from it bit for bit."""

from __future__ import annotations

import json
import math
import shutil
import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ocssl import __version__
from ocssl._core import checkpoint
from ocssl._distributed.ranks import ALONE, Ranks, other_ranks
from ocssl._training.assembly import require_known
from ocssl._training.info import Info
from ocssl.data import Benchmark, ExperienceStream, load_benchmark
from ocssl.errors import CheckpointError, NonFiniteLoss, RunFolderError, SettingError
from ocssl.evaluate.evaluation import evaluate
from ocssl.learner import Learner
from ocssl.objectives.statistics import collapsed
from ocssl.runs.config import RunSettings, read_settings
from ocssl.runs.events import Events, read_events
from ocssl.runs.folder import CHECKPOINTS, EVENTS, METRICS, SETTINGS, finished, only_one, whole_checkpoints
from ocssl.runs.initial_weights import start_from
from ocssl.runs.memory_summary import holdings
from ocssl.runs.metrics import summary
from ocssl.runs.profiler import PhaseClock
from ocssl.runs.progress import Progress
from ocssl.runs.silent_events import Unheard
from ocssl.runs.snapshots import write_snapshot
from ocssl.runs.stop import Stop
from ocssl.runs.timing import write_timing
from ocssl.runs.tracking import followers


@dataclass
class Position:
    """How far a run has come; saved with every checkpoint."""

    minibatches: int = 0
    seconds: float = 0.0  # spent on training and evaluation, all sessions together
    events: int = 0  # bytes of the diary that belong to it
    warned: bool = False  # of collapse
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    data: str = ""  # fingerprint of the benchmark's images
    phases: dict[str, float] = field(default_factory=dict)  # seconds that each has taken


def execute(
    folder: Path,
    progress: Progress,
    stop: Stop,
    device: str = "cpu",
    benchmark: Benchmark | None = None,
    data: Path | None = None,
    ranks: Ranks = ALONE,
    track: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Start or continue the run of a folder; returns its metrics, or None if it was asked to stop before the end.

    A benchmark that was loaded before need not be loaded again; `data` says where its images lie by now. Of several
    ranks all train, and the first one evaluates and writes.
    """
    settings = read_settings(folder / SETTINGS)
    with only_one(folder) if ranks.first else nullcontext():
        done = finished(folder)
        if done is not None:
            return done
        if settings.compute.ranks != ranks.size:
            raise RunFolderError(other_ranks(f"the run {folder}", settings.compute.ranks, ranks.size))
        sinks = followers(track, folder, settings, progress.warn) if ranks.first else []
        events = Events(folder / EVENTS, sinks) if ranks.first else Unheard()
        try:
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
            with ranks.in_turn():
                benchmark = benchmark or load_benchmark(
                    settings.benchmark, settings.stream, settings.reading(data), progress.report
                )
            return _Session(folder, settings, benchmark, events, progress, stop, device, ranks).run()
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
            "lower stream.experiences or schedule.stream_batch, or raise stream.fraction."
        )
    return stream


def moments(stream: ExperienceStream, every: int) -> list[int]:
    """How many minibatches have passed when the encoder is evaluated: at a spacing, or at the ends of experiences."""
    return sorted({*range(every, len(stream), every), len(stream)}) if every else stream.ends()


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
        ranks: Ranks = ALONE,
    ) -> None:
        self.folder, self.settings, self.benchmark = folder, settings, benchmark
        self.events, self.progress, self.stop, self.ranks = events, progress, stop, ranks
        self.stream = make_stream(benchmark, settings)
        self.ends = self.stream.ends()
        with ranks.in_turn():  # damaged checkpoints are gone when the others look
            self.learner, self.position = self._restore(ranks.device(device))
        if ranks.total(self.position.minibatches) != ranks.size * self.position.minibatches:
            raise RunFolderError(
                f"ranks find different checkpoints in {folder}: it must be one folder for all of them."
            )
        if not events.cut(self.position.events):
            progress.warn(f"{folder / EVENTS} is shorter than it was: what was recorded before is lost.")
        told = [event for event in read_events(folder / EVENTS) if event["event"] == "bad-image"]
        self.faults: dict[str, str] = {event["name"]: event["reason"] for event in told}
        self.known_faults = 0
        self.started = time.perf_counter()
        self.clock = PhaseClock(self.learner, self.position.phases)

    def _go(self) -> dict[str, Any] | None:
        position, evaluations = self.position, moments(self.stream, self.settings.evaluate.every)
        self.progress.start(self.settings.method, len(self.stream), position.minibatches)
        if position.minibatches == 0 and not position.evaluations:
            facts = {"minibatches": len(self.stream), "experiences": len(self.ends), "images": position.data}
            self.events.write("start", version=__version__, **facts)
            self._note_faults()
            if self.settings.evaluate.start:
                self._evaluate(0)
        else:
            self.events.write("resume", position=position.minibatches)
        for batch in self.clock.each("data", self.stream.batches(position.minibatches)):
            self._note_faults()
            self.learner.lr = self.settings.optimizer.rate(position.minibatches / len(self.stream))
            info = self.learner.partial_fit(batch.images, ids=batch.ids) if len(batch.ids) else None
            position.minibatches += 1
            if info:
                self._record(info, batch.task)
            if position.minibatches in evaluations:
                self._evaluate(bisect_left(self.ends, position.minibatches) + 1)
            if position.minibatches in self.ends[:-1] and self.settings.schedule.boundaries:
                self.learner.boundary()
            stopping = self.ranks.largest(self.stop.signal or 0)  # all ranks stop at the same minibatch
            if stopping or position.minibatches % self.settings.checkpoint.every == 0:
                self._save()
            if stopping and position.minibatches < len(self.stream):
                self.stop.signal = stopping
                return None
        self._save()
        metrics = summary(self.settings, self.position, self.learner, self.faults, self._seconds())
        if self.ranks.first:  # the others know no evaluations
            self.events.write("end", **metrics)
            checkpoint.replace_file(self.folder / METRICS, json.dumps(metrics, indent=1).encode())
        self.ranks.wait()
        return metrics

    def run(self) -> dict[str, Any] | None:
        """Go to the end or the next stop; a loss or weights that are not finite are recorded before they are raised."""
        try:
            return self._go()
        except NonFiniteLoss as error:
            self.events.write("non-finite-loss", position=self.position.minibatches, ids=error.ids, message=str(error))
            last = max(whole_checkpoints(self.folder), default=None)
            kept = f"The last good checkpoint is {last}." if last else "No checkpoint was made yet."
            raise NonFiniteLoss(f"{error} {kept}", error.ids) from None

    def _note_faults(self) -> None:
        """Put images that turned out to be of no use into the diary, each once."""
        if self.benchmark.known_faults == self.known_faults:
            return
        self.known_faults = self.benchmark.known_faults
        new = [fault for fault in self.benchmark.faults() if fault.name not in self.faults]
        for fault in new:
            self.faults[fault.name] = fault.reason
            self.events.write("bad-image", name=fault.name, reason=fault.reason, position=self.position.minibatches)
        if new:
            count = f"{len(new)} images that cannot be used, the first: " if len(new) > 1 else ""
            self.progress.warn(f"skipped {count}{new[0].name} ({new[0].reason}); all are listed in {EVENTS}.")

    def _record(self, info: Info, task: int) -> None:
        memory = self.learner.memory
        rows = self.ranks.count(len(memory))
        stored = float(self.ranks.sum(rows.part(memory.store["loss"].mean()))) if rows.total else math.nan
        facts = asdict(info)
        self.events.write(
            "step", position=self.position.minibatches, task=task, **facts, stored=rows.total, stored_loss=stored
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
        self.learner.require_finite()
        with self.learner.whole():
            if self.ranks.first:
                self._look(experience)

    def _look(self, experience: int) -> None:
        position = self.position
        with self.clock.during("probe"):
            result = evaluate(self.learner, self.benchmark, self.settings.evaluate, self.settings.seed)
        self._note_faults()
        facts = {
            "experience": experience,
            "task": self.stream.tasks()[experience - 1] if experience and self.benchmark.tasks else None,
            "position": position.minibatches,
            "step": self.learner.steps,
            "seen": self.learner.seen,
            **{key: value for key, value in asdict(result).items() if key != "spectrum"},
        }
        position.evaluations.append(facts)
        self.events.write("evaluation", **facts, seconds=self._seconds())
        if result.spectrum:
            self.events.write("spectrum", position=position.minibatches, values=result.spectrum)
        held = holdings(self.learner.memory, self.benchmark, len(self.stream) * self.settings.schedule.stream_batch)
        self.events.write("memory", position=position.minibatches, seen=self.learner.seen, **held)
        self.progress.evaluated(experience, result)
        if self.settings.checkpoint.snapshots:
            write_snapshot(self.folder, self.learner, position.minibatches)

    def _seconds(self) -> float:
        return self.position.seconds + time.perf_counter() - self.started

    def _save(self) -> None:
        position = self.position
        folder = self.folder / CHECKPOINTS / f"{position.minibatches:08d}"
        position.seconds, self.started = self._seconds(), time.perf_counter()
        position.events, position.phases = self.events.sync(), dict(self.clock.seconds)
        with self.clock.during("save"):
            self.learner.save(folder, {"position": asdict(position)})
            found = sorted(whole_checkpoints(self.folder), reverse=True) if self.ranks.first else []
            for old in found[self.settings.checkpoint.keep :]:
                shutil.rmtree(old)
        if self.ranks.first:
            write_timing(self.folder, self.clock.seconds)

    def _restore(self, device: str) -> tuple[Learner, Position]:
        """The newest checkpoint that is whole, or the beginning; damaged ones are named and passed over."""
        settings = self.settings
        require_known(settings)  # a part that has no name here is no damage
        found = sorted(whole_checkpoints(self.folder), reverse=True)
        damaged = []
        for folder in found:
            try:
                tensors, facts = checkpoint.read(folder)
                learner, position = (
                    Learner.restore(tensors, facts, device=device, ranks=self.ranks),
                    Position(**facts["extra"]["position"]),
                )
            except (CheckpointError, KeyError, TypeError) as error:
                self.progress.warn(f"{folder} is passed over: {error}")
                damaged.append(folder)
                continue
            self._require_same(learner, position)
            for other in damaged:  # out of the way, or it would count as one of the last good ones
                shutil.rmtree(other, ignore_errors=not self.ranks.first)
            return learner, position
        if found:
            raise CheckpointError(f"no checkpoint of {self.folder} can be read; start again in another folder.")
        learner = Learner(
            settings.method,
            image_size=settings.stream.image_size,
            seed=settings.seed,
            settings=settings.learner(),
            device=device,
            ranks=self.ranks,
        )
        start_from(learner, settings.init)
        return learner, Position(data=self.benchmark.fingerprint)

    def _require_same(self, learner: Learner, position: Position) -> None:
        wanted = (self.settings.learner(), self.settings.seed, self.settings.stream.image_size)
        if (learner.settings, learner.seed, learner.image_size) != wanted:
            raise RunFolderError(
                f"{self.folder / SETTINGS} is not what this run was started with; put it back or start another run."
            )
        if position.data not in ("", self.benchmark.fingerprint):
            raise RunFolderError(
                f"the images of {self.benchmark.name} are not those that the run {self.folder} was started with; "
                "name where those lie with --data."
            )
