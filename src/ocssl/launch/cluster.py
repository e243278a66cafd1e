"""The same runs on a Ray cluster: no shared disk, and a lost node's runs go on elsewhere from their last checkpoint.

A run is a task on one node. It works in a folder of the node's own and sends its diary and checkpoints back as they
come; the run folder here is at any time one that can be gone on with, by this command or by `ocssl resume`.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocssl import __version__
from ocssl.errors import OcsslError, SettingError
from ocssl.launch.pool import Board, finished_quietly
from ocssl.launch.remote import Message, attend
from ocssl.launch.transfer import Files, News, pack, receive
from ocssl.launch.worker import Diary
from ocssl.runs.config import read_settings
from ocssl.runs.folder import EVENTS, IN_USE, SETTINGS, only_one
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop

WAIT = 0.5  # seconds for the next message
RETRIES = 3  # times that a run is started again without having come further


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise SettingError("--ray needs a package that is missing: pip install 'ocssl[ray]'.") from None
    return ray


@contextmanager
def cluster(address: str, threads: int = 1, device: str = "cpu") -> Iterator[None]:
    """A connection to a Ray cluster: an address, `auto` for the one running here, `local` for one of our own."""
    if address.startswith("ray://"):
        raise SettingError(f"{address} is Ray's client, which cannot follow runs; say --ray auto on one of its nodes.")
    ray = _ray()
    own = {"include_dashboard": False} if address == "local" else {}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[0]
        raise SettingError(f"cannot reach the Ray cluster {address!r}: {reason.removesuffix('.')}.") from None
    finally:
        for number, handler in handlers.items():  # Ray puts its own there
            signal.signal(number, handler)
    try:
        if not _places(threads, device):
            gpu = " and the GPU" if device == "cuda" else ""
            raise SettingError(f"no node of the Ray cluster has the {threads} cores{gpu} that a run asks for.")
        yield
    finally:
        ray.shutdown()


def _places(threads: int, device: str) -> int:
    """How many runs find room on the nodes that are there."""
    there = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
    rooms = [(node.get("CPU", 0) // threads, node.get("GPU", 0)) for node in there]
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
    received: Callable[[str, str, News], None] | None = None,
) -> dict[str, str]:
    """As `run_all`, on the cluster that this process is connected to; `received` is told name, node and news."""
    driver = _Driver(folders, bars, threads, device, options, received)
    try:
        while driver.running or (driver.board.waiting and not stop):
            if stop:
                driver.ask_to_stop()
            else:
                driver.start_more(workers)
            driver.listen()
    finally:
        driver.close()
    return driver.board.failures


@dataclass
class _Task:
    """A run on some node, seen from here."""

    name: str
    folder: Path
    keep: int  # checkpoints
    lock: ExitStack  # on the run folder here
    diary: Diary


class _Driver:
    """Hands runs to nodes, and takes what they send."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        bars: Bars,
        threads: int,
        device: str,
        options: Sequence[str],
        received: Callable[[str, str, News], None] | None,
    ) -> None:
        self.ray, self.folders, self.bars, self.threads, self.device = _ray(), folders, bars, threads, device
        self.options, self.received = ["--device", device, *options], received
        self.board = Board(folders, bars)
        self.running: dict[Any, _Task] = {}  # by the stream of their messages
        self.losses: dict[str, int] = {}
        self.asked = False
        self.switch = self._make_switch()
        as_task = self.ray.remote(
            num_cpus=threads,
            num_gpus=int(device == "cuda"),  # Ray shows a task no other
            max_retries=0,
            num_returns="streaming",
            _generator_backpressure_num_objects=2,
        )
        self.task = as_task(_attend)

    def _make_switch(self) -> Any:
        """An actor on this node that tells tasks whether they are asked to stop."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        class Switch:  # in here it is sent as it is: its process need not import this package
            on = False

            def ask(self) -> None:
                self.on = True

            def asked(self) -> bool:
                return self.on

        here = NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=True)
        return self.ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Switch).remote()

    def ask_to_stop(self) -> None:
        if not self.asked:
            self.switch.ask.remote()
        self.asked = True

    def start_more(self, workers: int) -> None:
        """Hand out as many runs as there is room for: each with what is there of it."""
        most = workers or max(1, _places(self.threads, self.device))
        while len(self.running) < most and (name := self.board.take()):
            folder = self.folders[name]
            with ExitStack() as lock:
                try:
                    keep = read_settings(folder / SETTINGS).checkpoint.keep
                    lock.enter_context(only_one(folder))
                    parcel = pack(folder)
                except (OcsslError, OSError) as error:
                    if str(error).startswith(IN_USE):  # since we looked
                        self.board.back(name)
                    else:
                        self.board.end(name, str(error))
                    continue
                messages = self.task.remote(name, parcel, self.threads, self.options, __version__, self.switch)
                self.running[messages] = _Task(name, folder, keep, lock.pop_all(), Diary(folder / EVENTS))

    def listen(self) -> None:
        """Take the messages that are there, or wait a moment for one."""
        if not self.running:
            time.sleep(WAIT)  # every folder that waits is in use
            return
        ready, _ = self.ray.wait(list(self.running), num_returns=1, timeout=WAIT)
        for messages in ready:
            task = self.running[messages]
            try:
                ended = self._take(task, *self.ray.get(next(messages)))
            except (self.ray.exceptions.RayError, StopIteration) as error:  # first: it may be an OSError of the node's
                self._lose(task.name, error)
                ended = True
            except (OcsslError, OSError) as error:
                self.ray.cancel(messages, force=True)
                self.board.end(task.name, str(error))
                ended = True
            if ended:
                del self.running[messages]
                task.lock.close()

    def _take(self, task: _Task, node: str, message: Message) -> bool:
        news = message.news
        if news is not None:
            receive(news, task.folder, task.keep)
            if news.position is not None:
                self.losses.pop(task.name, None)
            for event in task.diary.new():
                self.board.show(task.name, event)
            if self.received:
                self.received(task.name, node, news)
        self.board.warn(task.name, message.warnings)
        if message.ended:
            unfinished = self.asked and not finished_quietly(task.folder)
            self.board.end(task.name, message.failure, stopped=unfinished)
        return message.ended

    def _lose(self, name: str, error: Exception) -> None:
        """A node is gone, or what ran there: once more, elsewhere, unless that never leads any further."""
        lines = str(error).strip().splitlines()
        said = lines[0].split(". ")[0].removesuffix(".") if lines else "its task ended without a word"
        reason = f"{type(error).__name__}: {said}"
        self.losses[name] = self.losses.get(name, 0) + 1
        if self.losses[name] > RETRIES:
            self.board.end(name, f"it was lost {self.losses[name]} times without coming further ({reason}).")
        else:
            self.bars.warn(f"{name} was lost and goes on elsewhere from its last checkpoint ({reason})")
            self.board.back(name)

    def close(self) -> None:
        for messages, task in self.running.items():
            with suppress(Exception):
                self.ray.cancel(messages, force=True)
            task.lock.close()
        with suppress(Exception):
            self.ray.kill(self.switch)


def _attend(
    name: str, parcel: Files, threads: int, options: Sequence[str], version: str, switch: Any
) -> Iterator[tuple[str, Message]]:
    """The task on a node: its name with one message after another, the last one says how it ended."""
    ray = _ray()
    node = ray.get_runtime_context().get_node_id()

    def asked() -> bool:
        try:
            return bool(ray.get(switch.asked.remote(), timeout=5))
        except Exception:  # nobody to ask: go on
            return False

    for message in attend(name, parcel, threads, options, version, asked):
        yield node, message
