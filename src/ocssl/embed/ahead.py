"""Take from a generator ahead of time, in a thread, so that reading goes on while the encoder computes."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def ahead(items: Generator[T], room: int) -> Iterator[Iterator[T]]:
    """The items in order, at most `room` of them waiting. The generator is closed at the end of the block."""
    queue: Queue[tuple[str, Any]] = Queue(room)
    stopped = threading.Event()

    def put(kind: str, item: Any = None) -> None:
        while not stopped.is_set():
            try:
                queue.put((kind, item), timeout=0.1)
                return
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put("item", item)
                if stopped.is_set():
                    return
            put("end")
        except BaseException as error:
            put("error", error)
        finally:
            items.close()

    def taken() -> Iterator[T]:
        while True:
            kind, item = queue.get()
            if kind == "error":
                raise item
            if kind == "end":
                return
            yield item

    thread = threading.Thread(target=work, name="reading ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stopped.set()
        try:
            while True:
                queue.get_nowait()
        except Empty:
            pass
        thread.join()
