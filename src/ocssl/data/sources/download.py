"""Downloads a file once: checked against its published checksum, continued after a break, in place all or nothing."""

import hashlib
import http.client
import ipaddress
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ocssl._files.atomic import move
from ocssl._files.lock import locked
from ocssl._files.untrusted import open_file, reading, reason
from ocssl.data.decode.files import Report, silent
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


def checksum(path: Path) -> str:
    """The md5 of a file, in hex."""
    with reading(path, DataError), open_file(path) as file:
        return _md5(file)


def _md5(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()  # type: ignore[arg-type]


class _Broken(Exception):
    """The connection failed; what has come so far is kept."""


class _Wrong(Exception):
    """What the server gives is not the file."""


def fetch(url: str, path: Path, *, size: int, md5: str, report: Report = silent, timeout: float = TIMEOUT) -> Path:
    """Have this file at `path`, downloading it if it is not there; https only, except from this machine itself.

    What comes is written to `path` + `.part`, where a later call continues if this one is interrupted. A file with the
    wrong checksum is removed and fetched once more from its beginning, then given up.
    """
    source = _Source(url, size, md5, report, timeout)
    part = path.with_name(path.name + ".part")
    try:
        if source.is_at(path):
            return path
        _check_address(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(part, "ab+", lambda: report("waiting for another download", 0, 1)) as file:
            try:
                if not source.is_at(path):  # another process may have put it there meanwhile
                    source.download(file)
                    move(file, path)
            finally:
                if not file.seek(0, os.SEEK_END):
                    part.unlink(missing_ok=True)
    except OSError as error:  # the network's have become _Broken
        raise DataError(f"cannot write {path} ({error.strerror}): make room, or set OCSSL_DATA.") from None
    except (_Broken, _Wrong) as error:
        raise DataError(f"cannot download {url} ({error}): {_BY_HAND}.") from None
    return path


@dataclass(frozen=True)
class _Source:
    """A file on the net, and what it is known by."""

    url: str
    size: int
    md5: str
    report: Report
    timeout: float

    def is_at(self, path: Path) -> bool:
        return path.is_file() and path.stat().st_size == self.size and checksum(path) == self.md5

    def download(self, file: IO[bytes], retries: int = 1) -> None:
        """Fill the file, or remove what is wrong in it; _Broken or _Wrong if that fails."""
        try:
            self._fill(file)
            file.seek(0)
            if (found := _md5(file)) != self.md5:
                raise _Wrong(f"md5 {found}, wanted {self.md5}")
        except _Wrong:
            file.truncate(0)
            if not retries:
                raise
            self.download(file, retries - 1)

    def _fill(self, file: IO[bytes]) -> None:
        """Connect until the file has its size."""
        for _ in range(_CONNECTIONS):
            start = file.seek(0, os.SEEK_END)
            if start >= self.size:
                break
            try:
                self._receive(file, start)
            except _Broken:
                if file.seek(0, os.SEEK_END) <= start:
                    raise
        if (found := file.seek(0, os.SEEK_END)) < self.size:
            raise _Broken(f"the connection broke {_CONNECTIONS} times")
        if found > self.size:
            raise _Wrong(f"more than {self.size} bytes")

    def _receive(self, file: IO[bytes], start: int) -> None:
        """Add what one connection brings, from this byte on if the server can do so."""
        with _connect(self.url, start, self.timeout) as response:
            if response.status == 206:
                place = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
                if place is None or int(place[1]) != start or place[2] not in ("*", str(self.size)):
                    raise _Wrong("another part than asked for")
            else:
                file.truncate(0)
                start = 0
                length = response.headers.get("Content-Length", "")
                if length.isdigit() and int(length) != self.size:
                    raise _Wrong(f"{length} bytes, wanted {self.size}")
            while start <= self.size:  # one byte more than there should be is enough to know
                try:
                    data = response.read1(min(_CHUNK, self.size + 1 - start))  # what has come, not what will
                except (OSError, http.client.HTTPException) as error:
                    raise _Broken(reason(error)) from None
                if not data:
                    break
                file.write(data)
                start += len(data)
                self.report(f"downloading {urllib.parse.urlsplit(self.url).path.rpartition('/')[2]}", start, self.size)
        if start < self.size:
            raise _Broken(f"it ended after {start} of {self.size} bytes")


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
        cause = getattr(error, "reason", error)  # of urllib's errors
        raise _Broken(reason(cause) if isinstance(cause, Exception) else str(cause)) from None


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
