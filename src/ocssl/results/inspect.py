"""A look back at a run: probes and latent metrics at its checkpoints, each in a process of its own.

Nothing here writes to the run folder. Every process has one thread, so that the numbers do not depend on how many
there are.
"""

from __future__ import annotations

import os
import signal
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocssl._core.plugins import load_parts
from ocssl._training.assembly import require_known, usable_device
from ocssl.data import Benchmark, ExperienceStream, Part, load_benchmark
from ocssl.errors import RunFolderError, SettingError
from ocssl.evaluate.diagnosis import diagnose, shape, some
from ocssl.evaluate.evaluation import probe, probe_tasks
from ocssl.evaluate.features import encode_benchmark
from ocssl.evaluate.latent import overlap_count_from
from ocssl.evaluate.linear import Compat
from ocssl.evaluate.per_task import summarise
from ocssl.launch.pool import usable_cores
from ocssl.runs.config import RunSettings, read_settings
from ocssl.runs.folder import SETTINGS
from ocssl.runs.progress import Bars
from ocssl.runs.run import make_stream
from ocssl.runs.snapshots import Look, chosen, look
from ocssl.runs.stop import Stop

POLL = 0.2  # seconds between two looks at whether to stop
NEVER = Stop()  # nobody asks


@dataclass(frozen=True)
class _Subject:
    """A run whose checkpoints are looked at."""

    settings: RunSettings
    benchmark: Benchmark
    stream: ExperienceStream
    device: str

    def moment(self, position: int) -> dict[str, Any]:
        """Where in the stream a checkpoint stands."""
        ends = self.stream.ends()
        experience = min(bisect_left(ends, position) + 1, len(ends)) if position else 0
        task = self.stream.tasks()[experience - 1] if experience and self.benchmark.tasks else None
        return {"position": position, "experience": experience, "at_end": position in ends, "task": task}


_subject: _Subject  # of this process


def evaluate_run(
    folder: Path,
    checkpoint: str,
    probes: Sequence[str] | None,
    per_task: bool,
    compat: Compat,
    *,
    data: Path | None,
    workers: int,
    bars: Bars,
    device: str = "cpu",
    parts: Path | None = None,
    stop: Stop = NEVER,
) -> dict[str, Any]:
    """Accuracies of the probes at the chosen checkpoints, and what is read from them."""
    settings = read_settings(folder / SETTINGS)
    names = list(dict.fromkeys(probes or [settings.evaluate.probe]))
    jobs = [(path, names, per_task, compat) for path in chosen(folder, checkpoint).values()]
    rows, stream = _each(settings, data, _evaluate_one, jobs, "evaluating", workers, bars, device, parts, stop)
    summary = {name: _summary(rows, name, stream.tasks()) for name in names}
    return {**_about(folder, settings), "probe_compat": compat, "checkpoints": rows, "summary": summary}


def diagnose_run(
    folder: Path,
    checkpoint: str,
    on: Sequence[str],
    samples: int,
    views: int,
    times: bool,
    *,
    data: Path | None,
    workers: int,
    bars: Bars,
    device: str = "cpu",
    parts: Path | None = None,
    stop: Stop = NEVER,
) -> dict[str, Any]:
    """Latent metrics at the chosen checkpoints."""
    if samples < 0 or views < 2:
        raise SettingError(f"--samples is {samples} and --views {views}: wanted at least 0 and at least 2.")
    settings = read_settings(folder / SETTINGS)
    jobs = [(path, list(dict.fromkeys(on)), samples, views, times) for path in chosen(folder, checkpoint).values()]
    rows, _ = _each(settings, data, _diagnose_one, jobs, "diagnosing", workers, bars, device, parts, stop)
    return {**_about(folder, settings), "checkpoints": rows}


def _about(folder: Path, settings: RunSettings) -> dict[str, Any]:
    return {
        "run": str(folder),
        "method": settings.method,
        "benchmark": settings.benchmark,
        "seed": settings.seed,
    }


def _each(
    settings: RunSettings,
    data: Path | None,
    work: Callable[..., dict[str, Any]],
    jobs: Sequence[tuple[Any, ...]],
    what: str,
    workers: int,
    bars: Bars,
    device: str,
    parts: Path | None,
    stop: Stop,
) -> tuple[list[dict[str, Any]], ExperienceStream]:
    """Do the jobs in processes of their own, in order; the benchmark is loaded first, so that its cache is there."""
    load_parts(parts)
    require_known(settings)
    usable_device(device)
    with bars:
        benchmark = load_benchmark(settings.benchmark, settings.stream, settings.reading(data), bars.report)
        stream = make_stream(benchmark, settings)
        places = _places(device, workers, len(jobs))
        rows = []
        spawn = get_context("spawn")
        tie, held = spawn.Pipe(duplex=False)
        devices = spawn.SimpleQueue()  # one for each process
        for place in places:
            devices.put(place)
        with ProcessPoolExecutor(len(places), spawn, _begin, (settings, data, parts, devices, tie)) as pool, held:
            futures = [pool.submit(work, *job) for job in jobs]
            for done, future in enumerate(futures, 1):
                while not wait([future], POLL).done:
                    stop.check()
                try:
                    rows.append(future.result())
                except (BrokenProcessPool, torch.OutOfMemoryError):
                    raise RunFolderError(
                        f"a process was killed while {what}, perhaps for lack of memory; fewer --workers need less."
                    ) from None
                bars.report(what, done, len(jobs))
    return rows, stream


def _places(device: str, workers: int, jobs: int) -> list[str]:
    """The devices of so many processes, or as many as there are cores or GPUs: GPUs are dealt out in turn."""
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    count = min(workers or gpus or len(usable_cores()), jobs)
    return [f"cuda:{number % gpus}" if gpus else device for number in range(count)]


def _begin(
    settings: RunSettings, data: Path | None, parts: Path | None, devices: SimpleQueue[str], tie: Connection
) -> None:
    """Load the benchmark once in each process, which ends when its parent lets go of the tie, or is killed."""
    global _subject
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    threading.Thread(target=_end_with, args=(tie,), daemon=True).start()
    torch.set_num_threads(1)
    load_parts(parts)
    benchmark = load_benchmark(settings.benchmark, settings.stream, settings.reading(data))
    _subject = _Subject(settings, benchmark, make_stream(benchmark, settings), devices.get())


def _end_with(tie: Connection) -> None:
    with suppress(EOFError, OSError):
        tie.recv_bytes()
    os._exit(1)


def _evaluate_one(path: Path, names: Sequence[str], per_task: bool, compat: Compat) -> dict[str, Any]:
    seen, benchmark = look(path, _subject.device), _subject.benchmark
    if not benchmark.labelled:
        raise SettingError(f"{benchmark.name} has no labels, so that there is nothing to probe: try ocssl diagnose.")
    if per_task and not benchmark.tasks:
        raise SettingError(f"stream.order is {_subject.settings.stream.order}: there are no tasks to probe one by one.")
    features = encode_benchmark(seen.learner, benchmark)
    row: dict[str, Any] = {**_subject.moment(seen.position), "steps": seen.learner.steps, "seen": seen.learner.seen}
    for name in names:
        seed = _subject.settings.seed
        result = probe(features, name, compat, seed)
        row[name] = {"accuracy": result.accuracy, "scored": result.scored, "val_accuracy": result.val_accuracy}
        if per_task:
            results = probe_tasks(features, name, compat, seed, range(len(benchmark.tasks)))
            row[name]["tasks"] = [task.accuracy for task in results]
    return row


def _diagnose_one(path: Path, on: Sequence[str], samples: int, views: int, times: bool) -> dict[str, Any]:
    seen, benchmark, seed = look(path, _subject.device), _subject.benchmark, _subject.settings.seed
    row: dict[str, Any] = {**_subject.moment(seen.position), "online": _online(seen)}
    for name in on:
        part = {"stream": benchmark.train, "test": benchmark.test, "memory": _memory(seen, benchmark)}[name]
        row[name] = asdict(diagnose(seen.learner, part, samples, views, seed)) if len(part) else None
    if times:
        row["times"] = _times(seen, row["task"], samples)
    return row


def _online(seen: Look) -> dict[str, Any]:
    """What the memory's stored statistics alone say."""
    filled = len(seen.memory["id"])
    overlap = None
    if "feature" in seen.memory and filled > 1:
        overlap = overlap_count_from(seen.memory["feature"], seen.memory["angle"])
    return {"stored": filled, "overlap": overlap, "loss": float(seen.memory["loss"].mean()) if filled else None}


def _memory(seen: Look, benchmark: Benchmark) -> Part:
    """The images that were in the memory, from the benchmark."""
    return benchmark.train.subset(torch.isin(benchmark.train.ids, seen.memory["id"]).nonzero()[:, 0])


def _times(seen: Look, current: int | None, samples: int) -> dict[str, Any]:
    """The shape of features of past, current and future tasks' test images."""
    benchmark, stream = _subject.benchmark, _subject.stream
    if not benchmark.tasks:
        raise SettingError(f"stream.order is {_subject.settings.stream.order}: no task is past or future.")
    passed = bisect_left(stream.ends(), seen.position)
    before = torch.tensor(sorted({*stream.tasks()[:passed]} - {current}), dtype=torch.int64)
    tasks = benchmark.test.tasks
    past, now = torch.isin(tasks, before), tasks == (-1 if current is None else current)
    wanted = {"past": past, "current": now, "future": ~(past | now)}
    found = {}
    for name, mask in wanted.items():
        part = some(benchmark.test.subset(mask.nonzero()[:, 0]), samples, _subject.settings.seed)
        found[name] = asdict(shape(seen.learner, part)) if len(part) else None
    return found


def _summary(rows: Sequence[dict[str, Any]], name: str, tasks_seen: Sequence[int]) -> dict[str, Any]:
    """Final and Average over the ends of experiences, and what the tasks' own probes say; unmeasured ends are NaN."""
    after = [row for row in rows if row["at_end"]]
    start = next((row for row in rows if row["position"] == 0), None)
    accuracies = [row[name]["accuracy"] for row in after]
    found: dict[str, Any] = {
        "start": start[name]["accuracy"] if start else None,
        "final": accuracies[-1] if accuracies else None,
        "average": float(np.mean(accuracies)) if accuracies else None,
    }
    if after and all("tasks" in row[name] for row in after):
        matrix = np.full((len(tasks_seen), len(after[0][name]["tasks"])), np.nan)
        for row in after:
            matrix[row["experience"] - 1] = row[name]["tasks"]
        baseline = start[name]["tasks"] if start else None
        found["tasks"] = {"matrix": matrix.tolist(), **asdict(summarise(matrix, tasks_seen, baseline))}
    return found
