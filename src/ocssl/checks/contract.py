"""What all contract checks share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

from ocssl._core.registry import Registry

T = TypeVar("T")


class ContractError(AssertionError):
    """A part breaks its contract."""


def require(holds: bool, complaint: str) -> None:
    if not holds:
        raise ContractError(complaint)


def maker(part: Any, registry: Registry[T], *wiring: Any) -> Callable[[], T]:
    if isinstance(part, str):
        registry[part]  # an unknown name is an error of its own
        return lambda: registry.build(part, None, *wiring)
    require(callable(part), f"give a name, a class or a function that makes the part, not {part!r}")
    return lambda: part(*wiring)


@contextmanager
def global_randomness_untouched(what: str) -> Iterator[None]:
    before = _global_states()
    yield
    require(
        before == _global_states(), f"{what} draws from global random state instead of the generator that it is given"
    )


def _global_states() -> list[str]:
    numpy_state = np.random.get_state()  # noqa: NPY002
    return [str(torch.get_rng_state().tolist()), str(random.getstate()), repr([str(part) for part in numpy_state])]
