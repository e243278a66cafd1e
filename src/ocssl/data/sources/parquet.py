"""Images in parquet files, as the Hugging Face hub has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ocssl.data.decode.arrow_files import Column
from ocssl.data.decode.encoded import Files
from ocssl.data.decode.images import Report
from ocssl.data.decode.parquet_files import ParquetFiles, read_columns, read_schema
from ocssl.data.sources.source import BENCHMARKS, Found
from ocssl.data.sources.table import TESTS, TRAIN, Table, TableOptions, found_in
from ocssl.data.sources.text_files import need, shown
from ocssl.errors import DataError
from ocssl.settings import StreamSettings


@BENCHMARKS.add("parquet")
@dataclass(kw_only=True)
class Parquet(TableOptions):
    """parquet:PATH: images in parquet files as the Hugging Face hub has them, named train*, test* and validation*."""

    name: ClassVar[str] = "parquet"

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> Found:
        how = "parquet:PATH" if self.name == "parquet" else "--data DIR"
        return found_in(parquet_tables(need(where, self.name, how)), self)


@BENCHMARKS.add("mini-imagenet")
@dataclass(kw_only=True)
class MiniImagenet(Parquet):
    """100 classes of ImageNet photographs in parquet files: 200 to learn from and 50 to test on of each."""

    name: ClassVar[str] = "mini-imagenet"


@BENCHMARKS.add("pacs")
@dataclass(kw_only=True)
class Pacs(Parquet):
    """PACS in parquet files: seven classes as photographs, art paintings, cartoons and sketches."""

    name: ClassVar[str] = "pacs"


@dataclass(frozen=True)
class ParquetTable:
    """Rows of parquet files, one file after the other."""

    paths: Sequence[Path]
    schema: Any

    @property
    def place(self) -> Path:
        return self.paths[0]

    def images(self, column: str) -> Files:
        return ParquetFiles(self.paths, column)

    def column(self, name: str) -> Column:
        return read_columns(self.paths, [name])[name]


def parquet_paths(path: Path) -> list[Path]:
    """A parquet file, or those in a folder and in its folder `data`, in the order of their names."""
    if not path.is_dir():
        return [path]
    try:
        return sorted(p for folder in (path, path / "data") for p in folder.glob("*.parquet") if p.name[0] != ".")
    except OSError as error:
        raise DataError(f"cannot list {shown(path)}: {(error.strerror or str(error)).lower()}.") from None


def parquet_tables(path: Path) -> dict[str, Table]:
    """The splits by how the names of the files begin; where none begins with train, all files are to learn from."""
    paths = parquet_paths(path)
    if not paths:
        raise DataError(f"there are no parquet files in {shown(path)}.")
    splits: dict[str, list[Path]] = {}
    for file in paths:
        split = next((name for name in (TRAIN, *TESTS) if file.name.lower().startswith(name)), "")
        splits.setdefault(split, []).append(file)
    if TRAIN not in splits:
        splits = {TRAIN: paths}
    return {name: ParquetTable(files, read_schema(files[0])) for name, files in splits.items() if name}
