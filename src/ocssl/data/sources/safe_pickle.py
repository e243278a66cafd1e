"""Reads the pickles of CIFAR's python archive without the means to run anything.

A pickle is a program. This machine knows the few instructions that Python 2 wrote for a dictionary of byte strings,
lists of numbers or byte strings and arrays of bytes; it calls nothing, and the names of numpy in the file stand for
marks of its own. Nothing nests deeper than it does there, and nothing comes out larger than it went in.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl.errors import DataError

Bytes = npt.NDArray[np.uint8]
Atom = bytes | int | None

MOST_BYTES = 200 * 10**6  # of a file; the largest official one has 155 million
MOST_STEPS = 500_000  # instructions; the largest official file has about half as many
_LONGEST_TUPLE = 8


class _Array:
    """An array that is being put together."""

    value: Bytes | None = None


_RECONSTRUCT, _NDARRAY, _DTYPE, _UINT8 = object(), object(), object(), object()
_NAMES: Mapping[bytes, object] = {
    b"numpy.core.multiarray\n_reconstruct": _RECONSTRUCT,
    b"numpy\nndarray": _NDARRAY,
    b"numpy\ndtype": _DTYPE,
}


def read_pickled(data: bytes, name: str) -> dict[bytes, Any]:
    """What a pickled dictionary holds by key: byte strings, integers, lists of them, arrays uint8 (read-only).

    Anything else in it is a DataError that calls it by this name.
    """
    if len(data) > MOST_BYTES:
        raise DataError(f"{name} is too large to be read: {len(data)} bytes, at most {MOST_BYTES}.")
    machine = _Machine(data)
    try:
        return machine.run()
    except _NotThis as error:
        reason = str(error)
    except (IndexError, KeyError, struct.error):
        reason = "it is cut off or scrambled"
    raise DataError(f"{name} is no file of CIFAR: {reason} (at byte {machine.at}); fetch it again.")


class _NotThis(Exception):
    """Something that the official files do not have."""


class _Machine:
    """A stack, a memo, and a place in the data."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._stack: list[Any] = []
        self._marks: list[int] = []  # heights of the stack
        self._memo: dict[int, Any] = {}

    def run(self) -> dict[bytes, Any]:
        if self._take(2) != b"\x80\x02":
            raise _NotThis("it is not a pickle of protocol 2")
        for _ in range(MOST_STEPS):
            code = self._take(1)
            if code == b".":
                return self._result()
            step = _STEPS.get(code)
            if step is None:
                raise _NotThis(f"it has the instruction {code!r}")
            step(self)
        raise _NotThis("it has too many instructions")

    def _result(self) -> dict[bytes, Any]:
        found = self._stack.pop()
        if type(found) is not dict or self._stack or self._marks:
            raise _NotThis("it is not one dictionary")
        return {key: value.value if type(value) is _Array else value for key, value in found.items()}

    # ---- reading

    def _take(self, size: int) -> bytes:
        taken = self._data[self.at : self.at + size]
        if size < 0 or len(taken) < size:
            raise IndexError
        self.at += size
        return taken

    def _integer(self, form: str) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def _popped(self) -> list[Any]:
        """What lies above the last mark."""
        height = self._marks.pop()
        items = self._stack[height:]
        del self._stack[height:]
        return items

    def _pop(self) -> Any:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise IndexError
        return self._stack.pop()

    # ---- instructions

    def push(self, value: object) -> None:
        self._stack.append(value)

    def integer(self, form: str) -> None:
        self.push(self._integer(form))

    def string(self, form: str) -> None:
        self.push(self._take(self._integer(form)))

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def put(self, form: str) -> None:
        self._memo[self._integer(form)] = self._stack[-1]

    def get(self, form: str) -> None:
        self.push(self._memo[self._integer(form)])

    def extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list or not all(map(_is_atom, items)):
            raise _NotThis("it has something other than a list of numbers or names")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise _NotThis("it fills something other than a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            whole = type(value) is list or (type(value) is _Array and value.value is not None)
            if type(key) is not bytes or not (whole or _is_atom(value)):
                raise _NotThis("its dictionary has something other than lists and arrays by name")
            target[key] = value

    def group(self, items: list[Any]) -> None:
        flat = all(type(item) is not tuple or all(map(_is_atom, item)) for item in items)
        if len(items) > _LONGEST_TUPLE or not flat:
            raise _NotThis("it has a tuple that is too long or too deep")
        self.push(tuple(items))

    def last(self, count: int) -> None:
        self.group([self._pop() for _ in range(count)][::-1])

    def name(self) -> None:
        end = -1
        for _ in range(2):
            end = self._data.find(b"\n", max(self.at, end + 1), self.at + 100)
            if end < 0:
                raise _NotThis("it names something other than arrays")
        found = _NAMES.get(self._data[self.at : end])
        if found is None:
            raise _NotThis("it names something other than arrays")
        self.at = end + 1
        self.push(found)

    def reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if function is _RECONSTRUCT and arguments == (_NDARRAY, (0,), b"b"):
            self.push(_Array())
        elif function is _DTYPE and arguments == (b"u1", 0, 1):
            self.push(_UINT8)
        else:
            raise _NotThis("it calls for something other than an array of bytes")

    def build(self) -> None:
        state, target = self._pop(), self._stack[-1]
        if type(state) is not tuple:
            raise _NotThis("it has an array without a state")
        if type(target) is _Array and target.value is None:
            target.value = _array(state)
        elif target is not _UINT8 or not _says_nothing(state):
            raise _NotThis("it has something other than an array of bytes")


def _is_atom(item: object) -> bool:
    return item is None or type(item) in (bytes, int, bool)


def _says_nothing(state: tuple[Any, ...]) -> bool:
    """Whether this is the state of a type of single bytes: no order, no fields, no size."""
    return state[1:5] == (b"|", None, None, None) and all(type(item) is int for item in (state[0], *state[5:]))


def _array(state: tuple[Any, ...]) -> Bytes:
    """The array of (version, shape, type, whether columns come first, content)."""
    if len(state) != 5:
        raise _NotThis("it has an array that is no matrix of bytes")
    version, shape, kind, by_column, content = state
    sizes = type(shape) is tuple and len(shape) == 2 and all(type(n) is int and n >= 0 for n in shape)
    if version != 1 or kind is not _UINT8 or not sizes or type(content) is not bytes:
        raise _NotThis("it has an array that is no matrix of bytes")
    if shape[0] * shape[1] != len(content):
        raise _NotThis("it has an array whose content does not fill it")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


_STEPS: Mapping[bytes, Callable[[_Machine], None]] = {
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.integer("<B"),
    b"M": lambda m: m.integer("<H"),
    b"J": lambda m: m.integer("<i"),
    b"U": lambda m: m.string("<B"),
    b"T": lambda m: m.string("<i"),
    b"(": _Machine.mark,
    b"q": lambda m: m.put("<B"),
    b"r": lambda m: m.put("<I"),
    b"h": lambda m: m.get("<B"),
    b"j": lambda m: m.get("<I"),
    b"a": lambda m: m.extend([m._pop()]),
    b"e": lambda m: m.extend(m._popped()),
    b"s": lambda m: m.update([m._pop(), m._pop()][::-1]),
    b"u": lambda m: m.update(m._popped()),
    b"t": lambda m: m.group(m._popped()),
    b"\x85": lambda m: m.last(1),
    b"\x86": lambda m: m.last(2),
    b"\x87": lambda m: m.last(3),
    b"c": _Machine.name,
    b"R": _Machine.reduce,
    b"b": _Machine.build,
}
