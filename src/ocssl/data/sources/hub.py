"""Data sets of the Hugging Face hub, through the package `datasets`, which downloads and keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocssl.data.decode.arrow_files import ArrowFiles, Column, check_plain, plain_values
from ocssl.data.decode.encoded import Files, printable
from ocssl.data.decode.images import Report
from ocssl.data.sources.source import BENCHMARKS, Found
from ocssl.data.sources.table import TRAIN, Table, TableOptions, found_in
from ocssl.errors import DataError, SettingError
from ocssl.settings import StreamSettings


@BENCHMARKS.add("hf")
@dataclass(kw_only=True)
class Hub(TableOptions):
    """hf:NAME: a data set of the Hugging Face hub, downloaded once, or a local folder that `datasets` can load."""

    config: str = ""  # where a data set has several
    revision: str = ""  # a commit, tag or branch, so that the data stay the same

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> Found:
        if where is None:
            raise SettingError("benchmark hf needs the name of a data set: hf:NAME.")
        splits = _load(where, self.config, self.revision)
        if TRAIN not in splits:
            raise DataError(f"{printable(str(where))} has no split train, only {', '.join(map(printable, splits))}.")
        return found_in(splits, self)


@dataclass(frozen=True)
class HubTable:
    """A split that `datasets` has prepared."""

    place: Path  # the name of the data set
    data: Any  # datasets.Dataset
    folders: tuple[Path, ...]  # in which files that its rows name may lie

    @property
    def schema(self) -> Any:
        return self.data.features.arrow_schema

    def images(self, column: str) -> Files:
        return ArrowFiles([Path(file["filename"]) for file in self.data.cache_files], column, self.folders)

    def column(self, name: str) -> Column:
        check_plain(self.schema, name, self.place)
        return plain_values(self.data.data.column(name), name, self.place)


def _load(where: Path, config: str, revision: str) -> Mapping[str, Table]:
    try:
        import datasets
    except ImportError:
        raise DataError("reading the Hugging Face hub needs datasets: pip install 'ocssl[data]'.") from None
    name = where.as_posix()
    options: dict[str, Any] = {"keep_in_memory": False, "revision": revision or None}
    if int(datasets.__version__.partition(".")[0]) < 4:  # later ones run no code of a data set at all
        options["trust_remote_code"] = False
    try:
        loaded = datasets.load_dataset(name, config or None, **options)
    except ConnectionError as error:
        raise DataError(
            f"datasets cannot reach {printable(name)!r} ({_reason(error)}): connect, or name a folder that has it."
        ) from None
    except Exception as error:  # of many kinds, by what the data set is and how it is kept
        raise DataError(f"datasets cannot load {printable(name)!r}: {_reason(error)}.") from None
    if not isinstance(loaded, datasets.DatasetDict):
        raise DataError(f"{printable(name)!r} is not a data set with splits.")
    folders = [Path(datasets.config.HF_DATASETS_CACHE), Path(datasets.config.HF_CACHE_HOME)]
    if where.is_dir():
        folders.append(where)
    return {str(split): HubTable(Path(name), data, tuple(folders)) for split, data in loaded.items()}


def _reason(error: BaseException) -> str:
    text = printable(str(error).strip().partition("\n")[0].rstrip(".: "))
    return text[:300] or type(error).__name__
