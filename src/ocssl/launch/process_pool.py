"""Several runs side by side, each in a process: on few cores that is faster than threads inside one small network."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from ocssl.errors import OcsslError
from ocssl.launch.run_process import VISIBLE, Worker
from ocssl.launch.sweep import results
from ocssl.runs.folder import IN_USE, finished, run_lock
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop

POLL = 0.2  # seconds between two looks at the events


class RunQueue:
    """Runs that wait, what became of the others, and the progress bars: one for all, and one for each under way."""

    def __init__(self, folders: Mapping[str, Path], bars: Bars) -> None:
        self.folders, self.bars = folders, bars
        self.failures: dict[str, str] = {}
        self.waiting: list[str] = []
        self._postponed: set[str] = set()
        self._warned: set[tuple[str, str]] = set()
        self._shares: dict[str, float] = {}  # of the runs that are under way
        self._lengths: dict[str, int] = {}
        for name, folder in folders.items():
            try:
                if finished(folder) is None:
                    self.waiting.append(name)
            except OcsslError as error:
                self.failures[name] = str(error)
        self._done = len(folders) - len(self.waiting)
        if self.waiting:
            self._overall()

    def take(self) -> str | None:
        """The next run that can be started; one whose folder is in use waits until it is not."""
        for name in self.waiting:
            if not _in_use(self.folders[name]):
                self.waiting.remove(name)
                self._shares[name] = 0.0
                return name
            if name not in self._postponed:
                self._postponed.add(name)
                self.bars.say(f"{name} waits: another process is running in its folder")
        return None

    def back(self, name: str) -> None:
        """Put a run back that has to be started again."""
        self._shares.pop(name, None)
        self.waiting.insert(0, name)

    def show(self, name: str, events: Iterable[Mapping[str, Any]]) -> None:
        """Show the events of a run that is under way."""
        for event in events:
            kind, bars = event["event"], self.bars
            if kind == "start":
                self._lengths[name] = event["minibatches"]
                bars.start(name, event["minibatches"], experiences=event["experiences"])
            elif kind == "step":
                bars.step(name, event)
                if name in self._lengths and name in self._shares:
                    self._shares[name] = event["position"] / max(1, self._lengths[name])
                    self._overall()
            elif kind == "evaluation":
                bars.evaluated(name, event)
            elif kind == "collapse":
                self.warn(name, [event["message"]])

    def warn(self, name: str, messages: Iterable[str]) -> None:
        """Show the warnings of a run, each once."""
        for message in messages:
            if (name, message) not in self._warned:
                self._warned.add((name, message))
                self.bars.warn(f"{name}: {message}")

    def end(self, name: str, failure: str | None, stopping: bool = False) -> None:
        """A run has ended: with a reason if it failed, and perhaps before its end if it was asked to stop."""
        if failure is not None and failure.startswith(IN_USE):  # another process took the folder after `take`
            self.back(name)
            return
        self._shares.pop(name, None)
        self.bars.end(name)
        if failure is not None:
            self.failures[name] = failure
            self.bars.warn(f"{name} failed: {failure}")
        elif stopping and not results({name: self.folders[name]}):
            return
        self._done += 1
        self._overall()
        if failure is None:
            self.bars.say(f"{name} is finished ({self._done} of {len(self.folders)})")

    def _overall(self) -> None:
        done = min(self._done + sum(self._shares.values()), len(self.folders))
        if len(self.folders) > 1:
            self.bars.overall(done, len(self.folders))


def _in_use(folder: Path) -> bool:
    try:
        with run_lock(folder):
            return False
    except (OSError, OcsslError) as error:
        return str(error).startswith(IN_USE)  # any other error comes from its worker


def run_all(
    folders: Mapping[str, Path],
    bars: Bars,
    stop: Stop,
    *,
    workers: int = 0,
    threads: int = 1,
    device: str = "cpu",
    options: Sequence[str] = (),
    shared: bool = False,
) -> dict[str, str]:
    """Start or continue the runs of named folders, at most `workers` at a time, each with `threads` threads.

    0 workers: as many as the cores allow, or as there are GPUs, which are dealt out in turn. Returns the failures, a
    sentence each; a run that fails does not end the others. If `stop` is asked for, runs under way stop and save.
    Finished runs are skipped. `options` are further options of `ocssl resume`; `shared`: workers share cores on
    purpose, which is not worth a warning.
    """
    queue = RunQueue(folders, bars)
    if not queue.waiting:
        return queue.failures
    cores, gpus = usable_cores(), _gpus() if device == "cuda" else []
    at_once = min(workers or len(gpus) or max(1, len(cores) // threads), len(queue.waiting))
    if at_once * threads > len(cores) and not shared:
        bars.warn(f"{at_once} workers with {threads} threads each share {len(cores)} cores: they wait for one another.")
    free: list[tuple[Sequence[int], str | None]] = [  # the cores and GPU of each worker
        (own, gpus[i % len(gpus)] if gpus else None) for i, own in enumerate(deal(cores, at_once, threads))
    ]
    running: dict[str, Worker] = {}
    stopping = False
    try:
        while running or (queue.waiting and not stop):
            if stop and not stopping:
                stopping = True
                for worker in running.values():
                    worker.ask_to_stop()
            while not stopping and free and (name := queue.take()):
                own, gpu = free.pop(0)
                running[name] = Worker(folders[name], threads, own, ["--device", device, *options], gpu)
            time.sleep(POLL)
            ended = [name for name, worker in running.items() if not worker.running]
            for name, worker in running.items():
                queue.show(name, worker.events.new())
            for name in ended:
                worker = running.pop(name)
                free.append((worker.cores, worker.gpu))
                queue.warn(name, worker.warnings())
                queue.end(name, worker.failure(stopping), stopping)
                worker.end()
    finally:
        for worker in running.values():
            worker.ask_to_stop()
        for worker in running.values():
            worker.end()
    return queue.failures


@contextmanager
def runner(ray: str | None, threads: int, device: str = "cpu") -> Iterator[Callable[..., dict[str, str]]]:
    """`run_all` for this machine, or its counterpart for a Ray cluster; what cannot work is an error at once."""
    if ray is None:
        if device != "cpu":
            from ocssl._training.assembly import usable_device

            usable_device(device)
        yield partial(run_all, threads=threads, device=device)
        return
    from ocssl.launch.ray_cluster import cluster, run_on_cluster

    with cluster(ray, threads, device):
        yield partial(run_on_cluster, threads=threads, device=device)


def _gpus() -> list[str]:
    """The GPUs that this process may use, by the names under which its workers may be given them."""
    from torch.cuda import device_count

    visible = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return visible or [str(number) for number in range(device_count())]


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def deal(cores: Sequence[int], workers: int, threads: int) -> list[list[int]]:
    """A share of the cores for each worker: all are given out, none twice; too few cores are not given out.

    >>> deal([0, 1, 2, 3, 4], 2, 2)
    [[0, 1, 2], [3, 4]]
    >>> deal([0, 1], 3, 1)
    [[], [], []]
    """
    if workers * threads > len(cores):
        return [[] for _ in range(workers)]
    ends = [-(-len(cores) * number // workers) for number in range(workers + 1)]
    return [list(cores[start:end]) for start, end in pairwise(ends)]
