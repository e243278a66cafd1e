"""Encoded images in tar shards, as WebDataset writes them: read in place by position, nothing is unpacked to disk.

Shards may come from anywhere: only plain files in them are read, names are never used as paths, and sizes are checked
against the shard before anything is read.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np

from ocssl._files.untrusted import open_file, reading, reason
from ocssl.data.decode.files import (
    HEIF_SUFFIXES,
    MOST_BYTES,
    SUFFIXES,
    Packed,
    Report,
    Rows,
    heif_known,
    silent,
)
from ocssl.data.decode.tar_headers import BLOCK, LONGEST_EXTRA, extended_name, read_header
from ocssl.errors import DataError, printable

MOST_MEMBERS = 10**7  # of a shard
LONGEST_LABEL = 64  # bytes of a .cls file


@dataclass(frozen=True)
class Member:
    """A plain file in a shard."""

    name: bytes
    start: int  # where its content begins
    size: int

    @property
    def key(self) -> bytes:
        """What the files of one sample share: the name up to the first dot of its last part."""
        folder, slash, last = self.name.rpartition(b"/")
        return folder + slash + last.partition(b".")[0]

    @property
    def suffix(self) -> bytes:
        return os.path.splitext(self.name)[1].lower()


class ShardFiles:
    """Images in shards by their number, one shard after the other, each in its own order."""

    def __init__(self, paths: Sequence[Path], report: Report = silent) -> None:
        self.paths = [Path(path) for path in paths]
        self.left_out: list[tuple[str, str]] = []  # names and reasons
        names: list[bytes] = []
        table: list[tuple[int, int, int]] = []  # shard, start and size of each image
        labels: list[int | None] = []
        for number, path in enumerate(self.paths):
            for sample in _samples(path, self.left_out):
                label = next((_label(path, member) for member in sample if member.suffix == b".cls"), None)
                for member in sample:
                    if _is_image(member, path, self.left_out):
                        names.append(member.name)
                        table.append((number, member.start, member.size))
                        labels.append(label)
            report("listing images", number + 1, len(self.paths))
        self.names = Packed(names)
        self._table = np.array(table, dtype=np.int64).reshape(-1, 3)
        given = [label for label in labels if label is not None]
        self.labels: Rows | None = np.array(given, np.int64) if given and len(given) == len(labels) else None
        self.unlabelled = len(labels) - len(given)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        return printable(f"{self.paths[self._table[row, 0]].name}/") + printable(self.names[row])

    def read(self, row: int) -> bytes:
        number, start, size = self._table[row].tolist()
        if size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB")
        with open_file(self.paths[number]) as file:
            data = os.pread(file.fileno(), size, start)
        if len(data) != size:
            raise OSError(errno.EIO, "its shard has become shorter")
        return data

    def subset(self, rows: Rows) -> Self:
        chosen = copy.copy(self)
        chosen.names, chosen._table = self.names.take(rows), self._table[rows]
        chosen.labels = None if self.labels is None else self.labels[rows]
        return chosen

    def stored(self) -> Rows:
        order = np.lexsort((self._table[:, 1], self._table[:, 0]))
        places: Rows = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return places

    def fingerprint(self, times: bool = False) -> str:
        facts = []
        for path in self.paths:
            try:
                found = os.stat(path)
                facts.append((path.name, found.st_size, found.st_mtime_ns if times else 0))
            except OSError:
                facts.append((path.name, -1, 0))
        listed = repr(facts).encode("utf-8", "backslashreplace") + self._table.astype("<i8").tobytes()
        return hashlib.sha256(self.names.digest() + listed).hexdigest()


def _samples(path: Path, left_out: list[tuple[str, str]]) -> Iterator[list[Member]]:
    """Plain files of a shard that follow one another and share a key."""
    sample: list[Member] = []
    try:
        with open_file(path) as file:
            for member in _members(file, path, left_out):
                if sample and sample[-1].key != member.key:
                    yield sample
                    sample = []
                sample.append(member)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason(error).lower()}.") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged or no tar archive ({reason(error)}): make or fetch it again.") from None
    if sample:
        yield sample


def _members(file: IO[bytes], path: Path, left_out: list[tuple[str, str]]) -> Iterator[Member]:
    handle, whole = file.fileno(), os.fstat(file.fileno()).st_size
    if os.pread(handle, 2, 0) in (b"\x1f\x8b", b"BZ", b"\xfd7", b"(\xb5"):
        raise ValueError("it is compressed; unpack it to a plain .tar, whose images can be read by position")
    at, count, said = 0, 0, None
    while at < whole:
        block = os.pread(handle, BLOCK, at)
        if block == bytes(BLOCK):
            break
        if len(block) < BLOCK:
            raise ValueError("it is cut off")
        header, start = read_header(block), at + BLOCK
        if start + header.size > whole:
            raise ValueError("it is cut off")
        count += 1
        if count > MOST_MEMBERS:
            raise ValueError(f"it has more than {MOST_MEMBERS:,} members")
        if header.kind in (b"L", b"x"):
            if header.size > LONGEST_EXTRA:
                raise ValueError("one of its headers is too long")
            content = os.pread(handle, header.size, start)
            said = content.rstrip(b"\0") if header.kind == b"L" else extended_name(content) or said
        elif header.kind not in (b"K", b"g"):
            name, said = header.name if said is None else said, None
            if header.plain and not name.endswith(b"/"):
                yield Member(name, start, header.size)
            elif header.kind != b"5":
                left_out.append((printable(f"{path.name}/") + printable(name), "not a regular file"))
        at = start + header.size + -header.size % BLOCK
    else:
        if whole:  # a download may have stopped between two members
            left_out.append((printable(path.name), "shard without its end"))


def _is_image(member: Member, path: Path, left_out: list[tuple[str, str]]) -> bool:
    """Whether a member is an image; captions, labels and the like beside one are no images and no faults."""
    if member.suffix in HEIF_SUFFIXES and not heif_known():
        why = f"{member.suffix.decode()} (pip install pillow-heif)"
        left_out.append((printable(f"{path.name}/") + printable(member.name), why))
        return False
    return member.suffix in SUFFIXES | HEIF_SUFFIXES


def _label(path: Path, member: Member) -> int:
    """The class number in a .cls file."""
    with reading(path, DataError), open_file(path) as file:
        text = os.pread(file.fileno(), min(member.size, LONGEST_LABEL), member.start).strip()
    if not text.isdigit() or member.size > LONGEST_LABEL or int(text) >= 2**31:
        raise DataError(f"{printable(member.name)} in {path} holds no class number.")
    return int(text)
