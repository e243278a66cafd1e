"""A parquet file of vectors: a row an image, with its id, path, checksum, vector, and the encoder that made it.

id        int64
path      text
sha256    text: the checksum of the image's file
vector    float16 or float32, a list of fixed length
encoder   text: the encoder's fingerprint
size, modified   int64: of the file when it was read; -1 where it is no file of a folder
aligned   text: the fingerprint of the encoder whose vector was mapped into this space; null where none was
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl._files.atomic import move, remove_parts
from ocssl._files.lock import locked
from ocssl.data.decode.arrow_files import opened, pyarrow
from ocssl.errors import DataError, RunFolderError, SettingError

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]

VERSION = 1
GROUP = 4096  # rows of a row group
MOST_DIMENSIONS = 2**16
MOST_BYTES = 2**34  # of all vectors, in float32
MOST_ROWS = 2**27
LONGEST = 2**16  # letters of a path
LARGEST_ID = 2**62  # later ones are counted on from it
MOST_FACTS = 2**20  # bytes of what the file says of itself
FINGERPRINT = re.compile(r"[0-9a-f]{32}")
DIGEST = re.compile(r"[0-9a-f]{64}")
NUMBERS, TEXTS = ("id", "size", "modified"), ("path", "sha256", "encoder", "aligned")  # columns beside the vectors
DTYPES = {"float16": np.float16, "float32": np.float32}


@dataclass
class Rows:
    """Some rows of such a file, column by column."""

    id: Numbers
    path: Sequence[str]
    sha256: Sequence[str]
    vector: Floats  # [n, d], float16 or float32; [n, 0] where it was not read
    encoder: Sequence[str]
    size: Numbers
    modified: Numbers
    aligned: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.id)


@dataclass
class Vectors(Rows):
    """All rows of a file, and what it says of itself."""

    facts: Mapping[str, Any] = field(default_factory=dict)  # source, run, dtype, alignment

    @property
    def encoders(self) -> list[str]:
        """The fingerprints in the file."""
        return sorted(set(self.encoder))


def schema(dimension: int, dtype: str, facts: Mapping[str, Any]) -> Any:
    """The columns of a file of vectors."""
    arrow = pyarrow()
    columns = [
        ("id", arrow.int64()),
        ("path", arrow.string()),
        ("sha256", arrow.string()),
        ("vector", arrow.list_(arrow.from_numpy_dtype(DTYPES[dtype]), dimension)),
        ("encoder", arrow.string()),
        ("size", arrow.int64()),
        ("modified", arrow.int64()),
        ("aligned", arrow.string()),
    ]
    return with_facts(arrow.schema(columns), facts)


def with_facts(form: Any, facts: Mapping[str, Any]) -> Any:
    """The same columns in a file that says this of itself."""
    return form.with_metadata({b"ocssl": json.dumps({"version": VERSION, **facts}, sort_keys=True).encode()})


def table(rows: Rows, form: Any) -> Any:
    """Rows as a pyarrow table of a schema."""
    arrow = pyarrow()
    kind = form.field("vector").type
    dtype = kind.value_type.to_pandas_dtype()
    if dtype == np.float16 and len(rows) and np.abs(rows.vector).max() > np.finfo(dtype).max:
        raise SettingError("a vector has numbers that float16 cannot hold: use --dtype float32.")
    flat = np.ascontiguousarray(rows.vector, dtype).reshape(-1)
    columns = {name: getattr(rows, name) for name in form.names if name != "vector"}
    columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(flat), kind.list_size)
    return arrow.table({name: columns[name] for name in form.names}, schema=form)


def write(path: Path, form: Any, tables: Iterable[Any]) -> int:
    """Write tables one after the other, all or nothing, in row groups of one size; the number of rows."""
    arrow = pyarrow()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    waiting, count = form.empty_table(), 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(part, "wb") as file:
            options = {"compression": "zstd", "use_dictionary": ["encoder", "aligned"], "write_statistics": False}
            with arrow.parquet.ParquetWriter(file, form, **options) as writer:
                for piece in tables:
                    count += len(piece)
                    waiting = arrow.concat_tables([waiting, piece])
                    while len(waiting) >= GROUP:
                        writer.write_table(waiting.slice(0, GROUP).combine_chunks(), row_group_size=GROUP)
                        waiting = waiting.slice(GROUP)
                if len(waiting) or not count:
                    writer.write_table(waiting.combine_chunks(), row_group_size=GROUP)
            move(file, path)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        part.unlink(missing_ok=True)
    remove_parts(path.parent, path.name)
    return count


def read_vectors(path: Path, vectors: bool = True) -> Vectors:
    """All rows of a file, checked; a DataError says what is wrong with one that is no file of vectors.

    Without `vectors` that column is left out.
    """
    with open_vectors(path) as (file, form, facts):
        kind, count, done = form.field("vector").type, file.metadata.num_rows, 0
        matrix = np.empty((count if vectors else 0, kind.list_size), kind.value_type.to_pandas_dtype())
        numbers: dict[str, Any] = {name: np.empty(count, np.int64) for name in NUMBERS}
        texts: dict[str, Any] = {name: [] for name in TEXTS}
        for rows in batches(file, path, vectors):
            end = done + len(rows)
            if end > count:
                raise DataError(f"{path} is damaged: it has more rows than it says.")
            for name, column in numbers.items():
                column[done:end] = getattr(rows, name)
            for name, values in texts.items():
                values += getattr(rows, name)
            if vectors:
                matrix[done:end] = rows.vector
            done = end
        if done != count:
            raise DataError(f"{path} is damaged: it has {done:,} of {count:,} rows.")
    return Vectors(**numbers, **texts, vector=matrix, facts=facts)


@contextmanager
def open_vectors(path: Path) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """The open file, its schema and what it says of itself, once it is known to be a file of vectors."""
    if not path.exists():
        raise DataError(f"there is no {path}: make it with ocssl embed RUN SOURCE -o {path.name}.")
    with opened(path) as file:
        form, arrow = file.schema_arrow, pyarrow().types
        wanted = schema(1, "float32", {})
        for column in wanted:
            if form.names.count(column.name) != 1:
                raise DataError(
                    f"{path} is no file of vectors: it has no column {column.name}; see: ocssl embed --help"
                )
            kind = form.field(column.name).type
            if column.name != "vector" and kind != column.type:
                raise DataError(f"{path} is no file of vectors: its column {column.name} is {kind}, not {column.type}.")
        kind = form.field("vector").type
        if not arrow.is_fixed_size_list(kind) or not (
            arrow.is_float16(kind.value_type) or arrow.is_float32(kind.value_type)
        ):
            raise DataError(f"{path} is no file of vectors: its column vector is {kind}, not floats of one length.")
        rows = file.metadata.num_rows
        if not 1 <= kind.list_size <= MOST_DIMENSIONS or not 0 <= rows <= MOST_ROWS:
            raise DataError(f"{path} says that it has {rows:,} vectors of {kind.list_size:,} numbers.")
        if rows * kind.list_size * 4 > MOST_BYTES:
            raise DataError(f"{path} has more than {MOST_BYTES // 2**30} GiB of vectors.")
        groups = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
        if min(groups, default=0) < 0 or max(groups, default=0) > MOST_ROWS:
            raise DataError(f"{path} is damaged: a row group says that it has {max(groups):,} rows.")
        yield file, form, _facts(form, path)


def batches(file: Any, path: Path, vectors: bool = True, rows: int = GROUP) -> Iterator[Rows]:
    """The rows of an open file some at a time, every value checked."""
    names = [column for column in schema(1, "float32", {}).names if vectors or column != "vector"]
    dimension = file.schema_arrow.field("vector").type.list_size
    for batch in file.iter_batches(rows, columns=names, use_threads=False):
        columns = {name: batch.column(name) for name in names}
        for name, column in columns.items():
            if column.null_count and name != "aligned":
                raise DataError(f"{path} is damaged: column {name} has rows without a value.")
        matrix = np.empty((len(batch), 0), np.float32)
        if vectors:
            flat = columns["vector"].flatten()
            if flat.null_count or len(flat) != len(batch) * dimension:
                raise DataError(f"{path} is damaged: a vector has numbers without a value.")
            matrix = flat.to_numpy(zero_copy_only=False).reshape(len(batch), dimension)
            if not np.isfinite(matrix).all():
                raise DataError(f"{path} is damaged: a vector has numbers that are not finite.")
        text = {name: columns[name].to_pylist() for name in TEXTS}
        if not all(map(DIGEST.fullmatch, text["sha256"])):
            raise DataError(f"{path} is damaged: column sha256 has what is no checksum.")
        aligned = [name for name in text["aligned"] if name is not None]
        if not all(map(FINGERPRINT.fullmatch, [*text["encoder"], *aligned])):
            raise DataError(f"{path} is damaged: column encoder has what is no fingerprint.")
        if max(map(len, text["path"]), default=0) > LONGEST:
            raise DataError(f"{path} is damaged: a path has more than {LONGEST:,} letters.")
        numbers = {name: columns[name].to_numpy(zero_copy_only=False) for name in NUMBERS}
        if len(batch) and numbers["id"].max() > LARGEST_ID:
            raise DataError(f"{path} is damaged: an id is above {LARGEST_ID:,}.")
        yield Rows(**numbers, **text, vector=matrix)


def rows_of(path: Path) -> Iterator[Rows]:
    """The rows of a file some at a time."""
    with open_vectors(path) as (file, _, _):
        yield from batches(file, path)


def _facts(form: Any, path: Path) -> dict[str, Any]:
    said = (form.metadata or {}).get(b"ocssl", b"{}")
    try:
        found = json.loads(said) if len(said) <= MOST_FACTS else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{path} is damaged: what it says of itself is no JSON.")
    if found.get("version", VERSION) != VERSION:
        raise DataError(
            f"{path} has format version {found['version']!r}, and this ocssl reads {VERSION}: update ocssl."
        )
    return found


def require_one_encoder(encoders: Sequence[str], what: str) -> str:
    """The only fingerprint of some vectors; a SettingError where there are several: they cannot be compared."""
    if len(encoders) > 1:
        raise SettingError(
            f"{what} holds vectors of {len(encoders)} encoders ({', '.join(encoders[:3])}), which cannot be compared: "
            "make them of one with ocssl embed --refresh."
        )
    return encoders[0] if encoders else ""


def require_dimension(found: int, wanted: int, what: str) -> None:
    """A DataError where vectors are not as long as those of the encoder that is said to have made them."""
    if found != wanted:
        raise DataError(
            f"{what}: damaged, its vectors have {found:,} numbers, and those of its encoder have {wanted:,}; "
            "make the file again with ocssl embed."
        )


def require_same(first: str, second: str, what: str, advice: str) -> None:
    """A SettingError where two fingerprints differ."""
    if first != second:
        raise SettingError(f"{what}: encoder {first} and encoder {second} cannot be compared; {advice}.")
