"""Encoded images in a column of parquet files, or of the Arrow files that the package `datasets` keeps."""

import copy
import errno
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from ocssl._files.untrusted import open_file, reason
from ocssl.data.decode.files import MOST_BYTES, Rows, read_inside
from ocssl.errors import DataError, install, nearest, printable

Values = npt.NDArray[np.int64] | list[str]

MOST_GROUP_BYTES = 2**30  # of a row group, whose images are read together
MOST_ROWS = 2**31  # of a row group
MOST_COLUMN_BYTES = 2**32  # of labels or paths in a file
KEPT_BYTES = 2**28  # of row groups kept for the next row, the newest one aside
KEPT_GROUPS = 4
ROWS_AT_ONCE = 64
_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError)  # of pyarrow, beside its own


class _ColumnFiles:
    """Images by their row in a column of files, one after the other: a struct with `bytes`, or binary values.

    Nothing is open between two reads, and a copy that is sent to another process starts empty.
    """

    _by_name: ClassVar[bool]  # whether the names of the files are part of the fingerprint
    _length: int

    def __init__(self, paths: Sequence[Path], column: str) -> None:
        self.paths = [Path(path) for path in paths]
        self.column = column
        self.rows: Rows | None = None  # which rows of the files; None: all

    def __len__(self) -> int:
        return self._length if self.rows is None else len(self.rows)

    def name(self, row: int) -> str:
        at = self._at(row)
        try:
            path = self._value(at, "path")
        except OSError:
            path = None
        return printable(self._title(at) + (f" ({path})" if path else ""))

    def read(self, row: int) -> bytes:
        data = self._value(self._at(row), "bytes")
        if data is None:
            raise OSError(errno.ENOENT, "no image in this row")
        if len(data) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB")
        return bytes(data)

    def subset(self, rows: Rows) -> Self:
        chosen = copy.copy(self)
        chosen.rows = np.array(rows, dtype=np.int64) if self.rows is None else self.rows[rows]
        return chosen

    def stored(self) -> Rows:
        return np.arange(len(self)) if self.rows is None else self.rows

    def fingerprint(self, times: bool = False) -> str:
        facts: list[object] = [self.column]
        for path in self.paths:
            if path.is_file():
                found = path.stat()
                name = [path.name] if self._by_name else []
                facts.append((*name, found.st_size, found.st_mtime_ns if times else 0))
        rows = b"" if self.rows is None else self.rows.astype("<i8").tobytes()
        return hashlib.sha256(repr(facts).encode("utf-8", "backslashreplace") + b"\0" + rows).hexdigest()

    def _at(self, row: int) -> int:
        """The row in the files of a row of this subset."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return row if self.rows is None else int(self.rows[row])

    def _title(self, row: int) -> str:
        raise NotImplementedError

    def _value(self, row: int, field: Literal["bytes", "path"]) -> Any:
        raise NotImplementedError


class ParquetFiles(_ColumnFiles):
    """Images in parquet files. Row groups are read whole and a few are kept, so rows are cheap in rising order."""

    _by_name = True

    def __init__(self, paths: Sequence[Path], column: str = "image") -> None:
        super().__init__(paths, column)
        self._fields: list[tuple[str, str]] = []  # of each file: the columns of the bytes and of the path, "" for none
        groups: list[tuple[int, int, int]] = []  # file, row group in it, rows
        for number, path in enumerate(self.paths):
            with opened(path) as file:
                self._fields.append(image_fields(file.schema_arrow, column, path))
                count = file.metadata.num_row_groups
                groups += [(number, group, _rows_of(file.metadata.row_group(group), path)) for group in range(count)]
        table = np.array(groups, dtype=np.int64).reshape(-1, 3)
        self._groups = table[:, :2]
        self._starts = np.concatenate(([0], table[:, 2].cumsum()))
        self._length = int(self._starts[-1])
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

    def _title(self, row: int) -> str:
        file = self._groups[self._group(row), 0]
        first = self._starts[np.searchsorted(self._groups[:, 0], file)]
        return f"{self.paths[file].name} row {row - first}"

    def _group(self, row: int) -> int:
        """The row group of a row, counted through all files."""
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _value(self, row: int, field: Literal["bytes", "path"]) -> Any:
        if self._process != os.getpid():  # a fork: a thread that is not here may have held the lock
            self._forget()
        group = self._group(row)
        column = self._fields[self._groups[group, 0]][field == "path"]
        if not column:
            return None
        with self._lock:
            values = self._kept.get((group, column))
            if values is None:
                values = self._kept[group, column] = self._read_group(group, column)
                self._drop_oldest()
            self._kept.move_to_end((group, column))
        if isinstance(values, OSError):
            raise OSError(*values.args)
        within = row - int(self._starts[group])
        if within >= len(values):
            raise OSError(errno.EIO, "its row group ends before this row")
        return values[within].as_py()

    def _drop_oldest(self) -> None:
        sizes = [getattr(values, "nbytes", 0) for values in self._kept.values()]  # an OSError has none
        dropped = 0
        while len(sizes) - dropped > 1 and (len(sizes) - dropped > KEPT_GROUPS or sum(sizes[dropped:]) > KEPT_BYTES):
            self._kept.popitem(last=False)
            dropped += 1
        if dropped:
            pyarrow().default_memory_pool().release_unused()

    def _read_group(self, group: int, column: str) -> Any:
        """The values of a column in a row group, or the error, which is kept so that it is met only once."""
        number, within = (int(n) for n in self._groups[group])
        try:
            with opened(self.paths[number]) as file:
                return _read_batches(file, column, [within], ROWS_AT_ONCE, MOST_GROUP_BYTES)
        except DataError as error:
            return OSError(errno.EIO, reason(error))


class ArrowFiles(_ColumnFiles):
    """Images in Arrow stream files, which are mapped into memory when they are first read.

    A row without bytes may name a file; it is read only if it is in one of the given folders.
    """

    _by_name = False

    def __init__(self, paths: Sequence[Path], column: str, folders: Sequence[Path] = ()) -> None:
        super().__init__(paths, column)
        self._folders = [os.path.realpath(os.fsencode(folder)) for folder in folders]
        self._values: Any = None
        self._length = len(self._mapped())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_values": None}

    def _title(self, row: int) -> str:
        return f"row {row}"

    def _value(self, row: int, field: Literal["bytes", "path"]) -> Any:
        try:
            value = self._mapped()[row].as_py()
        except DataError as error:
            raise OSError(errno.EIO, reason(error)) from None
        value = value if isinstance(value, dict) else {"bytes": value}
        path = value.get("path")
        if field == "path" or value.get("bytes") is not None or not path:
            return value.get(field)
        for folder in self._folders:
            try:
                return read_inside(folder, os.fsencode(path))
            except PermissionError:
                continue
        raise OSError(errno.EPERM, "its file is outside of the data set's folder")

    def _mapped(self) -> Any:
        if self._values is None:
            arrow = pyarrow()
            with _arrow_errors(self.paths[0], "Arrow"):
                maps = [arrow.memory_map(str(path)) for path in self.paths]
                columns = [arrow.ipc.open_stream(mapped).read_all().column(self.column) for mapped in maps]
                self._values = arrow.chunked_array([chunk for column in columns for chunk in column.chunks])
        return self._values


def read_schema(path: Path) -> Any:
    """The pyarrow schema of a parquet file, with the metadata its writer left."""
    with opened(path) as file:
        return file.schema_arrow


def read_column(paths: Sequence[Path], name: str) -> Values:
    """A column of integers (int64 [n]) or text (a list) through all files; a null is an error."""
    read: list[Values] = []
    for path in paths:
        with opened(path) as file:
            read.append(plain_values(file.schema_arrow, name, path, partial(_read_column, file, name, path)))
    texts = [values for values in read if isinstance(values, list)]
    numbers = [values for values in read if not isinstance(values, list)]
    if texts and any(map(len, numbers)):
        raise DataError(f"column {name!r} is text in some files of {paths[0].parent}, integers in others.")
    return [text for values in texts for text in values] if texts else np.concatenate(numbers)


def read_paths(paths: Sequence[Path], column: str = "image") -> list[str | None]:
    """The `path` of every image through all files, None where a row has none."""
    found: list[str | None] = []
    for path in paths:
        with opened(path) as file:
            field = image_fields(file.schema_arrow, column, path)[1]
            found += _read_column(file, field, path).to_pylist() if field else [None] * file.metadata.num_rows
    return found


def image_fields(schema: Any, column: str, place: Path) -> tuple[str, str]:
    """The columns that hold the bytes and the path ("" where there is none) of an image column; an error otherwise."""
    kind = _type_of(schema, column, place)
    types = pyarrow().types
    if types.is_binary(kind) or types.is_large_binary(kind):
        return column, ""
    fields = {field.name: field.type for field in kind} if types.is_struct(kind) else {}
    inner = fields.get("bytes")
    if inner is None or not (types.is_binary(inner) or types.is_large_binary(inner)):
        raise DataError(f"column {column!r} of {place} is {kind}: images must be bytes, or a struct with bytes.")
    return f"{column}.bytes", f"{column}.path" if "path" in fields else ""


def plain_values(schema: Any, name: str, place: Path, read: Callable[[], Any]) -> Values:
    """A column of integers (int64 [n]) or text (a list), read once its type is known; a null is an error."""
    kind, arrow = _type_of(schema, name, place), pyarrow()
    inner = kind.value_type if arrow.types.is_dictionary(kind) else kind
    text = arrow.types.is_string(inner) or arrow.types.is_large_string(inner)
    if not (text or arrow.types.is_integer(inner) or arrow.types.is_boolean(inner)):
        raise DataError(f"column {name!r} of {place} is {kind}: it must be integers or text.")
    values = read()
    if values.null_count:
        raise DataError(f"column {name!r} of {place} has {values.null_count:,} rows with no value.")
    plain: Values = values.to_pylist() if text else values.cast(arrow.int64()).to_numpy()
    return plain


def _type_of(schema: Any, name: str, place: Path) -> Any:
    if name not in schema.names:
        close = nearest(name, schema.names)
        hint = f"did you mean {close!r}?" if close else f"there are {', '.join(schema.names) or 'none'}."
        raise DataError(f"{place} has no column {name!r}: {hint}")
    return schema.field(schema.names.index(name)).type


def _read_column(file: Any, column: str, path: Path) -> Any:
    """A chunked array of all values of a column; of `image.path` the paths."""
    groups = list(range(file.metadata.num_row_groups))
    values = _read_batches(file, column, groups, 65536, MOST_COLUMN_BYTES)
    if len(values) != sum(_rows_of(file.metadata.row_group(group), path) for group in groups):
        raise DataError(f"{path} is damaged: column {column} has {len(values)} rows.")
    return values


def _read_batches(file: Any, column: str, groups: list[int], rows: int, most: int) -> Any:
    """A chunked array of a column's values in some row groups, `rows` at a time and at most `most` bytes."""
    chunks, size = [], 0
    nested = column not in file.schema_arrow.names
    for batch in file.iter_batches(rows, row_groups=groups, columns=[column], use_threads=False):
        values = batch.column(0)
        chunks.append(values.field(0) if nested else values)
        size += chunks[-1].nbytes
        if size > most:
            raise DataError(f"column {column} has more than {most // 2**20} MiB in a row group or file.")
    return pyarrow().chunked_array(chunks, chunks[0].type if chunks else pyarrow().null())


def _rows_of(group: Any, path: Path) -> int:
    """The rows of a row group, after a check of its declared size."""
    # pyarrow ends the process when asked for the size of a single column whose metadata are damaged
    if group.total_byte_size > MOST_GROUP_BYTES:
        raise DataError(
            f"{path} has a row group of {group.total_byte_size / 2**30:.1f} GiB, more than "
            f"{MOST_GROUP_BYTES / 2**30:.0f}: rewrite it with row_group_size=1000 or so."
        )
    if not 0 <= group.num_rows <= MOST_ROWS:
        raise DataError(f"{path} is damaged: it has a row group of {group.num_rows} rows.")
    return int(group.num_rows)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An open pyarrow ParquetFile; every error of pyarrow, then or later, is a DataError."""
    opener = pyarrow().parquet.ParquetFile
    with _arrow_errors(path, "parquet"), open_file(path) as source, opener(source, pre_buffer=False) as file:
        yield file


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (*_ERRORS, pyarrow().ArrowException) as error:
        raise DataError(f"{path} cannot be read as {kind}: {reason(error)}.") from None


def pyarrow() -> Any:
    """The package, which is imported when it is needed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"reading parquet needs pyarrow: {install('data')}") from None
    return pyarrow
