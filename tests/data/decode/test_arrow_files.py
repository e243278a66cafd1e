from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import REAL_DATA
from ocssl.data.decode import arrow_files as parquet
from ocssl.data.decode.arrow_files import ParquetFiles, read_column, read_paths, read_schema
from ocssl.errors import DataError, install

SHARED = REAL_DATA


def images(count: int, seed: int = 0, size: int = 40) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(rng.integers(1, size))) for _ in range(count)]


def write(path: Path, data: Sequence[bytes | None], rows: int = 4, **columns: Any) -> Path:
    """Images as the hub has them, `rows` in a row group, with further columns."""
    values = [None if d is None else {"bytes": d, "path": f"{n}.jpg"} for n, d in enumerate(data)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(values, kind), **columns})
    pq.write_table(table, path, row_group_size=rows)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[list[Path], list[bytes]]:
    data = images(23)
    return [write(tmp_path / "a.parquet", data[:10]), write(tmp_path / "b.parquet", data[10:], rows=5)], data


def test_rows_go_through_all_files(pair: tuple[list[Path], list[bytes]]) -> None:
    paths, data = pair
    files = ParquetFiles(paths)
    assert len(files) == 23
    for row in np.random.default_rng(1).permutation(23):
        assert files.read(int(row)) == data[row]
    assert files.name(9) == "a.parquet row 9 (9.jpg)"
    assert files.name(10) == "b.parquet row 0 (0.jpg)"
    assert files.name(22) == "b.parquet row 12 (12.jpg)"
    for row in (-1, 23):
        with pytest.raises(IndexError):
            files.read(row)


def test_subsets_of_subsets(pair: tuple[list[Path], list[bytes]]) -> None:
    paths, data = pair
    part = ParquetFiles(paths).subset(np.array([20, 3, 3, 11]))
    assert [part.read(row) for row in range(4)] == [data[20], data[3], data[3], data[11]]
    assert part.name(0) == "b.parquet row 10 (10.jpg)"
    inner = part.subset(np.array([3, 0]))
    assert [inner.read(row) for row in range(2)] == [data[11], data[20]]
    prints = {f.fingerprint() for f in (ParquetFiles(paths), part, inner)}
    assert len(prints) == 3
    assert ParquetFiles(paths).subset(np.array([11, 20])).fingerprint() == inner.fingerprint()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.struct([("bytes", pa.large_binary())])])
def test_a_column_of_bytes_will_do(tmp_path: Path, kind: pa.DataType) -> None:
    data = images(9)
    values = [{"bytes": d} for d in data] if pa.types.is_struct(kind) else data
    pq.write_table(pa.table({"img.raw": pa.array(values, kind)}), tmp_path / "x.parquet", row_group_size=2)
    files = ParquetFiles([tmp_path / "x.parquet"], "img.raw")
    assert [files.read(row) for row in range(9)] == data
    assert files.name(7) == "x.parquet row 7"


def test_rows_in_rising_order_read_each_row_group_once(
    pair: tuple[list[Path], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, data = pair
    read: list[int] = []
    inner = ParquetFiles._read_group

    def counted(self: ParquetFiles, group: int, column: str) -> Any:
        read.append(group)
        return inner(self, group, column)

    monkeypatch.setattr(ParquetFiles, "_read_group", counted)
    files = ParquetFiles(paths)
    assert [files.read(row) for row in range(23)] == data
    assert read == [0, 1, 2, 3, 4, 5]
    for row in (22, 17, 13, 9):
        files.read(row)
    assert len(read) == 6  # four groups are kept
    files.read(0)
    assert read[6:] == [0]
    monkeypatch.setattr(parquet, "KEPT_BYTES", 0)
    for row in (4, 9, 4):
        files.read(row)
    assert len(read) > 7  # only the newest is kept


WALK = """
import os, pathlib, sys
from ocssl.data.decode import arrow_files as parquet

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

parquet.KEPT_GROUPS = int(sys.argv[2])
files = parquet.ParquetFiles([pathlib.Path(sys.argv[1])])
for row in range(100):
    files.read(row)
before = resident()
for row in range(100, 1000):
    files.read(row)
print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc, which is not here")
@pytest.mark.slow
def test_resident_memory_stays_flat_over_ten_times_the_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = write(tmp_path / "x.parquet", [rng.bytes(2**16) for _ in range(1000)], rows=8)  # 63 MiB
    grown = {}
    for kept in (parquet.KEPT_GROUPS, 1000):
        command = [sys.executable, "-c", WALK, str(path), str(kept)]
        grown[kept] = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert grown[parquet.KEPT_GROUPS] < 15 * 2**20
    assert grown[1000] > 40 * 2**20  # what it would be if everything were kept


def test_a_copy_for_another_process_takes_nothing_along(pair: tuple[list[Path], list[bytes]]) -> None:
    paths, data = pair
    files = ParquetFiles(paths)
    empty = len(pickle.dumps(files))
    for row in range(23):
        files.read(row)
    sent = pickle.dumps(files)
    assert len(sent) == empty
    other = pickle.loads(sent)
    assert [other.read(row) for row in range(23)] == data
    assert other.fingerprint(times=True) == files.fingerprint(times=True)


def test_a_forked_process_does_not_share_a_lock(
    pair: tuple[list[Path], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, data = pair
    files = ParquetFiles(paths)
    files._lock.acquire()  # as by a thread that a fork leaves behind
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert files.read(3) == data[3]


def test_threads_read_the_same(pair: tuple[list[Path], list[bytes]]) -> None:
    paths, data = pair
    files = ParquetFiles(paths)
    rows = np.random.default_rng(0).integers(0, 23, 400).tolist()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(files.read, rows)) == [data[row] for row in rows]


def test_a_row_without_an_image_is_an_os_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [b"a", None, b"c"])
    files = ParquetFiles([path])
    assert (files.read(0), files.read(2)) == (b"a", b"c")
    with pytest.raises(OSError, match="no image in this row"):
        files.read(1)
    assert files.name(1) == "x.parquet row 1"


def test_a_file_that_vanished_is_an_os_error_when_it_is_read(pair: tuple[list[Path], list[bytes]]) -> None:
    paths, data = pair
    files = ParquetFiles(paths)
    paths[0].unlink()
    with pytest.raises(OSError, match=r"a\.parquet cannot be read as parquet: No such file"):
        files.read(0)
    assert files.name(0) == "a.parquet row 0"
    assert files.read(10) == data[10]
    assert files.fingerprint()


def test_images_and_row_groups_have_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = [b"0123456789" * 1000] * 200  # a dictionary in the file: 10 kB there, 2 MB in memory
    path = write(tmp_path / "x.parquet", same, rows=200)
    monkeypatch.setattr(parquet, "MOST_GROUP_BYTES", 10**6)
    with pytest.raises(OSError, match="more than 0 MiB in a row group"):
        ParquetFiles([path]).read(0)
    monkeypatch.setattr(parquet, "MOST_GROUP_BYTES", 2**30)
    monkeypatch.setattr(parquet, "MOST_BYTES", 9999)
    with pytest.raises(OSError, match="larger than"):
        ParquetFiles([path]).read(0)
    monkeypatch.setattr(parquet, "MOST_COLUMN_BYTES", 500)
    other = write(tmp_path / "y.parquet", images(99), label=list(range(99)))
    with pytest.raises(DataError, match="label has more than 0 MiB"):
        read_column([other], "label")
    monkeypatch.setattr(parquet, "MOST_GROUP_BYTES", 9000)
    with pytest.raises(DataError, match="rewrite it with row_group_size"):
        ParquetFiles([path])


def test_the_fingerprint_is_the_same_elsewhere_unless_it_is_of_times_too(
    pair: tuple[list[Path], list[bytes]], tmp_path: Path
) -> None:
    paths, _ = pair
    (tmp_path / "copy").mkdir()
    copies = [Path(shutil.copy2(path, tmp_path / "copy")) for path in paths]
    first, copy = ParquetFiles(paths), ParquetFiles(copies)
    assert first.fingerprint() == copy.fingerprint()
    os.utime(copies[0], ns=(1, 1))
    assert first.fingerprint() == copy.fingerprint()
    assert first.fingerprint(times=True) != copy.fingerprint(times=True)
    assert ParquetFiles(paths[:1]).fingerprint() != first.fingerprint()


@pytest.mark.parametrize(
    ("column", "message"),
    [("imge", "'imge': did you mean 'image'"), ("label", "is int64: images must"), ("x", "there are image, label")],
)
def test_a_wrong_column_is_named(tmp_path: Path, column: str, message: str) -> None:
    path = write(tmp_path / "x.parquet", images(3), label=[0, 1, 2])
    with pytest.raises(DataError, match=message):
        ParquetFiles([path], column)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.slow
def test_a_damaged_file_gives_only_data_errors_and_os_errors(tmp_path: Path, data: st.DataObject) -> None:
    whole = tmp_path / "whole.parquet"
    if not whole.exists():
        write(whole, images(9), label=list(range(9)))
    raw = bytearray(whole.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(raw)
    told = []
    try:
        files = ParquetFiles([broken])
        read_column([broken], "label")
        read_paths([broken])
    except DataError as error:
        told.append(str(error))
    else:
        for row in range(min(len(files), 20)):
            told.append(files.name(row))
            try:
                files.read(row)
            except OSError as error:
                told.append(str(error))
    assert all(sentence.isprintable() for sentence in told)


@pytest.mark.parametrize("rows", [-1, 2**31 + 1])
def test_impossible_numbers_of_rows_are_refused(rows: int) -> None:
    with pytest.raises(DataError, match="x is damaged"):
        parquet._rows_of(SimpleNamespace(num_rows=rows, total_byte_size=9), Path("x"))


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"x\.parquet cannot be read as parquet"):
        ParquetFiles([tmp_path / "x.parquet"])
    os.mkfifo(tmp_path / "pipe.parquet")
    for name, reason in (("pipe.parquet", "not a regular file"), ("nothing.parquet", "No such file")):
        with pytest.raises(DataError, match=reason):
            read_schema(tmp_path / name)


def test_columns_are_numbers_or_text_without_gaps(tmp_path: Path) -> None:
    columns = {
        "label": pa.array([3, 1, 2], pa.uint8()),
        "flag": [True, False, True],
        "text": ["b", "a", "b"],
        "coded": pa.array(["x", "y", "x"]).dictionary_encode(),
        "gaps": [1, None, 2],
        "real": [0.5, 1.0, 2.0],
    }
    paths = [write(tmp_path / f"{n}.parquet", images(3), rows=2, **columns) for n in range(2)]
    found = {name: read_column(paths, name) for name in ("label", "text", "flag", "coded")}
    assert np.array_equal(found["label"], [3, 1, 2, 3, 1, 2])
    assert found["label"].dtype == np.int64  # type: ignore[union-attr]
    assert np.array_equal(found["flag"], [1, 0, 1] * 2)
    assert found["text"] == ["b", "a", "b"] * 2
    assert found["coded"] == ["x", "y", "x"] * 2
    assert read_paths(paths) == ["0.jpg", "1.jpg", "2.jpg"] * 2
    for name, message in [("gaps", "1 rows with no value"), ("real", "is double"), ("labl", "did you mean 'label'")]:
        with pytest.raises(DataError, match=message):
            read_column(paths, name)
    other = write(tmp_path / "other.parquet", images(1), label=["three"])
    with pytest.raises(DataError, match="text in some files"):
        read_column([paths[0], other], "label")


def test_without_pyarrow_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.parquet", images(1))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=re.escape(install("data"))):
        ParquetFiles([path])


@pytest.mark.slow
def test_the_official_images_are_read() -> None:
    paths = sorted((SHARED / "cifar100").glob("test-*.parquet"))
    if not paths:
        pytest.skip("needs shared/data/cifar100, which is not here")
    files = ParquetFiles(paths)
    table = pq.read_table(paths[0], columns=["image"]).column("image")
    assert len(files) == len(table) == 10_000
    for row in np.random.default_rng(0).integers(0, 10_000, 50).tolist():
        assert files.read(row) == table[row]["bytes"].as_py()
        assert files.read(row)[8:12] == b"WEBP"
