"""A learner's calls run one at a time, with PyTorch's modes set for them, whatever the caller has set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

from ocssl._core.host_memory import memory_checked

Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Lock:
    """A re-entrant lock; a copy of what holds it, or a pickle, gets a new one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


class _DefaultDtype:
    """PyTorch's default dtype, float32 as long as any thread is inside.

    It is one for all threads of a process. So the first one in sets it, and the last one out puts back what was there:
    meanwhile the threads of the caller have float32 too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: torch.dtype | None = None  # what the caller has set, if it is another

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            found = torch.get_default_dtype()
            if found != torch.float32:
                self._before = found
                torch.set_default_dtype(torch.float32)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._before is not None:
                torch.set_default_dtype(self._before)
                self._before = None


_float32 = _DefaultDtype()


@contextmanager
def own_torch_state() -> Iterator[None]:
    """Gradients on, no inference mode, no autocast, float32, tensors on the CPU unless a device is named.

    What the caller has set is there again afterwards.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(_float32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(memory_checked())
        yield


def each_in_own_torch_state(items: Generator[Item]) -> Iterator[Item]:
    """What a generator yields, each item made in PyTorch's own state; between them the caller's modes hold."""
    with closing(items):
        while True:
            with own_torch_state():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


def exclusive(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """A method of an object with a `lock`: one thread at a time runs it, with PyTorch's modes as they should be."""

    @wraps(method)
    def guarded(*args: Given.args, **options: Given.kwargs) -> Result:
        learner: Any = args[0]
        with learner.lock, own_torch_state():
            return method(*args, **options)

    return guarded
