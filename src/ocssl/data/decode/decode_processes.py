"""Rows of encoded images, decoded here or by worker processes: the same results in the same order.

Each worker has a socket to itself and is asked over it, piece by piece. So the death of one is seen at once, even in
the middle of an answer, and they end by themselves when this process is gone. They import no torch, and no main script.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import Connection, wait

import numpy as np

from ocssl.data.decode.decoder import BadImage, Fit, Images, decode
from ocssl.data.decode.files import Encoded, Rows
from ocssl.errors import DataError

# [n, 3, S, S], zeros where unusable; places of these, and why; the sha256 of each file, if wanted and readable, or ""
Decoded = tuple[Images, list[tuple[int, str]], list[str]]

PIECE = 2**20  # bytes of decoded images that are asked for at a time, or one image
AHEAD = 64 * 2**20  # bytes of decoded images that may wait for their turn
_IN_FLIGHT = 2  # pieces that a process has: one in work, one waiting
_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from ocssl.data.decode.decode_processes import serve
serve(int(sys.argv[1]))
"""


def rows_at_once(size: int) -> int:
    """How many images of a size make a piece."""
    return max(1, PIECE // (3 * size * size))


@dataclass(frozen=True)
class Fault:
    """An image that cannot be used, and why."""

    name: str
    reason: str

    @property
    def kind(self) -> str:
        """The reason in a word or two, to count by."""
        if self.reason == "the file is empty":
            return "empty"
        if "too many pixels" in self.reason or "MiB" in self.reason:
            return "too large"
        if self.reason.startswith("it cannot be read"):
            return "unreadable"
        if self.reason.startswith("it is suspicious"):
            return "suspicious"
        if self.reason.startswith("its pixels"):
            return "floating-point" if "floating-point" in self.reason else "unknown range"
        return "damaged" if self.reason.startswith("it ") else self.reason

    def error(self) -> DataError:
        """For a run that stops at the first such image."""
        return DataError(
            f"cannot use the image {self.name}: {self.reason}; remove or replace it, or leave such images out with "
            "--set data.bad_images=skip."
        )


def by_reason(faults: Iterable[Fault]) -> str:
    """Faults counted by kind, in words.

    >>> by_reason([Fault("a", "it is truncated"), Fault("b", ".txt"), Fault("c", "it is truncated")])
    '2 damaged, 1 .txt'
    """
    counts = Counter(fault.kind for fault in faults)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _read_rows(files: Encoded, rows: Rows, size: int, fit: Fit, hashing: bool) -> Decoded:
    images = np.zeros((len(rows), 3, size, size), np.uint8)
    faults, digests = [], [""] * len(rows)
    for place, row in enumerate(rows.tolist()):
        try:
            data = files.read(row)
            if hashing:
                digests[place] = hashlib.sha256(data).hexdigest()
            images[place] = decode(data, size, fit)
        except BadImage as error:
            faults.append((place, str(error)))
        except OSError as error:
            faults.append((place, f"it cannot be read ({error.strerror or type(error).__name__})"))
    return images, faults, digests


def decoded(
    files: Encoded, pieces: Iterable[Rows], size: int, fit: Fit, workers: int, hashing: bool = False
) -> Generator[Decoded]:
    """Each piece decoded, in order; with workers, pieces are taken from their source ahead of time, a bounded number.

    Without workers, and where there is only one piece, this process does it. `hashing`: with the checksum of every
    file, made of the same bytes as its image.
    """
    source = iter(pieces)
    room = AHEAD // (3 * size * size * rows_at_once(size))
    first = list(islice(source, min(_IN_FLIGHT * workers, room)))
    if len(first) < 2:
        for rows in chain(first, source):
            yield _read_rows(files, rows, size, fit, hashing)
        return
    team = _Team((files, size, fit, hashing), min(workers, len(first)))
    try:
        waiting = deque(team.ask(rows) for rows in first)
        while waiting:
            answer = team.answer(waiting.popleft())
            waiting.extend(team.ask(rows) for rows in islice(source, 1))
            yield answer
    finally:
        team.close()


@dataclass(eq=False)
class _Question:
    rows: Rows
    answer: Decoded | Exception | None = None


class _Worker:
    """A process and the questions that it has not answered yet."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            command = [sys.executable, "-c", _BOOT, str(handle), json.dumps(sys.path)]
            # In another process group: an interrupt from the terminal is for this process to handle.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[handle], process_group=0)
        self.connection = Connection(ours.detach())
        self.asked: deque[_Question] = deque()

    def send(self, question: _Question) -> None:
        self.connection.send_bytes(question.rows.astype(np.int64).tobytes())
        self.asked.append(question)

    def receive(self, size: int) -> None:
        """What it answers to the question that it was asked first."""
        said = self.connection.recv()
        if not isinstance(said, Exception):
            pixels = np.frombuffer(self.connection.recv_bytes(), np.uint8)
            said = pixels.reshape(-1, 3, size, size), *said
        self.asked.popleft().answer = said


class _Team:
    def __init__(self, task: tuple[Encoded, int, Fit, bool], count: int) -> None:
        self.size = task[1]
        self.workers: list[_Worker] = []
        try:
            packed = pickle.dumps(task)
            with _all_alive():
                self.workers.extend(_Worker() for _ in range(count))
                for worker in self.workers:
                    worker.connection.send_bytes(packed)
        except BaseException:
            self.close()
            raise

    def ask(self, rows: Rows) -> _Question:
        question = _Question(rows)
        idlest = min(self.workers, key=lambda worker: len(worker.asked))
        with _all_alive():
            idlest.send(question)
        return question

    def answer(self, question: _Question) -> Decoded:
        self._listen(0)  # to all that have an answer: each continues only when its answer is read
        while question.answer is None:
            self._listen(None)
        if isinstance(question.answer, Exception):
            raise question.answer
        return question.answer

    def _listen(self, seconds: float | None) -> None:
        busy = [worker for worker in self.workers if worker.asked]
        with _all_alive():
            ready = wait([worker.connection for worker in busy], seconds)
            for worker in (worker for worker in busy if worker.connection in ready):
                worker.receive(self.size)

    def close(self) -> None:
        for worker in self.workers:
            worker.connection.close()
            worker.process.kill()  # it has nothing to lose
        for worker in self.workers:
            worker.process.wait()


@contextmanager
def _all_alive() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise DataError(
            "a process that decodes images could not be started or ended unexpectedly, perhaps for want of memory: try "
            "fewer of them with --set data.workers=1."
        ) from None


def serve(handle: int) -> None:
    """What a worker does: answer with faults and pixels, or with an error, until the connection ends."""
    connection = Connection(handle)
    with suppress(EOFError, OSError), open(os.devnull, "wb") as nowhere:
        task, failure = connection.recv_bytes(), None
        try:
            files, size, fit, hashing = pickle.loads(task)  # from the process that started this one
        except Exception as error:  # its class cannot be imported
            failure = error
        os.dup2(nowhere.fileno(), 2)  # libtiff prints warnings
        while True:
            rows = np.frombuffer(connection.recv_bytes(), np.int64)
            try:
                if failure is not None:
                    raise failure
                images, faults, digests = _read_rows(files, rows, size, fit, hashing)
            except Exception as error:
                connection.send(_sendable(error))
            else:
                connection.send((faults, digests))
                connection.send_bytes(images.reshape(-1).data)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(repr(error))
    return error
