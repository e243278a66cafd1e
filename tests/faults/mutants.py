"""Hypothesis strategies for damaged files: changed bytes of any file, changed values of JSON and TOML."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import tomli_w
from hypothesis import strategies as st

NUMBERS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 8, b"9" * 5000)
WORDS = (
    b"[" * 2000,
    b"{",
    b"}",
    b'"',
    b"\n",
    b"\0",
    b"\xff",
    b"\xe2\x80\xae",
    b"NaN",
    b"1e999",
    b"a." * 600,
    b"../",
    b"-",
)
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1e308, float("nan"), float("inf"),
    "", "x", "solar", "linear", "\ud800", "a\nb\x1b[31m", "../" * 9, "x" * 5000,
    [], {}, [1, "a", None], [[[]]], {"": 1}, {"name": 3},
)  # fmt: skip


@st.composite
def changed_bytes(draw: st.DrawFn, sound: Sequence[bytes]) -> bytes:
    """One of some sound files with up to four kinds of damage."""
    data = bytearray(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(1, 64))
        match draw(st.integers(0, 7)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[at:]
            case 2:
                del data[at : at + length]
            case 3:
                word = draw(st.sampled_from(NUMBERS))
                data[at : at + len(word)] = word
            case 4:
                data[at:at] = draw(st.sampled_from(WORDS))
            case 5:
                data[at:at] = data[at : at + length] * draw(st.integers(1, 20))
            case 6:
                data[at : at + length] = bytes(min(length, len(data) - at))
            case 7:
                data[at:] = draw(st.sampled_from(sound))[at:]
    return bytes(data)


@st.composite
def changed_values(draw: st.DrawFn, sound: Sequence[Any], pack: Callable[[Any], bytes]) -> bytes:
    """One of some sound trees with up to three values replaced, removed, renamed or added, as a file."""
    tree = copy.deepcopy(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, 3))):
        place = tree
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.integers(0, 3)):
                place = place[key]
                continue
            match draw(st.integers(0, 5)):
                case 0:
                    del place[key]
                case 1 if isinstance(place, dict):
                    place[draw(st.sampled_from(["", "name", "x.y", f"{key}s", "\x00"]))] = place.pop(key)
                case _:
                    place[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
            break
    return pack(tree)


def as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def as_toml(tree: Any) -> bytes:
    return tomli_w.dumps(_without_none(tree)).encode("utf-8", "surrogatepass")


def _without_none(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_none(value) for key, value in tree.items() if value is not None}
    return [_without_none(value) for value in tree if value is not None] if isinstance(tree, list) else tree
