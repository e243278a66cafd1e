"""Reads a few files out of a tar, tar.gz or zip archive, in place: nothing is unpacked to disk.

An archive may come from anywhere, so everything is bounded, and what is not a plain file inside the archive is passed
over: links, devices, absolute names, names with `..`. Tar is read here and not by `tarfile`, which takes headers of
any declared length into memory.
"""

import errno
import gzip
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ocssl._files.untrusted import reason
from ocssl.data.decode.files import Report, silent
from ocssl.data.decode.tar_headers import BLOCK, LONGEST_EXTRA, read_header, sum_is_right
from ocssl.errors import DataError

_CHUNK = 2**18
_LONGEST_READ = 2**20  # of zipfile's own; bounds a zip's table of contents to some 20,000 entries
_DAMAGES = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, LookupError, ArithmeticError, RuntimeError)

Read = Callable[[int], bytes]  # up to this many bytes; b"" at the end


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
    """The wanted files of an archive by their last name, in any of its folders; those that are there."""
    limits = limits or Limits()
    try:
        with _ShortReads(io.FileIO(path)) as file:
            size = file.seek(0, io.SEEK_END)
            if size > limits.archive:
                raise DataError(f"{path} is too large to be read: {size} bytes, at most {limits.archive}.")
            file.seek(0)
            start = file.read(BLOCK)
            file.seek(0)
            members = _Members(path, wanted, limits, lambda: report(f"reading {path.name}", file.tell(), size))
            if start.startswith(b"PK"):
                _read_zip(file, members)
            elif start.startswith(b"\x1f\x8b"):
                _read_tar(gzip.GzipFile(fileobj=file).read, members)
            elif len(start) == BLOCK and sum_is_right(start):
                _read_tar(file.read, members)
            else:
                raise DataError(f"{path} is no tar, tar.gz or zip archive: fetch it again.")
            return members.found
    except DataError:
        raise
    except EOFError:
        raise DataError(f"{path} is cut off: fetch it again.") from None
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # gzip's have none; a damaged zip seeks to before its beginning
            raise DataError(f"cannot read {path} ({reason(error)}).") from None
        raise DataError(f"{path} is damaged ({reason(error)}): fetch it again.") from None
    except _DAMAGES as error:
        raise DataError(f"{path} is damaged ({reason(error)}): fetch it again.") from None


class _Members:
    """What is wanted of an archive, what was found, and what is too much."""

    def __init__(self, path: Path, wanted: Collection[str], limits: Limits, progress: Callable[[], None]) -> None:
        self.path = path
        self.found: dict[str, bytes] = {}
        self._limits = limits
        self._wanted = frozenset(wanted)
        self._progress = progress
        self._seen = self._bytes = 0

    def name(self, name: str, size: int) -> str | None:
        """The last part of the name of a plain file, if it is wanted."""
        self._seen += 1
        if self._seen > self._limits.members:
            raise DataError(f"{self.path} holds more than {self._limits.members} files: it is something else.")
        parts = name.replace("\\", "/").split("/")
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or parts[-1] not in self._wanted:
            return None
        if parts[-1] in self.found:
            raise DataError(f"{self.path} holds {parts[-1]} twice: fetch it again.")
        if size > self._limits.member:
            raise DataError(f"{parts[-1]} in {self.path} is too large: {size} bytes, at most {self._limits.member}.")
        return parts[-1]

    def read(self, source: Read, size: int) -> bytes:
        """Up to `size` bytes out of the archive, b"" at the end; an error if it has become too much."""
        data = source(min(size, _CHUNK))
        self._bytes += len(data)
        if self._bytes > self._limits.total:
            raise DataError(f"{self.path} unpacks to more than {self._limits.total} bytes: it is something else.")
        self._progress()
        return data


class _ShortReads(io.BufferedReader):
    """A file that gives at most a mebibyte at once, whatever a damaged header says that comes next."""

    def read(self, size: int | None = -1, /) -> bytes:
        whole = size is None or size < 0 or size > _LONGEST_READ
        data = super().read(_LONGEST_READ + 1 if whole else size)
        if len(data) > _LONGEST_READ:
            raise DataError(f"{self.name!s} is no archive that can be read here: its table of contents is too long.")
        return data


def _read_tar(source: Read, members: _Members) -> None:
    def exactly(size: int, store: bool = True) -> bytes:
        """The next `size` bytes, in memory as they come and not as a header announces them."""
        content = bytearray()
        while size:
            data = members.read(source, size)
            if not data:
                raise EOFError
            size -= len(data)
            if store:
                content += data
        return bytes(content)

    long_name = False
    while (header := exactly(BLOCK)) != bytes(BLOCK):
        found = read_header(header)
        kind, name, size = found.kind, found.name, found.size
        plain = found.plain and not long_name
        base = members.name(name.decode("utf-8", "replace") if plain else "", size)
        if kind == b"x" and size > LONGEST_EXTRA:
            raise ValueError("one of its headers is too long")
        content = exactly(size, store=base is not None or kind == b"x")
        if base is not None:
            members.found[base] = content
        exactly(-size % BLOCK)
        # Names of more than a hundred bytes stand in an entry before; what is looked for has a shorter one.
        said = kind == b"L" or (kind == b"x" and b" path=" in content)
        long_name = said or (long_name and kind in (b"K", b"L", b"x", b"g"))
    while members.read(source, _CHUNK):  # to the end, where gzip has its checksum
        pass


def _read_zip(file: io.BufferedReader, members: _Members) -> None:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            plain = not info.is_dir() and kind in (0, stat.S_IFREG)
            base = members.name(info.filename if plain else "", info.file_size)
            if base is None:
                continue
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{base} is encrypted or packed in an unusual way")
            content = bytearray()
            with archive.open(info) as member:
                while len(content) <= info.file_size and (data := members.read(member.read, _CHUNK)):
                    content += data
            if len(content) != info.file_size:
                raise EOFError
            members.found[base] = bytes(content)
