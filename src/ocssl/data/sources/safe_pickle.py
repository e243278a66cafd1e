"""Reads the pickles of CIFAR's python archive without running anything of theirs.

A pickle is a program. A scan first refuses every instruction but the few that Python 2 wrote for a dictionary of byte
strings, lists and arrays of bytes; then `pickle` runs them with stand-ins for the three names of numpy that occur,
which check what they are given. Nothing comes out larger than it went in.
"""

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl.errors import DataError

Bytes = npt.NDArray[np.uint8]

MOST_BYTES = 200 * 10**6  # of a file; the largest official one has 155 million
MOST_STEPS = 500_000  # instructions; the largest official file has about half as many
MOST_TUPLES = 16  # the largest official file has 6; nested ones take exponential time to hash
_CODES = {  # by instruction: bytes of its argument, and by how much the stack grows
    **dict.fromkeys((b"}", b"]", b"N", b"\x88", b"\x89", b"c"), (0, 1)),
    **dict.fromkeys((b"K", b"U", b"h"), (1, 1)),
    b"M": (2, 1),
    **dict.fromkeys((b"J", b"T", b"j"), (4, 1)),
    b"q": (1, 0),
    b"r": (4, 0),
    **dict.fromkeys((b"(", b"\x85", b"t", b"e", b"u"), (0, 0)),  # t, e and u take all down to the last mark
    **dict.fromkeys((b"\x86", b"a", b"R", b"b"), (0, -1)),
    **dict.fromkeys((b"\x87", b"s"), (0, -2)),
}


def read_pickled(data: bytes, name: str) -> dict[bytes, Any]:
    """What a pickled dictionary holds by key: byte strings, integers, lists of them, arrays uint8 (read-only).

    Anything else in it is a DataError that calls it by this name.
    """
    if len(data) > MOST_BYTES:
        raise DataError(f"{name} is too large to be read: {len(data)} bytes, at most {MOST_BYTES}.")
    try:
        _scan(data)
        content = _Unpickler(io.BytesIO(data), fix_imports=False, encoding="bytes").load()
        return _checked(content)
    except _Refused as error:
        reason = str(error)
    except Exception:  # pickle raises many kinds for what is scrambled
        reason = "it is cut off or scrambled"
    raise DataError(f"{name} is no file of CIFAR: {reason}; fetch it again.")


class _Refused(Exception):
    """Something that the official files do not have."""


def _scan(data: bytes) -> None:
    """Refuse instructions, names and amounts that the official files do not have."""
    if data[:2] != b"\x80\x02":
        raise _Refused("it is not a pickle of protocol 2")
    at, height, tuples = 2, 0, 0
    marks: list[int] = []  # heights of the stack
    for _ in range(MOST_STEPS):
        code, start = data[at : at + 1], at
        if code == b"." and height == 1 and not marks:
            return
        if code not in _CODES:
            raise _Refused(f"it has the instruction {code!r} (at byte {at})")
        size, growth = _CODES[code]
        at += 1 + size
        height += growth
        if code in b"UTr":
            number = int.from_bytes(data[at - size : at], "little", signed=code == b"T")
            if number < 0 or (code == b"r" and number > MOST_STEPS):
                raise _Refused("it has a string of negative length or too large a memo")
            at += number if code != b"r" else 0
        elif code == b"(":
            marks.append(height)
        elif code in b"teu":
            height = marks.pop() + (code == b"t")
        elif code == b"c":
            at = data.find(b"\n", data.find(b"\n", at) + 1) + 1
            if data[start + 1 : at - 1] not in _NAMES:
                raise _Refused(f"it names something other than arrays (at byte {start})")
        if code in b"t\x85\x86\x87":
            tuples += 1
            if tuples > MOST_TUPLES:
                raise _Refused("it has too many tuples")
        if at >= len(data):
            raise _Refused("it is cut off or scrambled")
    raise _Refused("it has too many instructions")


def _checked(content: Any) -> dict[bytes, Any]:
    if type(content) is not dict:
        raise _Refused("it is not one dictionary")
    for key, value in content.items():
        whole = all(map(_is_atom, value)) if type(value) is list else type(value) is _Array or _is_atom(value)
        if type(key) is not bytes or not whole:
            raise _Refused("its dictionary has something other than lists and arrays by name")
    return {key: value.pixels if type(value) is _Array else value for key, value in content.items()}


def _is_atom(item: object) -> bool:
    return item is None or type(item) in (bytes, int, bool)


# The stand-ins have __slots__, so that no instruction can give them attributes.


class _Array:
    """An array of bytes, made by `_Reconstruct` without a state."""

    __slots__ = ("pixels",)

    pixels: Bytes

    def __setstate__(self, state: Any) -> None:
        """From (version, shape, type, whether columns come first, content)."""
        version, shape, kind, by_column, content = state
        sizes = type(shape) is tuple and len(shape) == 2 and all(type(n) is int and n >= 0 for n in shape)
        if (
            hasattr(self, "pixels")
            or version != 1
            or type(kind) is not _Uint8
            or not sizes
            or type(content) is not bytes
        ):
            raise _Refused("it has an array that is no matrix of bytes")
        if shape[0] * shape[1] != len(content):
            raise _Refused("it has an array whose content does not fill it")
        self.pixels = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


class _NdArray:
    __slots__ = ()


class _Uint8:
    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """The state of a type of single bytes: no order, no fields, no size."""
        if state[1:5] != (b"|", None, None, None) or any(type(item) is not int for item in (state[0], *state[5:])):
            raise _Refused("it has something other than an array of bytes")


class _Reconstruct:
    __slots__ = ()

    def __call__(self, kind: Any, shape: Any, code: Any) -> _Array:
        if type(kind) is not _NdArray or shape != (0,) or code != b"b":
            raise _Refused("it calls for something other than an array of bytes")
        return _Array()


class _Dtype:
    __slots__ = ()

    def __call__(self, *arguments: Any) -> _Uint8:
        if arguments != (b"u1", 0, 1):
            raise _Refused("it calls for something other than an array of bytes")
        return _Uint8()


_NAMES: Mapping[bytes, type] = {
    b"numpy.core.multiarray\n_reconstruct": _Reconstruct,
    b"numpy\nndarray": _NdArray,
    b"numpy\ndtype": _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _NAMES[f"{module}\n{name}".encode()]()
