"""A run in a process of its own, from both sides: the parent reads its diary, and it ends when the parent does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ocssl.runs.folder import EVENTS
from ocssl.runs.progress import WARNING
from ocssl.runs.stop import Stop

TIED = "OCSSL_TIED"  # in the environment of a worker: its standard input ends when its parent does
SPEAKER = "ocssl: "  # how our complaints begin; what others say may follow
GRACE = 10.0  # seconds that an orphan has to save before it ends without
MOST_WORDS = 2**16  # bytes of a worker's complaints and warnings that are read
VISIBLE = "CUDA_VISIBLE_DEVICES"  # in the environment of a process: the GPUs that it sees
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Worker:
    """`ocssl resume FOLDER` as a process with so many threads, on cores of its own where the system lets."""

    def __init__(
        self,
        folder: Path,
        threads: int,
        cores: Collection[int] = (),
        options: Sequence[str] = (),
        gpu: str | None = None,
    ) -> None:
        self.diary = Diary(folder / EVENTS)
        self._said, self._words = map(tempfile.TemporaryFile, ["w+b"] * 2)  # pipes that nobody empties would fill
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ocssl", "resume", str(folder), "--quiet", *options],
            env={**_alone(), **dict.fromkeys(THREADS, str(threads)), TIED: "1", **({VISIBLE: gpu} if gpu else {})},
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=self._words,
            start_new_session=True,  # Ctrl-C is for the parent, which asks its workers once
        )
        if cores and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # not allowed here, or ended already: it works without
                os.sched_setaffinity(self.process.pid, cores)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Ask it to finish its minibatch and save; asked twice it does not save."""
        if self.running:
            self.process.terminate()

    def end(self) -> None:
        """See it out of the way, whatever it does."""
        self.ask_to_stop()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self._said.close()
        self._words.close()

    def warnings(self) -> list[str]:
        """What it has warned of."""
        return [line.removeprefix(WARNING) for line in _last_lines(self._said) if line.startswith(WARNING)]

    def failure(self, asked: bool) -> str | None:
        """Why it ended, in a sentence, if not because it was done or asked to stop."""
        code = self.process.returncode
        if code == 0 or (asked and code in (-signal.SIGTERM, 128 + signal.SIGTERM, 128 + signal.SIGINT)):
            return None
        if code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
            return "it was stopped by somebody else, and has saved; the same command goes on."
        if code < 0:
            return f"it was killed by signal {-code} ({_signal_name(-code)}); the same command goes on."
        lines = _last_lines(self._words)
        own = [line.removeprefix(SPEAKER) for line in lines if line.startswith(SPEAKER)] or lines
        return own[-1] if own else f"it ended with exit code {code} and no word."


def _last_lines(file: IO[bytes]) -> list[str]:
    file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_WORDS))
    return file.read().decode(errors="replace").strip().splitlines()


def _alone() -> dict[str, str]:
    """This process's environment, without what would make a worker one of its ranks."""
    return {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def end_with_parent(stop: Stop) -> None:
    """In a worker: be asked to stop when the parent is gone, however it went, and end if that takes long.

    The parent holds the other end of the standard input; the system closes it when the parent ends.
    """
    if os.environ.pop(TIED, None) is None:
        return

    def watch() -> None:
        while os.read(0, 4096):
            pass
        if stop.signal is None:
            stop.signal = signal.SIGTERM
        time.sleep(GRACE)
        os._exit(128 + signal.SIGTERM)  # the last checkpoint stays good

    threading.Thread(target=watch, name="parent", daemon=True).start()


class Diary:
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
                except (ValueError, RecursionError):  # cut off and grown past our place since the last look
                    self.read = 0
                    return
                if not isinstance(event, dict) or "event" not in event:
                    continue
                key = (event["event"], event.get("position"))
                if key not in self.told:
                    self.told.add(key)
                    yield event
