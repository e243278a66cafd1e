"""A run: a learner on a benchmark, evaluated on the way, recorded in a folder, and continued from it bit for bit."""

import json
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ocssl import __version__
from ocssl._core import checkpoint
from ocssl._core.host_memory import check_memory
from ocssl._distributed.ranks import ALONE, Ranks, other_ranks
from ocssl._files.atomic import remove_folder, replace_file
from ocssl._training.assembly import require_known
from ocssl._training.checkpoint_checks import check_state
from ocssl.data import Benchmark, ExperienceStream, load_benchmark
from ocssl.data.decode.decode_processes import Fault
from ocssl.errors import CheckpointError, NonFiniteLoss, RunFolderError, SettingError, printable
from ocssl.evaluate.evaluation import evaluate
from ocssl.learner import Learner
from ocssl.objectives.sample_statistics import Info, collapsed
from ocssl.runs.config import SHARES, RunSettings, read_settings
from ocssl.runs.events import Events, NoEvents, nan_to_none, read_events
from ocssl.runs.folder import (
    CHECKPOINTS,
    EVENTS,
    METRICS,
    SETTINGS,
    SKIPPED,
    clean,
    complete_checkpoints,
    finished,
    run_lock,
    summary,
)
from ocssl.runs.initial_weights import start_from
from ocssl.runs.profiler import PhaseClock, write_timing
from ocssl.runs.progress import Progress
from ocssl.runs.snapshots import memory_summary, thin_out, write_snapshot
from ocssl.runs.stop import Stop
from ocssl.runs.tracking import Follower

MOST_STEPS = 100_000  # minibatches of a run whose steps are all in the events; of a longer one every second, third ...


@dataclass
class Position:
    """How far a run has come; saved with every checkpoint."""

    minibatches: int = 0
    seconds: float = 0.0  # spent on training and evaluation, all sessions together
    events: int = 0  # bytes of the events file that belong to it
    warned: bool = False  # of collapse
    evaluations: list[dict[str, Any]] = field(default_factory=list)  # the events hold them, not the checkpoint
    data: str = ""  # fingerprint of the benchmark's images
    phases: dict[str, float] = field(default_factory=dict)  # seconds that each has taken


def read_position(facts: Mapping[str, Any], minibatches: int) -> Position:
    """The position in a checkpoint of a run with that many minibatches; a CheckpointError where it cannot be one."""
    extra = facts.get("extra")
    given = extra.get("position") if isinstance(extra, Mapping) else None
    if not isinstance(given, Mapping):
        raise CheckpointError("it was not saved by a run.")
    checks: dict[str, Callable[[Any], bool]] = {
        "minibatches": lambda value: type(value) is int and 0 <= value <= minibatches,
        "seconds": _is_time,
        "events": lambda value: type(value) is int and 0 <= value < 2**62,
        "warned": lambda value: isinstance(value, bool),
        "evaluations": lambda value: isinstance(value, list) and all(map(_is_evaluation, value)),
        "data": lambda value: isinstance(value, str),
        "phases": lambda value: isinstance(value, dict) and all(map(_is_time, value.values())),
    }
    for name, value in given.items():
        if name not in checks or not checks[name](value):
            raise CheckpointError(f"its {name} is {value!r:.40}, in a run of {minibatches} minibatches.")
    return Position(**given)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**62  # NaN is not


def _is_evaluation(value: Any) -> bool:
    """Whether a record of an evaluation has what the metrics of a run are made of."""
    if not isinstance(value, dict) or not isinstance(value.get("tasks"), list | None):
        return False
    numbers = [value.get("accuracy"), *(value.get("tasks") or [])]
    known = all(number is None or type(number) in (int, float) for number in numbers)
    return known and all(type(value.get(name)) is int for name in ("experience", "position"))


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

    A benchmark that is given is not loaded again; `data` says where its images are now. All ranks train; the first one
    evaluates and writes.
    """
    settings = read_settings(folder / SETTINGS)
    with run_lock(folder) if ranks.first else nullcontext():
        done = finished(folder)
        if done is not None:
            return done
        if settings.compute.ranks != ranks.size:
            raise RunFolderError(other_ranks(f"the run {folder}", settings.compute.ranks, ranks.size))
        sinks = [Follower(name, folder, settings, progress.warn) for name in track]
        events = Events(folder / EVENTS, sinks) if ranks.first else NoEvents()
        try:
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
            if ranks.first:
                clean(folder)
            with ranks.in_turn():
                benchmark = benchmark or load_benchmark(
                    settings.benchmark, settings.stream, settings.reading(data), progress.report
                )
            return _Session(folder, settings, benchmark, events, progress, stop, device, ranks).run()
        except OSError as error:
            check_memory(error)
            raise RunFolderError(f"cannot continue the run {folder}: {error}.") from None
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


def new_learner(settings: RunSettings, device: str, ranks: Ranks) -> Learner:
    """The learner of a run at its beginning."""
    size, seed, own = settings.stream.image_size, settings.seed, settings.learner()
    learner = Learner(
        settings.method, image_size=size, seed=seed, settings=own, device=device, ranks=ranks, fit=settings.stream.fit
    )
    start_from(learner, settings.init)
    return learner


def moments(stream: ExperienceStream, every: int, labelled: bool = True) -> list[int]:
    """How many minibatches have passed when the encoder is evaluated: at a spacing, or at the ends of experiences.

    A stream without labels is one experience as a rule: it is evaluated after equal shares, so that curves have points.
    """
    ends = stream.ends()
    if every:
        return sorted({*range(every, len(stream), every), len(stream)})
    return ends if labelled or len(ends) > 1 else equal_shares(len(stream))


def equal_shares(total: int) -> list[int]:
    """Where the equal shares of that many minibatches end.

    >>> equal_shares(80), equal_shares(3)
    ([10, 20, 30, 40, 50, 60, 70, 80], [1, 2, 3])
    """
    return sorted({math.ceil(total * share / SHARES) for share in range(1, SHARES + 1)})


@dataclass
class _Session:
    """One process's part of a run."""

    folder: Path
    settings: RunSettings
    benchmark: Benchmark
    events: Events
    progress: Progress
    stop: Stop
    device: str
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        folder, ranks = self.folder, self.ranks
        self.stream = make_stream(self.benchmark, self.settings)
        self.ends = self.stream.ends()
        self.stride = math.ceil(len(self.stream) / MOST_STEPS)
        with ranks.in_turn():  # damaged checkpoints are gone when the others look
            self.learner, self.position = self._restore(ranks.device(self.device))
        if ranks.total(self.position.minibatches) != ranks.size * self.position.minibatches:
            raise RunFolderError(f"ranks find different checkpoints in {folder}: all must use the same folder.")
        if not self.events.cut(self.position.events):
            self.progress.warn(f"{folder / EVENTS} is shorter than it was: what was recorded before is lost.")
        self.faults: dict[str, str] = {}
        self._read_events()
        self.known_faults = 0
        self.started = time.perf_counter()
        self.clock = PhaseClock(self.learner, self.position.phases)

    def _read_events(self) -> None:
        """What earlier sessions have recorded: bad images and evaluations."""
        evaluations: list[dict[str, Any]] = []
        faults: dict[int, Fault] = {}
        for event in read_events(self.folder / EVENTS):
            if event["event"] == "bad-image":
                fault = Fault(printable(str(event.get("name"))), printable(str(event.get("reason"))))
                self.faults[fault.name] = fault.reason
                if type(number := event.get("id")) is int and 0 <= number < 2**62:  # earlier versions wrote none
                    faults[number] = fault
            elif event["event"] == "evaluation":
                evaluations.append({key: value for key, value in event.items() if key not in ("event", "seconds")})
        if not all(map(_is_evaluation, evaluations)):
            raise RunFolderError(f"{self.folder / EVENTS} is damaged: it has an evaluation without its numbers.")
        self.position.evaluations = self.position.evaluations or evaluations  # older checkpoints hold them
        self.benchmark.restore_faults(faults)

    def _train(self) -> dict[str, Any] | None:
        position = self.position
        evaluations = moments(self.stream, self.settings.evaluate.every, self.benchmark.labelled)
        self.progress.start(self.settings.method, len(self.stream), position.minibatches, len(self.ends))
        if position.minibatches == 0:
            facts = {"minibatches": len(self.stream), "experiences": len(self.ends), "images": position.data}
            self.events.write("start", version=__version__, **facts)
            self._note_faults()
            steps, heads = self.settings.schedule.passes * len(self.stream), self.settings.optimizer.encoder_start
            if steps <= heads:
                self.progress.warn(
                    f"the encoder stays as it is: in the first {heads} steps (optimizer.encoder_start) only the heads "
                    f"learn, and this run has {steps}."
                )
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
                self._record(info, batch.task, position.minibatches % self.stride == 0)
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
            replace_file(self.folder / METRICS, json.dumps(metrics, indent=1).encode())
        self.ranks.barrier()
        return metrics

    def run(self) -> dict[str, Any] | None:
        """Train to the end or the next stop; a loss or weights that are not finite are recorded, then raised."""
        try:
            return self._train()
        except NonFiniteLoss as error:
            self.events.write("non-finite-loss", position=self.position.minibatches, ids=error.ids, message=str(error))
            last = max(complete_checkpoints(self.folder), default=None)
            kept = f"The last good checkpoint is {last}." if last else "No checkpoint was made yet."
            raise NonFiniteLoss(f"{error} {kept}", error.ids) from None

    def _note_faults(self) -> None:
        """Write images that cannot be used to the events, each once."""
        if self.benchmark.known_faults == self.known_faults:
            return
        self.known_faults = self.benchmark.known_faults
        known = self.benchmark.faults_by_id()
        new = {number: fault for number, fault in known.items() if fault.name not in self.faults}
        for number, fault in new.items():
            self.faults[fault.name] = fault.reason
            facts = {"id": number, "name": fault.name, "reason": fault.reason}
            self.events.write("bad-image", **facts, position=self.position.minibatches)
        if new:
            first = next(iter(new.values()))
            count = f"{len(new)} images that cannot be used, the first: " if len(new) > 1 else ""
            self.progress.warn(f"skipped {count}{first.name} ({first.reason}); all are listed in {EVENTS}.")

    def _record(self, info: Info, task: int, written: bool) -> None:
        memory = self.learner.memory
        rows = self.ranks.count(len(memory))
        stored = float(self.ranks.sum(rows.part(memory.store["loss"].mean()))) if rows.total else math.nan
        at = {"position": self.position.minibatches, "task": task}
        if written:
            self.events.write("step", **at, **asdict(info), stored=rows.total, stored_loss=stored)
        self.progress.step(self.position.minibatches, info)
        if collapsed(info.spread, info.participation_ratio) and not self.position.warned:
            self.position.warned = True
            message = (
                "the encoder is collapsing: all images get nearly the same features "
                f"(spread {info.spread:.3f}, participation ratio {info.participation_ratio:.1f}); "
                "try a lower optimizer.lr."
            )
            self.events.write("collapse", position=self.position.minibatches, message=message)
            self.progress.warn(message)

    def _evaluate(self, experience: int) -> None:
        self.learner.require_finite()
        with self.learner.gathered_memory():
            if self.ranks.first:
                self._measure(experience)

    def _measure(self, experience: int) -> None:
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
            **result.facts(),
        }
        position.evaluations.append(nan_to_none(facts))
        self.events.write("evaluation", **facts, seconds=self._seconds())
        if result.spectrum:
            self.events.write("spectrum", position=position.minibatches, values=result.spectrum)
        rows = self.settings.stream.epochs * sum(len(experience.rows) for experience in self.benchmark.experiences)
        planned = min(len(self.stream) * self.settings.schedule.stream_batch, rows)  # the last minibatch may be smaller
        stored = memory_summary(self.learner.memory, self.benchmark, planned, self.benchmark.known_faults)
        self.events.write("memory", position=position.minibatches, seen=self.learner.seen, **stored)
        self.progress.evaluated(facts)
        if self.settings.checkpoint.snapshots:
            write_snapshot(self.folder, self.learner, position.minibatches)
            evaluated = [e["position"] for e in position.evaluations]
            thin_out(self.folder, evaluated, self.settings.checkpoint.most_snapshots)

    def _seconds(self) -> float:
        return self.position.seconds + time.perf_counter() - self.started

    def _list_skipped(self) -> None:
        """Write down every file that is not used, and why."""
        skipped = self.benchmark.skipped()
        if skipped and self.ranks.first:
            lines = "".join(f"{fault.kind}\t{fault.name}\t{fault.reason}\n" for fault in skipped)
            replace_file(self.folder / SKIPPED, lines.encode())

    def _save(self) -> None:
        position = self.position
        folder = self.folder / CHECKPOINTS / f"{position.minibatches:08d}"
        self._list_skipped()
        position.seconds, self.started = self._seconds(), time.perf_counter()
        position.events, position.phases = self.events.sync(), dict(self.clock.seconds)
        with self.clock.during("save"):
            self.learner.save(folder, {"position": {**asdict(position), "evaluations": []}})
            found = sorted(complete_checkpoints(self.folder), reverse=True) if self.ranks.first else []
            for old in found[self.settings.checkpoint.keep :]:
                remove_folder(old)
        if self.ranks.first:
            write_timing(self.folder, self.clock.seconds)

    def _restore(self, device: str) -> tuple[Learner, Position]:
        """The newest good checkpoint, or the beginning; damaged ones are named and skipped."""
        require_known(self.settings)  # a missing part of the user's is no damage
        found = sorted(complete_checkpoints(self.folder), reverse=True)
        damaged = []
        for folder in found:
            try:
                tensors, facts = checkpoint.read(folder, check_state)
                learner = Learner.restore(tensors, facts, device=device, ranks=self.ranks)
                position = read_position(facts, len(self.stream))
            except CheckpointError as error:
                self.progress.warn(f"{folder} is skipped: {error}")
                damaged.append(folder)
                continue
            self._require_same(learner, position)
            for other in damaged if self.ranks.first else []:  # or it would count as one of the last good ones
                remove_folder(other)
            return learner, position
        if found:
            raise CheckpointError(f"no checkpoint of {self.folder} can be read; start again in another folder.")
        return new_learner(self.settings, device, self.ranks), Position(data=self.benchmark.fingerprint)

    def _require_same(self, learner: Learner, position: Position) -> None:
        wanted = (self.settings.learner(), self.settings.seed, self.settings.stream.image_size)
        if (learner.settings, learner.seed, learner.image_size) != wanted:
            raise RunFolderError(
                f"{self.folder / SETTINGS} is not what this run was started with; put it back or start another run."
            )
        if position.data not in ("", self.benchmark.fingerprint):
            raise RunFolderError(
                f"the images of {self.benchmark.name} are not those that the run {self.folder} was started with; "
                "name their folder with --data."
            )
