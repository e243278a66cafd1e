"""`ocssl evaluate` and `ocssl diagnose`: probes and latent metrics at the checkpoints of a run, in parallel processes.

Nothing here writes to the run folder. Every process has one thread, so that the numbers do not depend on the number of
processes.
"""

import json
import os
import signal
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl._core.random import generator_for
from ocssl._core.registry import load_parts
from ocssl._core.table import Row, Table, number_cell
from ocssl._files.atomic import write_out
from ocssl._training.assembly import require_known, usable_device
from ocssl.data import Benchmark, ExperienceStream, Subset, load_benchmark
from ocssl.errors import DataError, RunFolderError, SettingError
from ocssl.evaluate.evaluation import encode, encode_benchmark, measure_views, probe, probe_tasks
from ocssl.evaluate.latent_metrics import spectrum, uniformity
from ocssl.evaluate.linear_classifiers import Compat
from ocssl.evaluate.overlap_metric import overlap_count_from
from ocssl.evaluate.per_task import summarise
from ocssl.launch.process_pool import usable_cores
from ocssl.learner import Learner
from ocssl.runs.config import RunSettings, read_settings
from ocssl.runs.events import nan_to_none
from ocssl.runs.folder import SETTINGS
from ocssl.runs.progress import Bars
from ocssl.runs.run import make_stream
from ocssl.runs.snapshots import Snapshot, load_snapshot, select_states
from ocssl.runs.stop import Stop

POLL = 0.2  # seconds between two looks at whether to stop
TIMES = ("past", "current", "future")


@dataclass(frozen=True)
class Inspection:
    """Which checkpoints of which run are measured, and how."""

    folder: Path
    bars: Bars
    checkpoint: str = "all"
    data: Path | None = None  # where the images are, if they have been moved
    workers: int = 0  # processes; 0: as many as there are cores or GPUs
    device: str = "cpu"
    parts: Path | None = None
    stop: Stop = field(default_factory=Stop)


@dataclass(frozen=True)
class _Subject:
    """A run whose checkpoints are measured."""

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


def evaluate_run(wanted: Inspection, probes: Sequence[str] | None, per_task: bool, compat: Compat) -> dict[str, Any]:
    """Accuracies of the probes at the chosen checkpoints, and their summary."""
    settings = read_settings(wanted.folder / SETTINGS)
    names = list(dict.fromkeys(probes or [settings.evaluate.probe]))
    about, rows, stream = _each(wanted, settings, "evaluating", _evaluate_one, names, per_task, compat)
    summary = {name: _summary(rows, name, stream.tasks()) for name in names}
    return {**about, "probe_compat": compat, "checkpoints": rows, "summary": summary}


def diagnose_run(wanted: Inspection, on: Sequence[str], samples: int, views: int, times: bool) -> dict[str, Any]:
    """Latent metrics at the chosen checkpoints."""
    if samples < 0 or views < 2:
        raise SettingError(f"--samples is {samples} and --views {views}: wanted at least 0 and at least 2.")
    settings = read_settings(wanted.folder / SETTINGS)
    names = list(dict.fromkeys(on))
    about, rows, _ = _each(wanted, settings, "diagnosing", _diagnose_one, names, samples, views, times)
    return {**about, "checkpoints": rows}


def _each(
    wanted: Inspection, settings: RunSettings, what: str, measure: Callable[..., dict[str, Any]], *options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]], ExperienceStream]:
    """Measure each checkpoint in order; the benchmark is loaded first, so that its cache is there for all processes."""
    paths, bars, data, parts = select_states(wanted.folder, wanted.checkpoint), wanted.bars, wanted.data, wanted.parts
    load_parts(parts)
    require_known(settings)
    usable_device(wanted.device)
    with bars:
        benchmark = load_benchmark(settings.benchmark, settings.stream, settings.reading(data), bars.report)
        stream = make_stream(benchmark, settings)
        places = _places(wanted.device, wanted.workers, len(paths))
        rows = []
        spawn = get_context("spawn")
        tie, held = spawn.Pipe(duplex=False)
        devices = spawn.SimpleQueue()  # one for each process
        for place in places:
            devices.put(place)
        with ProcessPoolExecutor(len(places), spawn, _begin, (settings, data, parts, devices, tie)) as pool, held:
            futures = [pool.submit(measure, path, *options) for path in paths.values()]
            for done, future in enumerate(futures, 1):
                while not wait([future], POLL).done:
                    wanted.stop.check()
                try:
                    rows.append(future.result())
                except (BrokenProcessPool, torch.OutOfMemoryError):
                    raise RunFolderError(
                        f"a process was killed while {what}, perhaps for lack of memory; fewer --workers need less."
                    ) from None
                bars.report(what, done, len(paths))
    about = {"method": settings.method, "benchmark": settings.benchmark, "seed": settings.seed}
    return {"run": str(wanted.folder), **about}, rows, stream


def _places(device: str, workers: int, jobs: int) -> list[str]:
    """The device of each process; GPUs are used in turn."""
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    count = min(workers or gpus or len(usable_cores()), jobs)
    return [f"cuda:{number % gpus}" if gpus else device for number in range(count)]


def _begin(
    settings: RunSettings, data: Path | None, parts: Path | None, devices: SimpleQueue[str], tie: Connection
) -> None:
    """Load the benchmark once in each process, which ends when its parent closes the tie, or is killed."""
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
    seen, benchmark = load_snapshot(path, _subject.device), _subject.benchmark
    if not benchmark.labelled:
        raise SettingError(f"{benchmark.name} has no labels, so there is nothing to probe: try ocssl diagnose.")
    if per_task and not benchmark.tasks:
        raise SettingError(f"stream.order is {_subject.settings.stream.order}: there are no tasks to probe one by one.")
    features = encode_benchmark(seen.learner, benchmark)
    if not len(features.test):
        raise DataError(f"none of the test images of {benchmark.name} can be used, so there is nothing to probe.")
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
    seen, train, test = load_snapshot(path, _subject.device), _subject.benchmark.train, _subject.benchmark.test
    row: dict[str, Any] = {**_subject.moment(seen.position), "online": _online(seen)}
    stored = train.subset(torch.isin(train.ids, seen.memory["id"]).nonzero()[:, 0])
    for name in on:
        part = _subset({"stream": train, "test": test, "memory": stored}[name], samples)
        row[name] = _latent(seen.learner, part, views) if len(part) else None
    if times:
        masks = _task_masks(seen.position, row["task"])
        parts = {name: _subset(test.subset(mask.nonzero()[:, 0]), samples) for name, mask in masks.items()}
        row["times"] = {name: _shape(seen.learner, part) if len(part) else None for name, part in parts.items()}
    return row


def _online(seen: Snapshot) -> dict[str, Any]:
    """What the memory's stored statistics alone say."""
    filled = len(seen.memory["id"])
    overlap = None
    if "feature" in seen.memory and filled > 1:
        overlap = overlap_count_from(seen.memory["feature"], seen.memory["angle"])
    return {"stored": filled, "overlap": overlap, "loss": float(seen.memory["loss"].mean()) if filled else None}


def _subset(part: Subset, samples: int) -> Subset:
    """A number of images of a part, chosen by the seed, in the part's order; 0: all."""
    if not samples or samples >= len(part):
        return part
    chosen = torch.randperm(len(part), generator=generator_for(_subject.settings.seed, "diagnose"))[:samples]
    return part.subset(chosen.sort().values)


def _latent(learner: Learner, part: Subset, views: int) -> dict[str, Any]:
    """What random views and plain features say of the same images: all of the paper's signs of health."""
    seen = measure_views(learner, part, views, generator_for(_subject.settings.seed, "diagnose views"))
    found = {"deviation": seen.deviation, "overlap": seen.overlap, "alignment": seen.alignment}
    return {**found, "views": views, "shape": _shape(learner, part)}


def _shape(learner: Learner, part: Subset) -> dict[str, Any]:
    """Spectrum and uniformity of the features of plain images, encoder space."""
    features = encode(learner, part).x
    found = spectrum(features)
    return {
        "samples": len(features),
        "uniformity": uniformity(features) if len(features) > 1 else None,  # lower is more uniform, 0 one point
        "effective_rank": found.effective_rank,
        "auc": found.auc,  # near 1 when few directions carry everything
        "singular_values": found.values.tolist(),
        "normalised": found.normalised.tolist(),  # divided by the largest
        "cev": found.cev.tolist(),  # cumulative explained variance
    }


def _task_masks(position: int, current: int | None) -> dict[str, Tensor]:
    """Which test images are of past, current and future tasks."""
    benchmark, stream = _subject.benchmark, _subject.stream
    if not benchmark.tasks:
        raise SettingError(f"stream.order is {_subject.settings.stream.order}: no task is past or future.")
    passed = bisect_left(stream.ends(), position)
    before = torch.tensor(sorted({*stream.tasks()[:passed]} - {current}), dtype=torch.int64)
    tasks = benchmark.test.tasks
    past, now = torch.isin(tasks, before), tasks == (-1 if current is None else current)
    return dict(zip(TIMES, (past, now, ~(past | now)), strict=True))


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


def evaluation_table(found: dict[str, Any]) -> Table:
    """A row for each checkpoint, a column for each probe; per-task averages where there are some."""
    summaries = found["summary"]
    tasks = {name: summary["tasks"] for name, summary in summaries.items() if "tasks" in summary}
    rows = []
    for row in found["checkpoints"]:
        at = row["experience"] - 1 if row["at_end"] else None
        times = (None if at is None else summary[time][at] for summary in tasks.values() for time in TIMES)
        numbers = (*(row[name]["accuracy"] for name in summaries), *times)
        rows.append(Row([str(row["position"]), _moment(row), *map(number_cell, numbers)]))
    return Table(
        ["minibatch", "experience", *summaries, *(f"{name}: {time}" for name in tasks for time in TIMES)],
        rows,
        text=(),
        title=f"{found['method']} on {found['benchmark']}: accuracy, per cent",
        caption="\n".join(_line(name, summary) for name, summary in summaries.items()),
    )


def _line(name: str, summary: dict[str, Any]) -> str:
    words = [f"{key} {number_cell(summary[key])}" for key in ("start", "final", "average")]
    if "tasks" in summary:
        keys = ("forgetting", "backward_transfer", "forward_transfer")
        words += [f"{key.replace('_', ' ')} {number_cell(summary['tasks'][key])}" for key in keys]
    return f"{name}: {', '.join(words)}"


def diagnosis_table(found: dict[str, Any]) -> Table:
    """A row for each checkpoint and set of images."""
    rows = []
    for row in found["checkpoints"]:
        when = (str(row["position"]), _moment(row))
        for name in ("stream", "memory", "test"):
            if seen := row.get(name):
                shape = seen["shape"]
                numbers = (seen["deviation"], seen["overlap"], seen["alignment"], shape["uniformity"])
                cells = (number_cell(value, form=".3f") for value in numbers)
                last = (number_cell(shape["effective_rank"]), number_cell(shape["auc"], form=".3f"))
                rows.append(Row([*when, f"{shape['samples']} {name}", *cells, *last]))
        overlap = row["online"]["overlap"]
        if overlap is not None:
            rows.append(Row([*when, "stored", "", number_cell(overlap, form=".3f"), *[""] * 4]))
    return Table(
        ["minibatch", "exp.", "images", "Deviation", "Overlap", "align.", "unif.", "eff. rank", "AUC"],
        rows,
        text=(),
        title=f"{found['method']} on {found['benchmark']}: latent space",
        caption="exp.: experience. Overlap: share of pairs. align., unif.: alignment, uniformity. eff. rank: effective "
        "rank. AUC: of the cumulative explained variance. stored: from the memory's statistics alone.",
    )


def _moment(row: dict[str, Any]) -> str:
    return f"{row['experience']}" if row["at_end"] or not row["position"] else f"in {row['experience']}"


def write_json(found: dict[str, Any], path: Path) -> None:
    """Write all numbers to a file, all or nothing; what was not measured is null."""
    write_out(path, json.dumps(nan_to_none(found), indent=1).encode())
