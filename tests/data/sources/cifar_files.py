"""Small files in the layouts in which CIFAR-100 is published, and a writer of pickles as Python 2 wrote them."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ocssl.data.sources.cifar import CLASSES, SUPERCLASS_OF, SUPERCLASSES, Release

PER_CLASS = {"train": 2, "test": 1}
Bytes = npt.NDArray[np.uint8]


class Small:
    """A release of 300 random images."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.pixels: dict[str, Bytes] = {}
        self.fine: dict[str, list[int]] = {}
        for part, count in PER_CLASS.items():
            self.pixels[part] = generator.integers(0, 256, (100 * count, 3072), dtype=np.uint8)
            self.fine[part] = generator.permutation(np.repeat(np.arange(100), count)).tolist()

    def coarse(self, part: str) -> list[int]:
        return [SUPERCLASS_OF[label] for label in self.fine[part]]

    def binary(self) -> dict[str, bytes]:
        return {f"{part}.bin": records(self.pixels[part], self.fine[part], self.coarse(part)) for part in PER_CLASS}

    def python(self) -> dict[str, bytes]:
        return {**{part: self.pickled(part) for part in PER_CLASS}, "meta": META}

    def pickled(self, part: str) -> bytes:
        names = [b"picture_s_%06d.png" % number for number in range(len(self.fine[part]))]
        return python2(
            {
                b"filenames": names,
                b"batch_label": b"training batch 1 of 1",
                b"fine_labels": self.fine[part],
                b"coarse_labels": self.coarse(part),
                b"data": self.pixels[part],
            }
        )

    def release(self, sums: Mapping[str, str] | None = None, **more: Any) -> Release:
        return Release(per_class=PER_CLASS, sums=sums or {}, **more)


def records(pixels: Bytes, fine: list[int], coarse: list[int]) -> bytes:
    return b"".join(bytes([c, f]) + p.tobytes() for p, f, c in zip(pixels, fine, coarse, strict=True))


def python2(content: Mapping[bytes, Any]) -> bytes:
    """A dictionary as cPickle of Python 2 wrote it under protocol 2: its numbers in the memo begin with 1."""
    memo = 0

    def put() -> bytes:
        nonlocal memo
        memo += 1
        return b"q" + bytes([memo]) if memo < 256 else b"r" + struct.pack("<I", memo)

    def written(value: Any) -> bytes:
        if isinstance(value, bytes):
            head = b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))
            return head + value + put()
        if isinstance(value, int):
            form = [b"K" + struct.pack("<B", value)] if 0 <= value < 256 else [b"J" + struct.pack("<i", value)]
            return form[0]
        if isinstance(value, list):
            start = b"]" + put()
            for first in range(0, len(value), 1000):
                items = value[first : first + 1000]
                inside = b"".join(map(written, items))
                start += inside + b"a" if len(items) == 1 else b"(" + inside + b"e"
            return start
        return array(value, put)

    start = b"\x80\x02}" + put() + b"("
    return start + b"".join(written(key) + written(value) for key, value in content.items()) + b"u."


def array(value: Bytes, put: Callable[[], bytes] = lambda: b"") -> bytes:
    by_column = value.flags.f_contiguous and not value.flags.c_contiguous
    content = value.tobytes(order="F" if by_column else "C")
    shape = b"".join(b"J" + struct.pack("<i", size) for size in value.shape)
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n" + put() + b"cnumpy\nndarray\n" + put() + b"K\0\x85U\x01b\x87R" + put()
        # version, shape, type with its own state, order, content
        + b"(K\x01" + shape + b"\x86cnumpy\ndtype\n" + put() + b"U\x02u1K\0K\x01\x87R" + put()
        + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
        + (b"\x88" if by_column else b"\x89") + b"T" + struct.pack("<i", len(content)) + content + b"tb"
    )  # fmt: skip


META = python2(
    {
        b"fine_label_names": [name.encode() for name in CLASSES],
        b"coarse_label_names": [name.encode() for name in SUPERCLASSES],
    }
)


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def tar(contents: Mapping[str, bytes], packed: bool = True, folder: str = "cifar-100-python/") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(folder + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(file.getvalue(), 1, mtime=0) if packed else file.getvalue()


def zipped(contents: Mapping[str, bytes], folder: str = "cifar-100-python/", how: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(folder + name), content, compress_type=how)
    return file.getvalue()


def png(pixels: Bytes) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.reshape(3, 32, 32).transpose(1, 2, 0)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def write_parquet(
    path: Path, small: Small, part: str, rows: list[int], names: tuple[str, str], numbered: bool, coarse: bool = True
) -> None:
    """These rows of a part in one parquet file, as `datasets` writes them."""
    import pyarrow
    import pyarrow.parquet

    image, label = names
    paths = [f"{part}_{row:05}.png" if numbered else None for row in rows]
    cells = [{"bytes": png(small.pixels[part][row]), "path": p} for row, p in zip(rows, paths, strict=True)]
    cell = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {image: pyarrow.array(cells, cell), label: [small.fine[part][row] for row in rows]}
    if coarse:
        columns["coarse_label"] = [small.coarse(part)[row] for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """What is in a folder, to see that nothing was written."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))}
