"""A cache of decoded images in one file: checksums are checked as it is read, row by row.

    header     4,096 bytes: magic, checksum, length of what follows, JSON (version, key, rows, size, fit, chunk), zeros
    pixels     rows of uint8 [3, S, S]; zeros where an image cannot be used
    checksums  a CRC-32 of each `chunk` rows
    faults     JSON: [row, name, reason], by row
    footer     length of the faults, CRC-32 of checksums and faults, magic, CRC-32 of these

It is written under another name and moved to its place when all of it is on disk. It is read and not mapped: the pages
of a map stay resident, giving them back costs more than reading, and a file that is cut off, or a disk that fails,
under a map kills the process.
"""

import hashlib
import json
import os
import shutil
import struct
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl._files.atomic import written_once
from ocssl._files.untrusted import open_file, reason
from ocssl.data.decode import decoder
from ocssl.data.decode.decode_processes import Fault, decoded, rows_at_once
from ocssl.data.decode.decoder import Fit, Images
from ocssl.data.decode.files import Files, Report, Rows, silent
from ocssl.errors import DataError

VERSION = 1
HEADER = 4096  # bytes
_HEAD = struct.Struct("<8sII")  # magic, CRC-32 of the header after it, length of the JSON
_FOOT = struct.Struct("<QI8sI")
_MAGIC, _END = b"ocssl\x00px", b"px\x00ocssl"
_WAY_OUT = "name another folder with --cache DIR, or keep none with --set data.decode=live."


def cache_key(files: Files, size: int, fit: Fit) -> str:
    """A checksum of all that decides the content of a cache.

    With the formats that can be decoded here: a cache that was made without pillow-heif has faults for HEIC files.
    """
    facts = [files.fingerprint(times=True), size, fit, decoder.VERSION, VERSION, sorted(decoder.FORMATS)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def needed_bytes(files: Files, size: int) -> int:
    """The size of the file that `build` writes, without faults."""
    chunks = -(-len(files) // rows_at_once(size))
    return HEADER + len(files) * 3 * size * size + 4 * chunks + 2 + _FOOT.size


def build(
    path: Path,
    files: Files,
    size: int,
    fit: Fit,
    workers: int = 0,
    report: Report = silent,
    bad_images: Literal["skip", "stop"] = "skip",
) -> None:
    """Decode all images into a file, unless it exists; if another process is writing it, wait for that one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_once(path, lambda: report("waiting for another process that decodes", 0, len(files))) as file:
            if file is not None:
                needed, free = needed_bytes(files, size), shutil.disk_usage(path.parent).free
                if free < needed:
                    sizes = f"need {needed / 2**30:.1f} GiB, and {path.parent} has {free / 2**30:.1f} GiB left"
                    raise DataError(f"decoded images {sizes}: {_WAY_OUT}")
                _write(file, files, size, fit, workers, report, bad_images)
    except OSError as error:
        raise DataError(f"cannot keep decoded images in {path.parent} ({error.strerror}): {_WAY_OUT}") from None


def _write(file: IO[bytes], files: Files, size: int, fit: Fit, workers: int, report: Report, bad_images: str) -> None:
    count, chunk = len(files), rows_at_once(size)
    pieces = (np.arange(start, min(start + chunk, count)) for start in range(0, count, chunk))
    checksums: list[int] = []
    faults: list[tuple[int, str, str]] = []
    key = cache_key(files, size, fit)
    file.write(_header({"version": VERSION, "key": key, "fit": fit, "rows": count, "size": size, "chunk": chunk}))
    report("decoding", 0, count)
    with closing(decoded(files, pieces, size, fit, workers)) as parts:
        for images, bad, _ in parts:
            start = chunk * len(checksums)
            for place, why in bad:
                fault = Fault(files.name(start + place), why)
                if bad_images == "stop":
                    raise fault.error()
                faults.append((start + place, fault.name, fault.reason))
            file.write(images.data)
            checksums.append(zlib.crc32(images.data))
            report("decoding", start + len(images), count)
    tables = np.array(checksums, "<u4").tobytes()
    listed = json.dumps(faults).encode()
    file.write(tables + listed + _footer(len(listed), zlib.crc32(tables + listed)))


def _header(facts: Mapping[str, Any]) -> bytes:
    text = json.dumps(facts).encode()
    rest = (struct.pack("<I", len(text)) + text).ljust(HEADER - 12, b"\0")
    return struct.pack("<8sI", _MAGIC, zlib.crc32(rest)) + rest


def _footer(length: int, checksum: int) -> bytes:
    rest = struct.pack("<QI8s", length, checksum, _END)
    return rest + struct.pack("<I", zlib.crc32(rest))


class CachedImages:
    """The images of such a file. Each chunk is checked when it is first touched; damage is a DataError."""

    def __init__(self, path: Path, expected_key: str | None = None) -> None:
        self.path = path
        try:
            file = open_file(path)
        except OSError as error:
            raise self._unreadable(error) from None
        weakref.finalize(self, file.close)
        self._file = file.fileno()
        try:
            facts = self._facts()
            if expected_key is not None and facts["key"] != expected_key:
                raise self._damaged("it holds other images")
            self._rows = _whole_number(facts["rows"], 0)
            self.size = _whole_number(facts["size"], 1)
            self._chunk = _whole_number(facts["chunk"], 1)
            self._checksums, self.faults = self._tables()
        except DataError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._damaged("it makes no sense") from None
        self._bad = np.zeros(self._rows, np.bool_)
        self._bad[list(self.faults)] = True
        self._checked = np.zeros(len(self._checksums), np.bool_)

    def __len__(self) -> int:
        return self._rows

    def walk(self, cuts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        for cut in cuts:
            rows = cut.numpy()
            usable = ~self._bad[rows]
            yield torch.from_numpy(self._images(rows[usable])), torch.from_numpy(usable)

    def _images(self, rows: Rows) -> Images:
        for chunk in np.unique(rows // self._chunk).tolist():
            if not self._checked[chunk]:
                self._check(chunk)
        images = np.empty((len(rows), 3, self.size, self.size), np.uint8)
        for image, row in zip(images, rows.tolist(), strict=True):
            self._read(image.reshape(-1).data, self._start(row))
        return images

    def _start(self, row: int) -> int:
        """Where a row begins in the file."""
        return HEADER + row * 3 * self.size**2

    def _check(self, chunk: int) -> None:
        first = chunk * self._chunk
        end = min(first + self._chunk, self._rows)
        if zlib.crc32(self._bytes(self._start(first), self._start(end))) != self._checksums[chunk]:
            raise self._damaged("a checksum is wrong")
        self._checked[chunk] = True

    def _read(self, into: memoryview, start: int) -> None:
        try:
            count = os.preadv(self._file, [into], start)
        except OSError as error:
            raise self._unreadable(error) from None
        if count != len(into):
            raise self._damaged("it is not whole")

    def _bytes(self, start: int, end: int) -> bytes:
        content = bytearray(end - start)
        self._read(memoryview(content), start)
        return bytes(content)

    def _facts(self) -> dict[str, Any]:
        head = self._bytes(0, HEADER)
        magic, checksum, length = _HEAD.unpack_from(head)
        if magic != _MAGIC:
            raise self._damaged("it is no such file")
        if zlib.crc32(head[12:]) != checksum:
            raise self._damaged("a checksum is wrong")
        facts: dict[str, Any] = json.loads(head[_HEAD.size : _HEAD.size + length])
        if facts["version"] != VERSION:
            raise self._damaged(f"it has format version {facts['version']}")
        return facts

    def _tables(self) -> tuple[npt.NDArray[np.uint32], dict[int, Fault]]:
        """Checksums and faults, once all lengths are known to make up the length of the file."""
        end = os.fstat(self._file).st_size - _FOOT.size
        start = self._start(self._rows)
        middle = start + 4 * -(-self._rows // self._chunk)
        if middle > end:
            raise self._damaged("it is not whole")
        foot = self._bytes(end, end + _FOOT.size)
        length, checksum, _, _ = _FOOT.unpack(foot)
        if middle + length != end or foot != _footer(length, checksum):
            raise self._damaged("it is not whole")
        tables = self._bytes(start, end)
        if zlib.crc32(tables) != checksum:
            raise self._damaged("a checksum is wrong")
        listed = json.loads(tables[middle - start :])
        faults = {_whole_number(row, 0): Fault(str(name), str(why)) for row, name, why in listed}
        if any(row >= self._rows for row in faults):
            raise self._damaged("it makes no sense")
        return np.frombuffer(tables[: middle - start], "<u4"), faults

    def _unreadable(self, error: OSError) -> DataError:
        return DataError(f"cannot read the decoded images in {self.path} ({reason(error)}).")

    def _damaged(self, why: str) -> DataError:
        return DataError(
            f"cannot use the decoded images in {self.path}, {why}: delete this file, and it is made again."
        )


def _whole_number(value: object, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError(value)
    return value
