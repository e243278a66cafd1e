"""A run in another process, from both sides: the parent reads its events, and it ends when the parent does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ocssl._files.untrusted import open_file
from ocssl.runs.folder import EVENTS
from ocssl.runs.progress import WARNING
from ocssl.runs.stop import Stop

TIED = "OCSSL_TIED"  # in the environment of a worker: its standard input ends when its parent does
PREFIX = "ocssl: "  # of our error messages; those of libraries may follow
GRACE = 10.0  # seconds that an orphan has to save before it ends without
MOST_OUTPUT = 2**16  # bytes of a worker's output that are read
VISIBLE = "CUDA_VISIBLE_DEVICES"  # in the environment of a process: the GPUs that it sees
RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # they would make a worker one of this process's ranks
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Worker:
    """`ocssl resume FOLDER` as a process with some threads, bound to its cores where the system allows."""

    def __init__(
        self,
        folder: Path,
        threads: int,
        cores: Sequence[int] = (),
        options: Sequence[str] = (),
        gpu: str | None = None,
    ) -> None:
        self.events, self.cores, self.gpu = EventReader(folder / EVENTS), cores, gpu
        self._stdout, self._stderr = map(tempfile.TemporaryFile, ["w+b"] * 2)  # pipes that nobody empties would fill
        environment = {key: value for key, value in os.environ.items() if key not in RANK}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ocssl", "resume", str(folder), "--quiet", *options],
            env=environment | dict.fromkeys(THREADS, str(threads)) | {TIED: "1"} | ({VISIBLE: gpu} if gpu else {}),
            stdin=subprocess.PIPE,
            stdout=self._stdout,
            stderr=self._stderr,
            start_new_session=True,  # Ctrl-C is for the parent, which asks its workers once
        )
        if cores and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # not allowed here, or ended already
                os.sched_setaffinity(self.process.pid, cores)
        with suppress(OSError):  # Linux weighs sessions, not processes: `nice ocssl sweep` must reach the new session
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(os.nice(0)))

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        """Ask it to finish its minibatch and save; asked twice it does not save."""
        if self.running:
            self.process.terminate()

    def end(self) -> None:
        """Ask it to stop, and kill it if it takes too long."""
        self.ask_to_stop()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
        self._stdout.close()
        self._stderr.close()

    def warnings(self) -> list[str]:
        return [line.removeprefix(WARNING) for line in _last_lines(self._stdout) if line.startswith(WARNING)]

    def failure(self, asked: bool) -> str | None:
        """Why it ended, in a sentence; None if it was done or asked to stop."""
        code = self.process.returncode
        if code == 0 or (asked and code in (-signal.SIGTERM, 128 + signal.SIGTERM, 128 + signal.SIGINT)):
            return None
        if code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
            return "another program stopped it, and it has saved; the same command continues it."
        if code < 0:
            name = next((known.name for known in signal.Signals if known == -code), "unknown")
            return f"it was killed by signal {-code} ({name}); the same command continues it."
        lines = _last_lines(self._stderr)
        own = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)] or lines
        return own[-1] if own else f"it ended with exit code {code} and no message."


def _last_lines(file: IO[bytes]) -> list[str]:
    file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_OUTPUT))
    return file.read().decode(errors="replace").strip().splitlines()


def end_with_parent(stop: Stop) -> None:
    """In a worker: stop when the parent is gone, and exit if that takes long.

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


class EventReader:
    """Yields each event of a growing file once, also if a resumed run cuts its end off and writes it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0  # bytes
        self.seen: set[tuple[str, int | None]] = set()

    def new(self) -> Iterator[dict[str, Any]]:
        try:
            file = open_file(self.path)
        except OSError:  # not there yet; any other error comes from the worker
            return
        with file:
            if file.seek(0, os.SEEK_END) < self.read:
                self.read = 0
            file.seek(self.read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read += len(line)
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):  # cut off and grown beyond what was read
                    self.read = 0
                    return
                if not isinstance(event, dict) or "event" not in event:
                    continue
                key = (event["event"], event.get("position"))
                if key not in self.seen:
                    self.seen.add(key)
                    yield event
