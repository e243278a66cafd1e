"""Runs on a Ray cluster without a shared disk: those of a lost node resume elsewhere from their last checkpoint.

A run is a task on one node. It works in a folder on the node and sends its events and checkpoints back as they come;
the run folder here can be resumed at any time, by this command or by `ocssl resume`.
"""

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocssl import __version__
from ocssl.errors import OcsslError, SettingError, install
from ocssl.launch.process_pool import RunQueue
from ocssl.launch.ray_worker import Files, Update, apply_update, pack, run_here
from ocssl.launch.run_process import EventReader
from ocssl.runs.config import read_settings
from ocssl.runs.folder import EVENTS, SETTINGS, run_lock
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop

WAIT = 0.5  # seconds for the next update
RETRIES = 3  # times that a run is started again without a new checkpoint
Received = Callable[[str, str, Update], None]  # is called with a run's name, its node and the update


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise SettingError(f"--ray needs a package that is missing: {install('ray')}") from None
    return ray


@contextmanager
def cluster(address: str, threads: int = 1, device: str = "cpu") -> Iterator[None]:
    """A connection to a Ray cluster: an address, `auto` for the one running here, `local` to start one here."""
    if address.startswith("ray://"):
        raise SettingError(f"{address} is Ray's client, which cannot follow runs; say --ray auto on one of its nodes.")
    ray = _ray()
    local = {"include_dashboard": False} if address == "local" else {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[0]
        raise SettingError(f"cannot reach the Ray cluster {address!r}: {reason.removesuffix('.')}.") from None
    finally:
        for number, handler in handlers.items():  # Ray installs others
            signal.signal(number, handler)
    try:
        if not _capacity(threads, device):
            gpu = " and the GPU" if device == "cuda" else ""
            raise SettingError(f"no node of the Ray cluster has the {threads} cores{gpu} that a run asks for.")
        yield
    finally:
        ray.shutdown()


def _capacity(threads: int, device: str) -> int:
    """How many runs the nodes have room for."""
    nodes = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
    rooms = [(node.get("CPU", 0) // threads, node.get("GPU", 0)) for node in nodes]
    return sum(int(min(cores, gpus) if device == "cuda" else cores) for cores, gpus in rooms)


def run_on_cluster(
    folders: Mapping[str, Path],
    bars: Bars,
    stop: Stop,
    *,
    workers: int = 0,
    threads: int = 1,
    device: str = "cpu",
    options: Sequence[str] = (),
    received: Received | None = None,
) -> dict[str, str]:
    """As `run_all`, on the cluster that this process is connected to."""
    driver = _Driver(RunQueue(folders, bars), threads, device, options, received)
    try:
        while driver.running or (driver.queue.waiting and not stop):
            if stop:
                driver.ask_to_stop()
            else:
                driver.start_waiting(workers)
            driver.listen()
    finally:
        driver.close()
    return driver.queue.failures


@dataclass
class _Task:
    """A run on some node, seen from here."""

    name: str
    keep: int  # checkpoints
    lock: ExitStack  # on the run folder here
    events: EventReader


class _Driver:
    """Gives runs to the nodes, and takes what they send."""

    def __init__(
        self, queue: RunQueue, threads: int, device: str, options: Sequence[str], received: Received | None
    ) -> None:
        self.ray, self.queue, self.threads, self.device = _ray(), queue, threads, device
        self.options, self.received = ["--device", device, *options], received
        self.running: dict[Any, _Task] = {}  # by the stream of their updates
        self.losses: Counter[str] = Counter()  # since the last checkpoint
        self.stopping = False
        self.stop_flag = self._make_stop_flag()
        as_task = self.ray.remote(
            num_cpus=threads,
            num_gpus=int(device == "cuda"),  # Ray shows a task no other
            max_retries=0,
            num_returns="streaming",
            _generator_backpressure_num_objects=2,
        )
        self.task = as_task(_run_task)

    def _make_stop_flag(self) -> Any:
        """An actor on this node that tasks ask whether they shall stop."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        class StopFlag:  # defined here Ray sends the class itself: its process need not import this package
            on = False

            def set(self) -> None:
                self.on = True

            def is_set(self) -> bool:
                return self.on

        here = NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=True)
        return self.ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(StopFlag).remote()

    def ask_to_stop(self) -> None:
        if not self.stopping:
            self.stop_flag.set.remote()
        self.stopping = True

    def start_waiting(self, workers: int) -> None:
        """Start as many runs as there is room for, each with what is there of it."""
        most = workers or max(1, _capacity(self.threads, self.device))
        while len(self.running) < most and (name := self.queue.take()):
            folder = self.queue.folders[name]
            with ExitStack() as lock:
                try:
                    keep = read_settings(folder / SETTINGS).checkpoint.keep
                    lock.enter_context(run_lock(folder))
                    files = pack(folder)
                except (OcsslError, OSError) as error:
                    self.queue.end(name, str(error))
                    continue
                updates = self.task.remote(name, files, self.threads, self.options, __version__, self.stop_flag)
                self.running[updates] = _Task(name, keep, lock.pop_all(), EventReader(folder / EVENTS))

    def listen(self) -> None:
        """Take the updates that are there, or wait a moment for one."""
        if not self.running:
            time.sleep(WAIT)  # every folder that waits is in use
            return
        ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=WAIT)
        for updates in ready:
            task, ended = self.running[updates], True
            try:
                ended = self._handle(task, *self.ray.get(next(updates)))
            except (self.ray.exceptions.RayError, StopIteration) as error:  # first: it may be an OSError of the node's
                self._lose(task.name, error)
            except (OcsslError, OSError) as error:
                self.ray.cancel(updates, force=True)
                self.queue.end(task.name, str(error))
            if ended:
                del self.running[updates]
                task.lock.close()

    def _handle(self, task: _Task, node: str, update: Update) -> bool:
        """Take an update of a task; whether it was the last."""
        apply_update(update, self.queue.folders[task.name], task.keep)
        if update.position is not None:
            del self.losses[task.name]
        self.queue.show(task.name, task.events.new())
        if self.received:
            self.received(task.name, node, update)
        self.queue.warn(task.name, update.warnings)
        if update.ended:
            self.queue.end(task.name, update.failure, self.stopping)
        return update.ended

    def _lose(self, name: str, error: Exception) -> None:
        """A node or its task is gone: start the run elsewhere, unless that has not helped several times."""
        lines = str(error).strip().splitlines()
        reason = lines[0].split(". ")[0].removesuffix(".") if lines else "its task ended without a message"
        reason = f"{type(error).__name__}: {reason}"
        self.losses[name] += 1
        if self.losses[name] > RETRIES:
            self.queue.end(name, f"it was lost {self.losses[name]} times without a new checkpoint ({reason}).")
        else:
            self.queue.bars.warn(f"{name} was lost and resumes elsewhere from its last checkpoint ({reason})")
            self.queue.back(name)

    def close(self) -> None:
        for updates, task in self.running.items():
            with suppress(Exception):
                self.ray.cancel(updates, force=True)
            task.lock.close()
        with suppress(Exception):
            self.ray.kill(self.stop_flag)


def _run_task(
    name: str, files: Files, threads: int, options: Sequence[str], version: str, stop_flag: Any
) -> Iterator[tuple[str, Update]]:
    """The task on a node: yields the node's id with one update after another, until the run has ended."""
    ray = _ray()
    node = ray.get_runtime_context().get_node_id()

    def stopping() -> bool:
        try:
            return bool(ray.get(stop_flag.is_set.remote(), timeout=5))
        except Exception:  # nobody to ask: continue
            return False

    for update in run_here(name, files, threads, options, version, stopping):
        yield node, update
