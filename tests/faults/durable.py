"""Runs a command in a process of its own that dies, as by `kill -9`, before its n-th durable call.

A durable call changes what is on a disk: it makes, writes, moves, links, cuts, removes or flushes a file or folder.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.symlink"}
SECONDS = 120
PRELOAD = ["ocssl.runs.run", "ocssl.cli.results", "ocssl.results.page", "ocssl.embed.embed"]
PRELOAD += ["torch.fx.experimental.symbolic_shapes"]  # torch imports it when a learner is built, which takes seconds


def work(words: Sequence[str], root: str, number: int, calls: str) -> None:
    """Run a command; die before durable call `number` in `root` (0: never), and append each call to a file."""
    count = 0
    log = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def durable(what: str, path: Any) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(log, f"{what} {path}\n".encode())

    def inside(path: Any) -> bool:
        if isinstance(path, int):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{path}")
        return isinstance(path, str | bytes | os.PathLike) and os.path.abspath(os.fsdecode(path)).startswith(root)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & WRITING
        if (writes or event in CHANGES) and inside(args[0]):
            durable(event, args[0])

    flush = os.fsync

    def fsync(handle: Any) -> None:
        if inside(handle):
            durable("fsync", handle)
        flush(handle)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hook)
    from ocssl.cli import main

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the process ends
    main(words)


def command(words: Sequence[str], root: Path, number: int = 0) -> tuple[int | None, list[str]]:
    """The exit code of a command that dies before its n-th durable call in a folder, and the calls before that."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    calls = root.parent / f"{root.name}.calls"
    calls.unlink(missing_ok=True)
    process = context.Process(target=work, args=(list(words), str(root.resolve()), number, str(calls)))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"hangs: ocssl {' '.join(words)}, before call {number}")
    return process.exitcode, calls.read_text().splitlines()
