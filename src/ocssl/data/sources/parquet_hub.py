"""Images in a column: of parquet files, or of a data set of the Hugging Face hub, which `datasets` loads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ocssl._files.untrusted import reason
from ocssl.data.decode.arrow_files import (
    ArrowFiles,
    ParquetFiles,
    Values,
    image_fields,
    plain_values,
    read_column,
    read_schema,
)
from ocssl.data.decode.files import Files, Report
from ocssl.data.sources.source import (
    BENCHMARKS,
    Collection,
    Counts,
    Numbers,
    SourceImages,
    class_groups,
    numbered,
    refuse_unlearned,
    require_path,
)
from ocssl.errors import DataError, SettingError, install, printable
from ocssl.settings import StreamSettings

TRAIN = "train"
TESTS = ("test", "validation", "valid", "val")  # the first of them that is there and has labels
LABELS = ("label", "fine_label", "labels", "class")
IMAGES = ("image", "img")


@dataclass(frozen=True)
class Columns:
    """One split of a data set."""

    place: Path  # for messages
    schema: Any  # of pyarrow, with the metadata that the writer left
    images: Callable[[str], Files]
    values: Callable[[str], Values]


@dataclass(kw_only=True)
class ColumnOptions:
    """Which columns are what."""

    image: str = ""  # a column of encoded images; auto where it is empty
    label: str = "auto"  # a column of integers or text; none: images without labels
    domain: str = ""  # a column of integers or text
    taxonomy: str = ""  # a JSON file that puts classes into groups
    level: str = "group"  # the key of the group in that file


@BENCHMARKS.add("parquet")
@dataclass(kw_only=True)
class Parquet(ColumnOptions):
    """parquet:PATH: images in parquet files as the Hugging Face hub has them, named train*, test* and validation*."""

    name: ClassVar[str] = "parquet"
    after_colon: ClassVar[str] = "path"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        how = "parquet:PATH" if self.name == "parquet" else "--data DIR"
        return source_images(parquet_splits(require_path(where, self.name, how)), self)


@BENCHMARKS.add("mini-imagenet")
@dataclass(kw_only=True)
class MiniImagenet(Parquet):
    """100 classes of ImageNet photographs in parquet files: 200 to learn from and 50 to test on of each."""

    name: ClassVar[str] = "mini-imagenet"
    after_colon: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()

    def counts(self) -> Counts:
        return Counts(100, 20_000, 5_000)


@BENCHMARKS.add("pacs")
@dataclass(kw_only=True)
class Pacs(Parquet):
    """PACS in parquet files: seven classes as photographs, art paintings, cartoons and sketches."""

    name: ClassVar[str] = "pacs"
    after_colon: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()

    def counts(self) -> Counts:
        domains = (1670, 2048, 2344, 3929)
        return Counts(7, sum(domains), groups=domains)


@BENCHMARKS.add("hf")
@dataclass(kw_only=True)
class Hub(ColumnOptions):
    """hf:NAME: a data set of the Hugging Face hub, downloaded once, or a local folder that `datasets` can load."""

    config: str = ""  # where a data set has several
    revision: str = ""  # a commit, tag or branch, so that the data stay the same
    after_colon: ClassVar[str] = "name"

    def find(self, where: Path | None, settings: StreamSettings, report: Report) -> SourceImages:
        if where is None:
            raise SettingError("benchmark hf needs the name of a data set: hf:NAME.")
        splits = _hub_splits(where, self.config, self.revision)
        if TRAIN not in splits:
            raise DataError(f"{where} has no split train, only {', '.join(splits)}.")
        return source_images(splits, self)


def parquet_paths(path: Path) -> list[Path]:
    """A parquet file, or those in a folder and in its folder `data`, in the order of their names."""
    if not path.is_dir():
        return [path]
    try:
        return sorted(p for folder in (path, path / "data") for p in folder.glob("*.parquet") if p.name[0] != ".")
    except OSError as error:
        raise DataError(f"cannot list {path}: {reason(error).lower()}.") from None


def parquet_splits(path: Path) -> dict[str, Columns]:
    """The splits by how the names of the files begin; where none begins with train, all files are to learn from."""
    paths = parquet_paths(path)
    if not paths:
        raise DataError(f"there are no parquet files in {path}.")
    splits: dict[str, list[Path]] = {}
    for file in paths:
        split = next((name for name in (TRAIN, *TESTS) if file.name.lower().startswith(name)), "")
        splits.setdefault(split, []).append(file)
    if TRAIN not in splits:
        splits = {TRAIN: paths}
    return {
        name: Columns(files[0], read_schema(files[0]), partial(ParquetFiles, files), partial(read_column, files))
        for name, files in splits.items()
        if name
    }


def _hub_splits(where: Path, config: str, revision: str) -> dict[str, Columns]:
    try:
        import datasets
    except ImportError:
        raise DataError(f"reading the Hugging Face hub needs datasets: {install('data')}") from None
    name = where.as_posix()
    options: dict[str, Any] = {"keep_in_memory": False, "revision": revision or None}
    if int(datasets.__version__.partition(".")[0]) < 4:  # later ones run no code of a data set at all
        options["trust_remote_code"] = False
    try:
        loaded = datasets.load_dataset(name, config or None, **options)
    except ConnectionError as error:
        raise DataError(
            f"datasets cannot reach {name!r} ({reason(error)}): connect, or name a folder that has it."
        ) from None
    except Exception as error:  # of many kinds, by what the data set is and how it is kept
        raise DataError(f"datasets cannot load {name!r}: {reason(error)}.") from None
    if not isinstance(loaded, datasets.DatasetDict):
        raise DataError(f"{name!r} is not a data set with splits.")
    folders = [Path(datasets.config.HF_DATASETS_CACHE), Path(datasets.config.HF_CACHE_HOME)]
    if where.is_dir():
        folders.append(where)
    return {str(split): _hub_columns(where, data, folders) for split, data in loaded.items()}


def _hub_columns(place: Path, data: Any, folders: Sequence[Path]) -> Columns:
    """A split that `datasets` has loaded; files that its rows name must be in one of the folders."""
    schema = data.features.arrow_schema
    paths = [Path(file["filename"]) for file in data.cache_files]
    return Columns(
        place,
        schema,
        lambda column: ArrowFiles(paths, column, folders),
        lambda name: plain_values(schema, name, place, lambda: data.data.column(name)),
    )


def source_images(splits: Mapping[str, Columns], options: ColumnOptions) -> SourceImages:
    """The images, labels and groups of a data set's splits. Only classes that can be learned are numbered."""
    train = splits[TRAIN]
    label = label_column(train, options.label)
    chosen, labels = _train_and_test(splits, label)
    image = options.image or image_column(train)
    files = [columns.images(image) for columns in chosen]
    if not len(files[0]):
        raise DataError(f"{train.place} has no rows.")
    groups: list[dict[str, Numbers]] = [{} for _ in chosen]
    group_names: dict[str, Sequence[str]] = {}
    classes: list[str] = []
    numbers: list[Numbers | None] = [None] * len(chosen)
    used = np.empty(0, np.int64)
    names: list[str] = []
    if label:
        coded, names = _coded(labels, label, train)
        refuse_unlearned(coded, names, train.place)
        used = np.unique(coded[0])
        numbers = [np.searchsorted(used, own) for own in coded]
        classes = [names[number] for number in used]
    if options.taxonomy:
        group_of, group_names["taxonomy"] = class_groups(Path(options.taxonomy), options.level, names, used)
        groups = [{"taxonomy": group_of[own]} for own in numbers if own is not None]
    if options.domain:
        coded, names = _coded([columns.values(options.domain) for columns in chosen], options.domain, train)
        used = np.unique(np.concatenate(coded))
        group_names["domain"] = [names[number] for number in used]
        groups = [{**own, "domain": np.searchsorted(used, c)} for own, c in zip(groups, coded, strict=True)]
    collections = [Collection(*parts) for parts in zip(files, numbers, groups, strict=True)]
    return SourceImages(collections[0], collections[1] if len(collections) > 1 else None, classes, group_names)


def _train_and_test(splits: Mapping[str, Columns], label: str) -> tuple[list[Columns], list[Values]]:
    """The split to learn from and, if there is one, that to test on, with their labels.

    A test split that has -1 for a label, as some are published, is passed over.
    """
    train = splits[TRAIN]
    tests = [splits[name] for name in TESTS if name in splits]
    if not label:
        return [train, *tests[:1]], []
    labels = train.values(label)
    if not isinstance(labels, list) and (labels < 0).any():
        raise DataError(f"column {label!r} of {train.place} has labels below 0: set stream.label to none.")
    for test in tests:
        own = test.values(label)
        if isinstance(own, list) or not (own < 0).any():
            return [train, test], [labels, own]
    return [train], [labels]


def image_column(columns: Columns) -> str:
    """The column with encoded images: `image`, `img`, or the only one."""
    usable = [name for name in columns.schema.names if _has_images(columns, name)]
    for name in IMAGES:
        if name in usable:
            return name
    if len(usable) != 1:
        have = "several columns with images" if usable else "no column with images"
        listed = ", ".join(usable or columns.schema.names)
        raise DataError(f"{columns.place} has {have} ({listed}): name one with stream.image.")
    return str(usable[0])


def _has_images(columns: Columns, name: str) -> bool:
    try:
        image_fields(columns.schema, name, columns.place)
    except DataError:
        return False
    return True


def label_column(columns: Columns, wanted: str) -> str:
    """The column with labels, "" for none."""
    if wanted == "auto":
        return next((name for name in LABELS if name in columns.schema.names), "")
    return "" if wanted == "none" else wanted


def class_names(schema: Any, column: str) -> list[str] | None:
    """The names of a column's numbers as Hugging Face `datasets` writes them beside the schema."""
    try:
        names = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"][column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return [printable(name) for name in names]


def _coded(splits: Sequence[Values], title: str, train: Columns) -> tuple[list[Numbers], list[str]]:
    """Numbers for the values of a column in all splits, and what each number is called."""
    if len({isinstance(values, list) for values in splits}) > 1:
        raise DataError(f"column {title!r} of {train.place} is text in one split and integers in another.")
    names = class_names(train.schema, title)
    if names is None or isinstance(splits[0], list):
        numbers, found = numbered(splits)
        return numbers, [printable(str(value)) for value in found]
    numbers = [np.asarray(values, dtype=np.int64) for values in splits]
    wrong = np.concatenate([own[(own < 0) | (own >= len(names))] for own in numbers])
    if len(wrong):
        raise DataError(f"column {title!r} of {train.place} has the number {wrong[0]}, but only {len(names)} names.")
    return numbers, names
