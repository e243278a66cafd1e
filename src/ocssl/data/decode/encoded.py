"""Encoded images by row number. Light to import and to send to another process: no torch here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


class Files(Protocol):
    """Encoded images, none of which has been opened yet."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """What to call this image in a message: printable, whatever the file is called."""
        ...

    def read(self, row: int) -> bytes:
        """The encoded image; an OSError where it has gone or cannot be read."""
        ...

    def subset(self, rows: Rows) -> Files:
        """These rows only, in this order."""
        ...

    def stored(self) -> Rows:
        """Where each row lies: reading in rising order of these is cheap."""
        ...

    def fingerprint(self) -> str:
        """The same for the same data wherever they lie: from names and sizes."""
        ...

    def stamp(self) -> str:
        """Also changes when a file was written anew: what a cache of decoded images goes by."""
        ...


def printable(name: str | bytes) -> str:
    """A name as it can be shown and written anywhere, with escapes for what is no text."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Packed(Sequence[bytes]):
    """Many byte strings in one block: a million names cost their letters and eight bytes each."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self._block = b"".join(items)
        self._ends = np.cumsum([0, *map(len, items)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: Any) -> Any:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self._block[self._ends[row] : self._ends[row + 1]]

    def take(self, rows: Rows) -> Packed:
        """These rows only, in this order."""
        return Packed([self[row] for row in rows])

    def digest(self) -> bytes:
        """The sha256 of all of them, told apart by where they end."""
        return hashlib.sha256(self._ends.astype("<i8").tobytes() + self._block).digest()
