"""Take from a generator ahead of time, in a thread, so that reading goes on while the encoder computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
END: Any = object()  # what the generator gives after its last item


@contextmanager
def ahead(items: Generator[T], room: int) -> Iterator[Iterator[T]]:
    """The items in order, at most `room` of them waiting. The generator is closed at the end of the block."""
    pool = ThreadPoolExecutor(1, "reading ahead")

    def taken() -> Iterator[T]:
        waiting = deque(pool.submit(next, items, END) for _ in range(room))
        while (item := waiting.popleft().result()) is not END:
            waiting.append(pool.submit(next, items, END))
            yield item

    with closing(items):
        try:
            yield taken()
        finally:
            pool.shutdown(cancel_futures=True)
