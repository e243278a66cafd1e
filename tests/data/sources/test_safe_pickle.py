"""The reader of pickles runs nothing, holds no more than the file, and reads what Python 2 wrote."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cifar_files import META, Small, array, md5, python2
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.data.sources import safe_pickle as pickled
from ocssl.data.sources.cifar import CLASSES, SUPERCLASSES
from ocssl.data.sources.safe_pickle import read_pickled
from ocssl.errors import DataError

ONE = b"\x80\x02}U\x01k"  # a dictionary whose only value follows, then s.


def value(code: bytes) -> bytes:
    return ONE + code + b"s."


def nested(code: bytes, depth: int) -> bytes:
    return b"\x80\x02" + b"}U\x01k" + code * depth + b"s" * depth + b"."


class Runs:
    """Unpickled, it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def test_the_writer_of_these_tests_makes_the_official_meta_file_bit_for_bit() -> None:
    assert md5(META) == "7973b15100ade9c7d40fb424638fde48"


def test_the_official_meta_file_is_read() -> None:
    meta = read_pickled(META, "meta")
    assert list(meta) == [b"fine_label_names", b"coarse_label_names"]
    assert [name.decode() for name in meta[b"fine_label_names"]] == list(CLASSES)
    assert [name.decode() for name in meta[b"coarse_label_names"]] == list(SUPERCLASSES)


def test_a_file_of_images_is_read_as_pickle_would_read_it() -> None:
    data = Small().pickled("train")
    found, real = read_pickled(data, "train"), pickle.loads(data, encoding="bytes")
    assert found.keys() == real.keys()
    assert all(found[key] == real[key] for key in real if key != b"data")
    assert found[b"data"].dtype == np.uint8
    assert np.array_equal(found[b"data"], real[b"data"])


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 7)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_either_order_are_read(shape: tuple[int, int], order: Any) -> None:
    pixels = np.asarray(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8), order=order)
    assert np.array_equal(read_pickled(value(array(pixels)), "train")[b"k"], pixels)


atoms = st.one_of(st.none(), st.booleans(), st.binary(max_size=300), st.integers(-(2**31), 2**31 - 1))
contents = st.dictionaries(st.binary(max_size=8), st.one_of(atoms, st.lists(atoms, max_size=20)), max_size=8)


@given(contents)
@settings(deadline=None)
def test_what_python_2_could_write_comes_back(content: dict[bytes, Any]) -> None:
    written = b"\x80\x02}("
    for key, item in content.items():
        cells = item if isinstance(item, list) else [item]
        inside = b"".join(map(_atom, cells))
        written += _atom(key) + (b"](" + inside + b"e" if isinstance(item, list) else inside)
    assert read_pickled(written + b"u.", "test") == content


def _atom(item: Any) -> bytes:
    if isinstance(item, bytes):
        return b"U" + bytes([len(item)]) + item if len(item) < 256 else b"T" + struct.pack("<i", len(item)) + item
    if isinstance(item, int) and not isinstance(item, bool):
        return b"J" + struct.pack("<i", item)
    return {None: b"N", True: b"\x88", False: b"\x89"}[item]


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_runs_a_command_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "it-ran"
    data = pickle.dumps({b"data": Runs(f"touch {mark}")}, protocol)
    with pytest.raises(DataError, match="train is no file of CIFAR"):
        read_pickled(data, "train")
    assert not mark.exists()
    pickle.loads(data)  # what a reader does that is not careful
    assert mark.exists()


STATE = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
MAKE = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R"
TYPE = b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R" + STATE
HOSTILE = {
    "a command": value(b"cos\nsystem\nU\x04true\x85R"),
    "a command as instance": value(b"(U\x04trueios\nsystem\n"),
    "a command as object": value(b"(cos\nsystem\nU\x04trueo"),
    "eval": value(b"c__builtin__\neval\nU\x011\x85R"),
    "a class made by newobj": value(b"cnumpy\nndarray\n)\x81"),
    "another name of numpy": value(b"cnumpy.core.multiarray\nscalar\n)R"),
    "a name with dots": value(b"cnumpy\nndarray.__class__\n)R"),
    "a name without end": b"\x80\x02c" + b"n" * 1000,
    "a name without module": b"\x80\x02cnumpy\n" + b"n" * 1000,
    "a class itself": value(b"cnumpy\nndarray\n"),
    "the extension registry": value(b"\x82\x01"),
    "a larger extension code": value(b"\x84\x01\0\0\0"),
    "a persistent id": value(b"Pthing\n"),
    "a binary persistent id": value(b"U\x01xQ"),
    "a long of a gigabyte": value(b"\x8b\xff\xff\xff\x3f"),
    "a string of two gigabytes": value(b"T\xff\xff\xff\x7f"),
    "a string of negative length": value(b"T\xff\xff\xff\xff"),
    "a number in text": value(b"I" + b"9" * 10_000 + b"\n"),
    "a unicode escape": value(b"Vx\n"),
    "a float": value(b"G" + bytes(8)),
    "an array of another subtype": value(MAKE.replace(b"ndarray", b"dtype\0\0") + b"Nb"),
    "an array of a terabyte": value(MAKE + b"(K\x01J\0\0\0\x40J\0\4\0\0\x86" + TYPE + b"\x89U\1xtb"),
    "an array of negative size": value(MAKE + b"(K\x01J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86" + TYPE + b"\x89U\1xtb"),
    "an array of one dimension": value(MAKE + b"(K\x01K\x01\x85" + TYPE + b"\x89U\1xtb"),
    "an array whose shape is a list": value(MAKE + b"(K\x01](K\x01K\x01e" + TYPE + b"\x89U\1xtb"),
    "an array of objects": value(MAKE + b"(K\x01K\1K\1\x86cnumpy\ndtype\nU\2O8K\0K\1\x87R\x89]tb"),
    "an array of a list": value(MAKE + b"(K\x01K\0K\0\x86" + TYPE + b"\x89]tb"),
    "an array without type": value(MAKE + b"(K\x01K\1K\1\x86N\x89U\1xtb"),
    "an array without state": value(MAKE),
    "an array with a short state": value(MAKE + b"(K\x01tb"),
    "an array with a state of a dictionary": value(MAKE + b"}b"),
    "an array built twice": value(array(np.zeros((1, 1), np.uint8)) + b"(K\x01K\1K\1\x86" + TYPE + b"\x89U\1xtb"),
    "arguments of another kind": value(b"cnumpy.core.multiarray\n_reconstruct\n]R"),
    "a type with fields": value(b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|N}NK\0K\0K\0tb"),
    "a type with an empty state": value(b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R)b"),
    "a type with a state too short": value(b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(ttb"),
    "an array whose type has fields": value(
        MAKE + b"(K\x01K\1K\1\x86" + TYPE.replace(b"|NNN", b"|N}N") + b"\x89U\1xtb"
    ),
    "an array whose type has a size": value(
        MAKE + b"(K\x01K\1K\1\x86" + TYPE.replace(b"J\xff\xff\xff\xffK", b"NK") + b"\x89U\1xtb"
    ),
    "a dictionary that is built": value(b"}}b"),
    "a list that is built": value(b"](K\1K\2tb"),
    "a list in a list": value(b"]]a"),
    "a dictionary in a dictionary": value(b"}"),
    "a list that holds itself": value(b"]q\1h\1a"),
    "a dictionary that holds itself": b"\x80\x02}q\1U\1kh\1s.",
    "deep lists": nested(b"]]", 100_000),
    "deep dictionaries": nested(b"}U\x01k", 100_000),
    "deep tuples": value(b"K\1" + b"\x85" * 100_000),
    "a key that takes for ever to hash": b"\x80\x02}K\1" + b"q\1h\1\x86" * 60 + b"Ns.",
    "a long tuple": value(b"(" + b"N" * 100_000 + b"t"),
    "an integer as key": b"\x80\x02}K\1K\1s.",
    "a list as key": b"\x80\x02}]K\1s.",
    "a key without value": b"\x80\x02}(U\x01ku.",
    "nothing in the memo": value(b"h\7"),
    "nothing on the stack": b"\x80\x02q\1.",
    "nothing at all": b"",
    "no protocol": b"}.",
    "another protocol": b"\x80\x04}.",
    "the protocol twice": b"\x80\x02\x80\x02}.",
    "no end": b"\x80\x02}",
    "no mark": b"\x80\x02}K\1e.",
    "two values": b"\x80\x02}}.",
    "a mark left over": b"\x80\x02(}.",
    "a list, no dictionary": b"\x80\x02].",
    "something below the mark": b"\x80\x02}(s.",
    "an entry below the mark": b"\x80\x02}U\x01kN(su.",
    "a string that goes back": value(b"T\xfb\xff\xff\xff"),
}
MANY = {
    "lists": b"]" * 600_000,
    "marks": b"(" * 600_000,
    "places in the memo": b"}" + b"".join(b"r" + struct.pack("<I", n) for n in range(600_000)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_refused(case: str) -> None:
    with pytest.raises(DataError, match=r"^train is no file of CIFAR: .*fetch it again\.$"):
        read_pickled(HOSTILE[case], "train")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("a command", "it names something other than arrays (at byte 6)"),
        ("the extension registry", r"it has the instruction b'\x82' (at byte 6)"),
        ("deep tuples", "it has too many tuples"),
        ("a long tuple", "its dictionary has something other than lists and arrays by name"),
        ("a string that goes back", "it has a string of negative length or too large a memo"),
        ("no end", "it is cut off or scrambled"),
        ("another protocol", "it is not a pickle of protocol 2"),
    ],
)
def test_the_reason_is_said(case: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        read_pickled(HOSTILE[case], "train")
    assert f": {reason}" in str(caught.value)


@pytest.mark.parametrize("case", MANY)
@pytest.mark.slow
def test_the_number_of_instructions_is_bounded(case: str) -> None:
    with pytest.raises(DataError, match="too many instructions"):
        read_pickled(b"\x80\x02" + MANY[case], "train")


@pytest.mark.parametrize("case", MANY)
def test_an_instruction_costs_no_more_than_some_hundred_bytes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "MOST_STEPS", 20_000)
    data = b"\x80\x02" + MANY[case]
    assert peak(lambda: read_pickled(data, "train")) < 20_000 * 250


def test_an_array_is_not_made_as_large_as_it_says() -> None:
    assert peak(lambda: read_pickled(HOSTILE["an array of a terabyte"], "train")) < 100_000


def peak(read: Callable[[], object]) -> int:
    """The most memory that it takes to refuse something."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_file_that_is_too_large_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "MOST_BYTES", len(META) - 1)
    with pytest.raises(DataError, match="too large"):
        read_pickled(META, "meta")


def test_a_pickle_cut_off_anywhere_is_refused() -> None:
    data = python2({b"fine_labels": [1, 2, 3], b"data": np.zeros((2, 3), np.uint8)})
    for end in range(len(data)):
        with pytest.raises(DataError):
            read_pickled(data[:end], "train")


def test_a_pickle_with_flipped_bits_is_read_or_refused() -> None:
    data = python2({b"fine_labels": [1, 2, 3], b"batch": b"one", b"data": np.zeros((2, 3), np.uint8)})
    refused = 0
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        try:
            assert isinstance(read_pickled(bytes(changed), "train"), dict)
        except DataError:
            refused += 1
    assert refused > 4 * len(data)


@given(st.lists(st.sampled_from([*pickled._CODES, b".", b"\1", b"\0", b"numpy\ndtype\n"]), max_size=60))
@settings(deadline=None, max_examples=300)
def test_any_sequence_of_instructions_is_read_or_refused(steps: list[bytes]) -> None:
    with suppress(DataError):
        assert isinstance(read_pickled(b"\x80\x02" + b"".join(steps), "train"), dict)
