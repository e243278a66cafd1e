"""Reads a few files out of a tar, tar.gz or zip archive, in place: nothing is unpacked to disk.

An archive may come from anywhere, so everything is bounded, and what is not a plain file inside the archive is passed
over: links, devices, absolute names, names with `..`. Tar is read here and not by `tarfile`, which takes headers of
any declared length into memory.
"""

from __future__ import annotations

import errno
import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ocssl.data.decode.encoded import printable
from ocssl.data.decode.images import Report, silent
from ocssl.errors import DataError

_BLOCK = 512
_CHUNK = 2**18
_LONGEST_EXTRA = 2**16  # bytes of what a tar says of the next member
_LONGEST_READ = 2**20  # of zipfile's own; bounds a zip's table of contents to some 20,000 entries
_DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, LookupError, ArithmeticError, RuntimeError)

Read = Callable[[int], bytes]  # up to so many bytes; nothing at the end


@dataclass(frozen=True)
class Limits:
    """What an archive may cost."""

    archive: int = 2**29  # bytes of the file
    member: int = 200 * 10**6  # bytes of a member that is read
    total: int = 2**29  # bytes that come out of the archive, read or passed over
    members: int = 1000


def read_members(
    path: Path, wanted: Collection[str], report: Report = silent, limits: Limits | None = None
) -> dict[str, bytes]:
    """The wanted files of an archive by their last name, in whichever folder of it they are; those that are there."""
    limits = limits or Limits()
    try:
        with _ShortReads(io.FileIO(path)) as file:
            size = file.seek(0, io.SEEK_END)
            if size > limits.archive:
                raise DataError(f"{path} is too large to be read: {size} bytes, at most {limits.archive}.")
            file.seek(0)
            start = file.read(_BLOCK)
            file.seek(0)
            keep = _Keep(path, wanted, limits)
            if start.startswith(b"PK"):
                _read_zip(file, keep, lambda: report(f"reading {path.name}", file.tell(), size))
            elif start.startswith(b"\x1f\x8b"):
                _read_tar(_counted(_Gunzip(file).read, file, size, keep, report), keep)
            elif len(start) == _BLOCK and _sum_is_right(start):
                _read_tar(_counted(file.read, file, size, keep, report), keep)
            else:
                raise DataError(f"{path} is no tar, tar.gz or zip archive: fetch it again.")
            return keep.found
    except DataError:
        raise
    except EOFError:
        raise DataError(f"{path} is cut off: fetch it again.") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # a damaged zip sends one to a place before its beginning
            raise DataError(f"{path} is damaged: fetch it again.") from None
        raise DataError(f"cannot read {path} ({error.strerror or error}).") from None
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        ValueError,
        LookupError,
        RuntimeError,
        OverflowError,
    ) as error:
        raise DataError(f"{path} is damaged ({printable(str(error))}): fetch it again.") from None


class _Keep:
    """What is wanted of an archive, what was found, and what is too much."""

    def __init__(self, path: Path, wanted: Collection[str], limits: Limits) -> None:
        self.path = path
        self.limits = limits
        self.found: dict[str, bytes] = {}
        self._wanted = frozenset(wanted)
        self._seen = 0

    def name(self, name: str, size: int) -> str | None:
        """The last part of the name of a plain file, if it is wanted."""
        self._seen += 1
        if self._seen > self.limits.members:
            raise DataError(f"{self.path} holds more than {self.limits.members} files: it is something else.")
        parts = name.replace("\\", "/").split("/")
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or parts[-1] not in self._wanted:
            return None
        if parts[-1] in self.found:
            raise DataError(f"{self.path} holds {parts[-1]} twice: fetch it again.")
        if size > self.limits.member:
            raise DataError(f"{parts[-1]} in {self.path} is too large: {size} bytes, at most {self.limits.member}.")
        return parts[-1]

    def too_much(self) -> DataError:
        return DataError(f"{self.path} unpacks to more than {self.limits.total} bytes: it is something else.")


class _ShortReads(io.BufferedReader):
    """A file that gives at most a mebibyte at once, whatever a damaged header says that comes next."""

    def read(self, size: int | None = -1, /) -> bytes:
        whole = size is None or size < 0 or size > _LONGEST_READ
        data = super().read(_LONGEST_READ + 1 if whole else size)
        if len(data) > _LONGEST_READ:
            raise DataError(f"{self.name!s} is no archive that can be read here: its table of contents is too long.")
        return data


class _Gunzip:
    """Unpacks gzip a piece at a time, with its checksums; bytes after the end that are no gzip are not looked at."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""

    def read(self, size: int) -> bytes:
        while True:
            if self._inflate.eof:
                self._input = self._inflate.unused_data or self._file.read(_CHUNK)
                if not self._input.startswith(b"\x1f"):
                    return b""
                self._inflate = zlib.decompressobj(wbits=31)
            elif not self._input:
                self._input = self._file.read(_CHUNK)
                if not self._input:
                    raise EOFError
            data = self._inflate.decompress(self._input, size)
            self._input = self._inflate.unconsumed_tail
            if data:
                return data


def _counted(read: Read, file: io.BufferedReader, size: int, keep: _Keep, report: Report) -> Read:
    """The same, refusing more than the limit and telling how much of the file has been read."""
    total = 0

    def counted(wanted: int) -> bytes:
        nonlocal total
        data = read(min(wanted, _CHUNK))
        total += len(data)
        if total > keep.limits.total:
            raise keep.too_much()
        report(f"reading {keep.path.name}", file.tell(), size)
        return data

    return counted


def _read_tar(read: Read, keep: _Keep) -> None:
    long_name = False
    while (header := _exactly(read, _BLOCK)) != bytes(_BLOCK):
        if not _sum_is_right(header):
            raise ValueError("one of its headers has a wrong checksum")
        size = _number(header[124:136])
        kind, name = header[156:157], header[:100].partition(b"\0")[0]
        if header[257:263] == b"ustar\0":  # GNU tar keeps other things where the standard has the first part of a name
            name = header[345:500].partition(b"\0")[0] + b"/" * bool(header[345]) + name
        plain = kind in (b"0", b"\0", b"7") and not long_name
        base = keep.name(name.decode("utf-8", "replace") if plain else "", size)
        if kind == b"x" and size > _LONGEST_EXTRA:
            raise ValueError("one of its headers is too long")
        content = _exactly(read, size, store=base is not None or kind == b"x")
        if base is not None:
            keep.found[base] = content
        _exactly(read, -size % _BLOCK)
        # Names of more than a hundred bytes stand in an entry before; what is looked for has a shorter one.
        said = kind == b"L" or (kind == b"x" and b" path=" in content)
        long_name = said or (long_name and kind in (b"K", b"L", b"x", b"g"))
    while read(_CHUNK):  # to the end, where gzip has its checksum
        pass


def _exactly(read: Read, size: int, store: bool = True) -> bytes:
    """So many bytes, in memory as they come and not as a header announces them; EOFError if there are fewer."""
    content = bytearray()
    while size:
        data = read(size)
        if not data:
            raise EOFError
        size -= len(data)
        if store:
            content += data
    return bytes(content)


def _number(digits: bytes) -> int:
    octal = re.fullmatch(rb" *([0-7]+)[ \0]*", digits)
    if octal is None:
        raise ValueError("one of its headers has no size")
    return int(octal[1], 8)


def _sum_is_right(header: bytes) -> bool:
    octal = re.fullmatch(rb" *([0-7]+)[ \0]*", header[148:156])
    return octal is not None and int(octal[1], 8) == sum(header[:148]) + 8 * ord(" ") + sum(header[156:])


def _read_zip(file: io.BufferedReader, keep: _Keep, tell: Callable[[], None]) -> None:
    total = 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            plain = not info.is_dir() and kind in (0, stat.S_IFREG)
            base = keep.name(info.filename if plain else "", info.file_size)
            if base is None:
                continue
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{base} is encrypted or packed in an unusual way")
            content = bytearray()
            with archive.open(info) as member:
                while data := member.read(_CHUNK):
                    content += data
                    total += len(data)
                    if total > keep.limits.total or len(content) > keep.limits.member:
                        raise keep.too_much()
                    tell()
            if len(content) != info.file_size:
                raise EOFError
            keep.found[base] = bytes(content)
