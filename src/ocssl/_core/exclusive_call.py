"""A learner's calls run one at a time, with PyTorch's modes set for them, whatever the caller has set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

from ocssl._core.host_memory import memory_checked

Given = ParamSpec("Given")
Result = TypeVar("Result")


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


@contextmanager
def own_torch_state() -> Iterator[None]:
    """Gradients on, no inference mode, no autocast, float32, tensors on the CPU unless a device is named.

    What the caller has set is there again afterwards. The default dtype is one for all threads of a process.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_dtype() != torch.float32:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(memory_checked())
        yield


def exclusive(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """A method of an object with a `lock`: one thread at a time runs it, with PyTorch's modes as they should be."""

    @wraps(method)
    def guarded(*args: Given.args, **options: Given.kwargs) -> Result:
        learner: Any = args[0]
        with learner.lock, own_torch_state():
            return method(*args, **options)

    return guarded
