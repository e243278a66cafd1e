"""Stopping on request: the step under way is finished, the state saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class Stopped(Exception):
    """Work ended early because a stop was asked for."""


@dataclass
class Stop:
    """Whether a signal has asked the run to stop, and which."""

    signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def check(self) -> None:
        """Raise `Stopped` if a stop was asked for: for work that has nothing to save."""
        if self:
            raise Stopped


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """SIGINT and SIGTERM ask for a stop; a second one stops at once (the last checkpoint stays good)."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
