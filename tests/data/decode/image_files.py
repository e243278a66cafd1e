"""Shared by tests of images and the processes that they start: encoded images in memory. No torch here."""

from __future__ import annotations

import hashlib
import io
import multiprocessing.connection
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ocssl.data.decode.files import Rows


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(seed: int, height: int, width: int, channels: int | None = 3) -> np.ndarray[Any, np.dtype[np.uint8]]:
    shape = (height, width) if channels is None else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


class MemoryFiles:
    """Encoded images in memory; None for one that cannot be read."""

    def __init__(self, contents: list[bytes | None]) -> None:
        self.contents = contents

    def __len__(self) -> int:
        return len(self.contents)

    def name(self, row: int) -> str:
        return f"image-{row}"

    def read(self, row: int) -> bytes:
        content = self.contents[row]
        if content is None:
            raise FileNotFoundError(2, "No such file or directory", self.name(row))
        return content

    def subset(self, rows: Rows) -> MemoryFiles:
        return MemoryFiles([self.contents[row] for row in rows])

    def stored(self) -> Rows:
        return np.arange(len(self))

    def fingerprint(self, times: bool = False) -> str:
        return hashlib.sha256(b"".join(c or b"" for c in self.contents)).hexdigest()


def mixed_files(count: int, seed: int = 0) -> MemoryFiles:
    """Images of several shapes and formats; every seventh cannot be used, for one of three reasons."""
    rng = np.random.default_rng(seed)
    contents: list[bytes | None] = []
    for row in range(count):
        height, width = rng.integers(6, 40, 2).tolist()
        kind = ("PNG", "JPEG", "BMP", "GIF")[row % 4]
        content = encode(Image.fromarray(noise(row, height, width)), kind)
        broken = (b"", content[: len(content) // 2], None)[row // 7 % 3]
        contents.append(broken if row % 7 == 3 else content)
    return MemoryFiles(contents)


class Repeated(MemoryFiles):
    """A few images, over and over."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__([encode(Image.fromarray(noise(seed, size, size)), "PPM") for seed in range(7)])
        self.count = count

    def __len__(self) -> int:
        return self.count

    def read(self, row: int) -> bytes:
        return super().read(row % 7)


class Harmful(MemoryFiles):
    """Reading one row does something else than reading."""

    def __init__(self, contents: list[bytes | None], row: int, deed: str, folder: Path | None = None) -> None:
        super().__init__(contents)
        self.row, self.deed, self.folder = row, deed, folder

    def read(self, row: int) -> bytes:
        if row == self.row:
            getattr(self, self.deed)()
        return super().read(row)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_while_answering(self) -> None:
        def half(connection: Any, content: Any) -> None:
            os.write(connection.fileno(), bytes(content)[: len(content) // 2])
            self.die()

        multiprocessing.connection.Connection._send = half  # type: ignore[attr-defined]

    def kill_parent(self) -> None:
        assert self.folder is not None
        (self.folder / "worker").write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)

    def fail(self) -> None:
        raise KeyError("the reader has a defect")

    def wait_for_go(self) -> None:
        assert self.folder is not None
        (self.folder / "started").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.01)
