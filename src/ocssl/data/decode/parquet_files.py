"""Encoded images that are a column of parquet files, as the Hugging Face hub keeps them."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ocssl.data.decode.arrow_files import Column, check_plain, image_fields, plain_values, pyarrow
from ocssl.data.decode.encoded import Rows, printable
from ocssl.data.decode.folder_files import MOST_BYTES
from ocssl.errors import DataError

MOST_GROUP_BYTES = 2**30  # of a row group, whose images are read together
MOST_ROWS = 2**31  # of a row group
MOST_COLUMN_BYTES = 2**32  # of labels or paths in a file
KEPT_BYTES = 2**28  # of row groups kept for the next row, the newest one aside
KEPT_GROUPS = 4
ROWS_AT_ONCE = 64


class ParquetFiles:
    """Images by their row in parquet files, one after the other: a struct column with `bytes`, or a binary column.

    Row groups are read whole and a few are kept, so rows are cheap in rising order. Nothing is open between two reads,
    and a copy that is sent to another process starts empty.
    """

    def __init__(self, paths: Sequence[Path], column: str = "image") -> None:
        self.paths = [Path(path) for path in paths]
        self.column = column
        self.rows: Rows | None = None  # which rows of the files; None: all
        self._fields: list[tuple[str, str]] = []  # of each file: the columns of the bytes and of the path, "" for none
        groups: list[tuple[int, int, int]] = []  # file, row group in it, rows
        for number, path in enumerate(self.paths):
            with opened(path) as file:
                self._fields.append(image_fields(file.schema_arrow, column, path))
                for group in range(file.metadata.num_row_groups):
                    rows = _rows_of(file.metadata.row_group(group), path)
                    groups.append((number, group, rows))
        table = np.array(groups, dtype=np.int64).reshape(-1, 3)
        self._groups = table[:, :2]
        self._starts = np.concatenate(([0], table[:, 2].cumsum()))
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_kept", "_lock", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._kept: OrderedDict[tuple[int, str], Any] = OrderedDict()  # values of (row group, column), or an OSError
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __len__(self) -> int:
        return int(self._starts[-1]) if self.rows is None else len(self.rows)

    def name(self, row: int) -> str:
        group, within = self._place(row)
        file = self._groups[group, 0]
        first = self._starts[np.searchsorted(self._groups[:, 0], file)]
        name = f"{self.paths[file].name} row {self._starts[group] + within - first}"
        column = self._fields[file][1]
        try:
            path = self._value(group, within, column) if column else None
        except OSError:
            path = None
        return printable(f"{name} ({path})" if path else name)

    def read(self, row: int) -> bytes:
        group, within = self._place(row)
        data = self._value(group, within, self._fields[self._groups[group, 0]][0])
        if data is None:
            raise OSError(errno.ENOENT, "no image in this row")
        if len(data) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB")
        return bytes(data)

    def subset(self, rows: Rows) -> ParquetFiles:
        part = object.__new__(ParquetFiles)
        part.__setstate__(self.__getstate__())
        part.rows = np.array(rows, dtype=np.int64) if self.rows is None else self.rows[rows]
        return part

    def stored(self) -> Rows:
        return np.arange(len(self)) if self.rows is None else self.rows

    def fingerprint(self) -> str:
        return self._digest(times=False)

    def stamp(self) -> str:
        return self._digest(times=True)

    def _digest(self, times: bool) -> str:
        facts: list[object] = [self.column]
        for path in self.paths:
            try:
                found = path.stat()
                facts.append((path.name, found.st_size, found.st_mtime_ns if times else 0))
            except OSError:
                facts.append((path.name, None))
        rows = b"" if self.rows is None else self.rows.astype("<i8").tobytes()
        return hashlib.sha256(repr(facts).encode("utf-8", "backslashreplace") + b"\0" + rows).hexdigest()

    def _place(self, row: int) -> tuple[int, int]:
        """The row group of a row, counted through all files, and the place in it."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        at = row if self.rows is None else int(self.rows[row])
        group = int(np.searchsorted(self._starts, at, side="right")) - 1
        return group, at - int(self._starts[group])

    def _value(self, group: int, within: int, column: str) -> Any:
        if self._process != os.getpid():  # a fork: a thread that is not here may have held the lock
            self._forget()
        with self._lock:
            values = self._kept.get((group, column))
            if values is None:
                values = self._kept[group, column] = self._read_group(group, column)
                self._drop_oldest()
            self._kept.move_to_end((group, column))
        if isinstance(values, OSError):
            raise OSError(*values.args)
        if within >= len(values):
            raise OSError(errno.EIO, "its row group ends before this row")
        return values[within].as_py()

    def _drop_oldest(self) -> None:
        kept = len(self._kept)
        weight = sum(0 if isinstance(values, OSError) else values.nbytes for values in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > KEPT_GROUPS or weight > KEPT_BYTES):
            _, oldest = self._kept.popitem(last=False)
            weight -= 0 if isinstance(oldest, OSError) else oldest.nbytes
        if len(self._kept) < kept:
            pyarrow().default_memory_pool().release_unused()

    def _read_group(self, group: int, column: str) -> Any:
        """The values of a column in a row group, or the error, which is kept so that it is met only once."""
        number, within = (int(n) for n in self._groups[group])
        try:
            with opened(self.paths[number]) as file:
                return _read_batches(file, column, [within], ROWS_AT_ONCE, MOST_GROUP_BYTES)
        except DataError as error:
            return OSError(errno.EIO, str(error).rstrip("."))


def read_schema(path: Path) -> Any:
    """The pyarrow schema of a parquet file, with the metadata its writer left."""
    with opened(path) as file:
        return file.schema_arrow


def read_columns(paths: Sequence[Path], names: Sequence[str]) -> dict[str, Column]:
    """Columns of integers (int64 [n]) or text (a list) through all files; a null is an error."""
    return {name: _joined(paths, name) for name in names}


def read_paths(paths: Sequence[Path], column: str = "image") -> list[str | None]:
    """The `path` of every image through all files, None where a row has none."""
    found: list[str | None] = []
    for path in paths:
        with opened(path) as file:
            field = image_fields(file.schema_arrow, column, path)[1]
            found += _read_column(file, field, path).to_pylist() if field else [None] * file.metadata.num_rows
    return found


def _joined(paths: Sequence[Path], name: str) -> Column:
    parts: list[Column] = []
    for path in paths:
        with opened(path) as file:
            check_plain(file.schema_arrow, name, path)
            parts.append(plain_values(_read_column(file, name, path), name, path))
    words = [part for part in parts if isinstance(part, list)]
    numbers = [part for part in parts if not isinstance(part, list)]
    if words and any(map(len, numbers)):
        raise DataError(printable(f"column {name!r} is text in some files of {paths[0].parent}, integers in others."))
    return [word for part in words for word in part] if words else np.concatenate(numbers)


def _read_column(file: Any, column: str, path: Path) -> Any:
    """A chunked array of all values of a column; of `image.path` the paths."""
    values = _read_batches(file, column, list(range(file.metadata.num_row_groups)), 65536, MOST_COLUMN_BYTES)
    if len(values) != sum(_rows_of(file.metadata.row_group(n), path) for n in range(file.metadata.num_row_groups)):
        raise DataError(f"{printable(str(path))} is damaged: column {column} has {len(values)} rows.")
    return values


def _read_batches(file: Any, column: str, groups: list[int], rows: int, most: int) -> Any:
    """A chunked array of a column's values in some row groups, so many at a time and no more than `most` bytes."""
    chunks, weight = [], 0
    nested = column not in file.schema_arrow.names
    for batch in file.iter_batches(rows, row_groups=groups, columns=[column], use_threads=False):
        values = batch.column(0)
        chunks.append(values.field(0) if nested else values)
        weight += chunks[-1].nbytes
        if weight > most:
            raise DataError(f"column {column} has more than {most // 2**20} MiB in a row group or file.")
    return pyarrow().chunked_array(chunks, chunks[0].type if chunks else pyarrow().null())


def _rows_of(group: Any, path: Path) -> int:
    """The rows of a row group, after a look at how large it is said to be."""
    # pyarrow ends the process where it is asked for a column's own size and that column's metadata are damaged
    if group.total_byte_size > MOST_GROUP_BYTES:
        raise DataError(
            f"{printable(str(path))} has a row group of {group.total_byte_size / 2**30:.1f} GiB; "
            f"{MOST_GROUP_BYTES / 2**30:.0f} GiB is the most: write it anew with row_group_size=1000 or so."
        )
    if not 0 <= group.num_rows <= MOST_ROWS:
        raise DataError(f"{printable(str(path))} is damaged: it has a row group of {group.num_rows} rows.")
    return int(group.num_rows)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An open pyarrow ParquetFile; whatever pyarrow finds wrong with it, then or later, is a DataError."""
    arrow = pyarrow()
    try:
        if not path.is_file():  # opening a FIFO would wait for ever
            raise DataError(f"there is no file {printable(str(path))}.")
        with open(path, "rb") as source, arrow.parquet.ParquetFile(source, pre_buffer=False) as file:
            yield file
    except DataError:
        raise
    except (arrow.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
        known = isinstance(error, OSError) and error.strerror
        reason = printable(str(known or error).strip().partition("\n")[0].rstrip(".")) or type(error).__name__
        raise DataError(f"{printable(str(path))} cannot be read as parquet: {reason:.200}.") from None
