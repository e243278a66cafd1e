"""Downloads a file once: checked against its published checksum, continued after a break, in place all or nothing."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import ipaddress
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ocssl.data.decode.images import Report, silent
from ocssl.errors import DataError

TIMEOUT = 30.0  # seconds without a byte
_CONNECTIONS = 20  # at most, each of which must have brought something
_CHUNK = 2**18
_BY_HAND = "get it by hand and name its folder with --data DIR"


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where downloads are kept: OCSSL_DATA, or ocssl in XDG_DATA_HOME, or in ~/.local/share."""
    try:
        if environment.get("OCSSL_DATA"):
            return Path(environment["OCSSL_DATA"]).expanduser()
        shared = Path(environment.get("XDG_DATA_HOME", ""))
        if not shared.is_absolute():  # the standard says to pass over it then
            shared = Path.home() / ".local" / "share"
    except RuntimeError:
        raise DataError("there is no home folder to download to: set OCSSL_DATA to a folder.") from None
    return shared / "ocssl"


def checksum(path: Path, kind: str = "md5") -> str:
    """The md5 or sha256 of a file, in hex."""
    try:
        with open(path, "rb") as file:
            return _digest(file, kind)
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}).") from None


def _digest(file: IO[bytes], kind: str) -> str:
    return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()  # type: ignore[arg-type]


@dataclass(frozen=True)
class Source:
    """A file on the net, and what it is known by."""

    url: str
    size: int
    kind: str  # md5 or sha256
    sum: str

    def is_at(self, path: Path) -> bool:
        return path.is_file() and path.stat().st_size == self.size and checksum(path, self.kind) == self.sum


class _Broken(Exception):
    """The connection failed; what has come so far is kept."""


class _Wrong(Exception):
    """What the server gives is not the file."""


def fetch(
    url: str,
    path: Path,
    *,
    size: int,
    md5: str | None = None,
    sha256: str | None = None,
    report: Report = silent,
    timeout: float = TIMEOUT,
) -> Path:
    """Have this file at `path`, downloading it if it is not there; https only, except from this machine itself.

    What comes is written to `path` + `.part`, where a later call goes on if this one is broken off. A file with the
    wrong checksum is removed and fetched once more from its beginning, then given up.
    """
    if (md5 is None) == (sha256 is None):
        raise ValueError("one checksum is needed")
    source = Source(url, size, "md5" if md5 else "sha256", md5 or sha256 or "")
    part = path.with_name(path.name + ".part")
    try:
        if source.is_at(path):
            return path
        _check_address(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(part, report) as file:
            if not source.is_at(path):  # another process may have put it there meanwhile
                _download(source, file, report, timeout)
                os.fsync(file.fileno())
                os.replace(part, path)
                _flush_folder(path.parent)
    except OSError as error:  # the network's have become _Broken
        raise DataError(f"cannot write {path} ({error.strerror}): make room, or set OCSSL_DATA.") from None
    except (_Broken, _Wrong) as error:
        raise DataError(f"cannot download {url} ({error}): {_BY_HAND}.") from None
    return path


@contextmanager
def _alone(part: Path, report: Report) -> Iterator[IO[bytes]]:
    """The unfinished file, open for one process at a time; others wait until it is finished or given up."""
    while True:
        with open(part, "ab+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report("waiting for another download", 0, 1)
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same(file, part):  # the other one has finished it
                continue
            try:
                yield file
            finally:
                if _is_same(file, part) and not part.stat().st_size:
                    part.unlink()
            return


def _is_same(file: IO[bytes], path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _download(source: Source, file: IO[bytes], report: Report, timeout: float) -> None:
    """Fill the file, or remove what is wrong in it; _Broken or _Wrong if that fails."""
    again = True
    while True:
        try:
            _fill(source, file, report, timeout)
            file.seek(0)
            found = _digest(file, source.kind)
            if found == source.sum:
                return
            raise _Wrong(f"{source.kind} {found}, wanted {source.sum}")
        except _Wrong:
            file.truncate(0)
            if not again:
                raise
            again = False


def _fill(source: Source, file: IO[bytes], report: Report, timeout: float) -> None:
    """Connect until the file has its size."""
    for _ in range(_CONNECTIONS):
        start = file.seek(0, os.SEEK_END)
        if start >= source.size:
            break
        try:
            _receive(source, file, start, report, timeout)
        except _Broken:
            if file.seek(0, os.SEEK_END) <= start:
                raise
    if (found := file.seek(0, os.SEEK_END)) < source.size:
        raise _Broken(f"the connection broke {_CONNECTIONS} times")
    if found > source.size:
        raise _Wrong(f"more than {source.size} bytes")


def _receive(source: Source, file: IO[bytes], start: int, report: Report, timeout: float) -> None:
    """Add what one connection brings, from this byte on if the server can do so."""
    with _connect(source.url, start, timeout) as response:
        if response.status == 206:
            place = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if place is None or int(place[1]) != start or place[2] not in ("*", str(source.size)):
                raise _Wrong("another part than asked for")
        else:
            file.truncate(0)
            start = 0
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and int(length) != source.size:
                raise _Wrong(f"{length} bytes, wanted {source.size}")
        while start <= source.size:  # one byte more than there should be is enough to know
            try:
                data = response.read1(min(_CHUNK, source.size + 1 - start))  # what has come, not what will
            except (OSError, http.client.HTTPException) as error:
                raise _Broken(_reason(error)) from None
            if not data:
                break
            file.write(data)
            start += len(data)
            report(f"downloading {urllib.parse.urlsplit(source.url).path.rpartition('/')[2]}", start, source.size)
    if start < source.size:
        raise _Broken(f"it ended after {start} of {source.size} bytes")


def _connect(url: str, start: int, timeout: float) -> Any:
    opener = urllib.request.build_opener(_CheckedRedirects)
    headers = {"User-Agent": "ocssl"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except DataError:
        raise
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            raise _Wrong("it is shorter than it should be") from None
        raise _Broken(f"HTTP {error.code} {error.reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _Broken(_reason(error)) from None


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows to where a download may come from, nowhere else."""

    def redirect_request(self, *arguments: Any, **more: Any) -> urllib.request.Request | None:
        request = super().redirect_request(*arguments, **more)
        if request is not None:
            _check_address(request.full_url)
        return request


def _check_address(url: str) -> None:
    address = urllib.parse.urlsplit(url)
    if address.scheme != "https" and not (address.scheme == "http" and _is_here(address.hostname or "")):
        raise DataError(f"cannot download {url} (only https is allowed): {_BY_HAND}.")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reason(error: BaseException) -> str:
    cause = getattr(error, "reason", error)
    return str(getattr(cause, "strerror", None) or cause or type(cause).__name__)
