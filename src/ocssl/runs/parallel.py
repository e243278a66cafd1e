"""Several runs side by side, a process each: on few cores that is faster than threads inside one small network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ocssl.errors import OcsslError
from ocssl.runs.folder import EVENTS
from ocssl.runs.progress import Bars
from ocssl.runs.stop import Stop

POLL = 0.2  # seconds between two looks at the diaries


def run_side_by_side(folders: dict[str, Path], bars: Bars, stop: Stop) -> bool:
    """Start or continue the runs of named folders, one thread each; False if they were asked to stop before the end."""
    diaries = {name: _Diary(folder / EVENTS) for name, folder in folders.items()}
    running = {name: _start(folder) for name, folder in folders.items()}
    processes = list(running.values())
    asked = False
    try:
        while running:
            if stop and not asked:
                _terminate(processes)
                asked = True
            time.sleep(POLL)
            ended = {name: process for name, process in running.items() if process.poll() is not None}
            for name in running:
                for event in diaries[name].new():
                    _show(name, event, bars)
            for name, process in ended.items():
                del running[name]
                _, errors = process.communicate()
                if process.returncode and not stop:
                    raise OcsslError(f"the run {folders[name]} failed: {errors.strip() or process.returncode}")
    finally:
        if not asked:
            _terminate(processes)
        for process in processes:
            process.wait()
    return not stop


def _start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ocssl", "resume", str(folder), "--quiet"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=one_thread, start_new_session=True, **pipes)


def _terminate(processes: list[subprocess.Popen[str]]) -> None:
    """Ask the processes that still run to finish their step and save; asked twice they would not."""
    for process in processes:
        if process.poll() is None:
            process.terminate()


class _Diary:
    """Tells each event of a growing diary once, also when a resumed run cuts its end off and writes it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0
        self.told: set[tuple[str, int | None]] = set()

    def new(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self.read:
                self.read = 0
            file.seek(self.read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read += len(line)
                try:
                    event = json.loads(line)
                except ValueError:  # cut off and grown past our place since the last look
                    self.read = 0
                    return
                key = (event["event"], event.get("position"))
                if key not in self.told:
                    self.told.add(key)
                    yield event


def _show(name: str, event: dict[str, Any], bars: Bars) -> None:
    kind = event["event"]
    if kind == "start":
        bars.start(name, event["minibatches"])
    elif kind == "step":
        bars.step(name, event["position"], event["steps"], event["loss"], event["spread"], event["rank"])
    elif kind == "evaluation":
        bars.evaluated(name, event["experience"], event["accuracy"], event["deviation"], event["overlap"])
    elif kind == "collapse":
        bars.warn(f"{name}: {event['message']}")
