"""Encoded images that are a column of Arrow files, as the package `datasets` keeps them, and what columns may be."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl.data.decode.encoded import Rows, printable
from ocssl.data.decode.folder_files import MOST_BYTES, read_inside
from ocssl.errors import DataError, nearest

Column = npt.NDArray[np.int64] | list[str]


class ArrowFiles:
    """Images by their row in Arrow stream files, which are mapped into memory when they are first read.

    A row without bytes may name a file; it is read only if it lies in one of the given folders.
    """

    def __init__(self, paths: Sequence[Path], column: str, folders: Sequence[Path] = ()) -> None:
        self.paths = [Path(path) for path in paths]
        self.column = column
        self.rows: Rows | None = None  # which rows of the files; None: all
        self._folders = [os.path.realpath(os.fsencode(folder)) for folder in folders]
        self._values: Any = None
        self._length = len(self._mapped())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_values": None}

    def __len__(self) -> int:
        return self._length if self.rows is None else len(self.rows)

    def name(self, row: int) -> str:
        _, path = self._pair(row)
        at = row if self.rows is None else int(self.rows[row])
        return printable(f"row {at} ({path})" if path else f"row {at}")

    def read(self, row: int) -> bytes:
        data, path = self._pair(row)
        if data is None and path:
            data = self._read_file(path)
        if data is None:
            raise OSError(errno.ENOENT, "no image in this row")
        if len(data) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 2**20} MiB")
        return bytes(data)

    def subset(self, rows: Rows) -> ArrowFiles:
        part = object.__new__(ArrowFiles)
        part.__dict__.update(self.__dict__)
        part.rows = np.array(rows, dtype=np.int64) if self.rows is None else self.rows[rows]
        return part

    def stored(self) -> Rows:
        return np.arange(len(self)) if self.rows is None else self.rows

    def fingerprint(self) -> str:
        return self._digest(times=False)

    def stamp(self) -> str:
        return self._digest(times=True)

    def _digest(self, times: bool) -> str:
        found = [path.stat() for path in self.paths if path.is_file()]
        facts = [self.column, *((stat.st_size, stat.st_mtime_ns if times else 0) for stat in found)]
        rows = b"" if self.rows is None else self.rows.astype("<i8").tobytes()
        return hashlib.sha256(repr(facts).encode("utf-8", "backslashreplace") + b"\0" + rows).hexdigest()

    def _pair(self, row: int) -> tuple[Any, str | None]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        try:
            value = self._mapped()[row if self.rows is None else int(self.rows[row])].as_py()
        except DataError as error:
            raise OSError(errno.EIO, str(error).rstrip(".")) from None
        return (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)

    def _read_file(self, path: str) -> bytes:
        for folder in self._folders:
            try:
                return read_inside(folder, os.fsencode(path))
            except PermissionError:
                continue
        raise OSError(errno.EPERM, "its file lies outside of the data set's folder")

    def _mapped(self) -> Any:
        if self._values is None:
            arrow = pyarrow()
            try:
                maps = [arrow.memory_map(str(path)) for path in self.paths]
                columns = [arrow.ipc.open_stream(mapped).read_all().column(self.column) for mapped in maps]
                self._values = arrow.chunked_array([chunk for column in columns for chunk in column.chunks])
            except (arrow.ArrowException, OSError, ValueError, LookupError) as error:
                reason = printable(str(error).strip().partition("\n")[0].rstrip("."))
                raise DataError(f"{printable(str(self.paths[0]))} cannot be read: {reason:.200}.") from None
        return self._values


def find_field(schema: Any, name: str, place: Path) -> Any:
    """The type of a column; an error with the nearest right name where there is none."""
    if name not in schema.names:
        close = nearest(name, schema.names)
        hint = f"did you mean {close!r}?" if close else f"there are {', '.join(schema.names) or 'none'}."
        raise DataError(printable(f"{place} has no column {name!r}: {hint}"))
    return schema.field(schema.names.index(name)).type


def image_fields(schema: Any, column: str, place: Path) -> tuple[str, str]:
    """The columns that hold the bytes and the path ("" where there is none) of an image column; an error otherwise."""
    kind = find_field(schema, column, place)
    types = pyarrow().types
    if types.is_binary(kind) or types.is_large_binary(kind):
        return column, ""
    fields = {field.name: field.type for field in kind} if types.is_struct(kind) else {}
    inner = fields.get("bytes")
    if inner is None or not (types.is_binary(inner) or types.is_large_binary(inner)):
        raise DataError(
            printable(f"column {column!r} of {place} is {kind}: bytes, or a struct with bytes, are wanted for images.")
        )
    return f"{column}.bytes", f"{column}.path" if "path" in fields else ""


def check_plain(schema: Any, name: str, place: Path) -> None:
    """An error unless a column holds integers or text."""
    kind = find_field(schema, name, place)
    types = pyarrow().types
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if not (_is_text(inner) or types.is_integer(inner) or types.is_boolean(inner)):
        raise DataError(printable(f"column {name!r} of {place} is {kind}: integers or text are wanted."))


def plain_values(values: Any, name: str, place: Path) -> Column:
    """A column of integers (int64 [n]) or text (a list); a null is an error."""
    if values.null_count:
        raise DataError(printable(f"column {name!r} of {place} has {values.null_count:,} rows with no value."))
    arrow = pyarrow()
    if _is_text(values.type.value_type if arrow.types.is_dictionary(values.type) else values.type):
        return list(values.to_pylist())
    numbers: npt.NDArray[np.int64] = values.cast(arrow.int64()).to_numpy()
    return numbers


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def pyarrow() -> Any:
    """The package, which is imported when it is needed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError("reading parquet needs pyarrow: pip install 'ocssl[data]'.") from None
    return pyarrow
