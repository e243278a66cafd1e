"""Run or continue a folder in a process of its own that kills itself, as `kill -9` would, at a chosen moment."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor

from ocssl._core import checkpoint
from ocssl._files.atomic import replace_file
from ocssl._training.optimizer import SGD, Optimizer
from ocssl.memory import Memory
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop

calls = 0


def main(folder: Path, moment: str, number: int) -> None:

    def die() -> None:
        global calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    if moment == "step":  # between the backward pass and the change of the weights
        take_step = SGD.step

        def step(self: Optimizer) -> None:
            die()
            take_step(self)

        SGD.step = step
    elif moment == "insert":  # weights changed, memory not yet
        take = Memory.insert

        def insert(self: Memory, *args: Any, **more: Any) -> Tensor:
            die()
            return take(self, *args, **more)

        Memory.insert = insert
    elif moment == "save":  # the tensors half on disk

        def half(path: Path, content: bytes) -> None:
            if path.suffix == ".safetensors":
                path.with_name(f".{path.name}.part").write_bytes(content[: len(content) // 2])
                die()
            replace_file(path, content)

        checkpoint.replace_file = half  # type: ignore[attr-defined]
    elif moment == "manifest":  # the tensors on disk, the manifest not yet

        def before(path: Path, content: bytes) -> None:
            if path.name == checkpoint.MANIFEST:
                die()
            replace_file(path, content)

        checkpoint.replace_file = before  # type: ignore[attr-defined]

    execute(folder, Progress(Bars(Console(), quiet=True)), Stop())


def killed(folder: Path, moment: str, number: int) -> None:
    """Start such a process and see it die: forked from a server that has imported all and never run anything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ocssl.runs.run"])
    process = context.Process(target=main, args=(folder, moment, number))
    process.start()
    process.join(timeout=120)
    assert process.exitcode == -signal.SIGKILL
