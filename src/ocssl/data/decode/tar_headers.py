"""Headers of tar archives, read by hand: `tarfile` takes headers of any declared length into memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

BLOCK = 512
LONGEST_EXTRA = 2**16  # bytes of what a tar says of the next member


@dataclass(frozen=True)
class Header:
    """What a tar says of a member."""

    name: bytes
    size: int
    kind: bytes

    @property
    def plain(self) -> bool:
        """Whether the member is a plain file."""
        return self.kind in (b"0", b"\0", b"7")


def read_header(block: bytes) -> Header:
    """A header of 512 bytes; a ValueError if it is none."""
    if not sum_is_right(block):
        raise ValueError("one of its headers has a wrong checksum")
    size = octal(block[124:136])
    if size is None:
        raise ValueError("one of its headers has no size")
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":  # GNU tar keeps other things where the standard has the first part of a name
        name = block[345:500].partition(b"\0")[0] + b"/" * bool(block[345]) + name
    return Header(name, size, block[156:157])


def sum_is_right(block: bytes) -> bool:
    return octal(block[148:156]) == sum(block[:148]) + 8 * ord(" ") + sum(block[156:])


def octal(digits: bytes) -> int | None:
    number = re.fullmatch(rb" *([0-7]+)[ \0]*", digits)
    return int(number[1], 8) if number else None


def extended_name(content: bytes) -> bytes | None:
    """The name that a pax header gives the next member; a ValueError for a size, which only huge members have."""
    name, at = None, 0
    while at < len(content):
        length, _, _ = content[at : at + 8].partition(b" ")
        if not length.isdigit() or not len(length) < int(length) <= len(content) - at:
            raise ValueError("one of its extended headers makes no sense")
        key, _, value = content[at + len(length) + 1 : at + int(length) - 1].partition(b"=")
        if key == b"size":
            raise ValueError("one of its members is larger than 8 GiB")
        name = value if key == b"path" else name
        at += int(length)
    return name
