"""Images in a column of tables: which columns are images, labels and domains, and which table is for testing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ocssl.data.decode.arrow_files import Column, image_fields
from ocssl.data.decode.encoded import Files, printable
from ocssl.data.sources.source import Collection, Found, Numbers
from ocssl.data.sources.taxonomy import class_groups
from ocssl.data.sources.text_files import shown
from ocssl.errors import DataError, SettingError

TRAIN = "train"
TESTS = ("test", "validation", "valid", "val")  # the first of them that is there and has labels
LABELS = ("label", "fine_label", "labels", "class")
IMAGES = ("image", "img")


class Table(Protocol):
    """One split of a data set."""

    @property
    def place(self) -> Path:
        """What to call it in a message."""
        ...

    @property
    def schema(self) -> Any:
        """The columns, as pyarrow describes them, with the metadata that the writer left."""
        ...

    def images(self, column: str) -> Files: ...

    def column(self, name: str) -> Column: ...


@dataclass(kw_only=True)
class TableOptions:
    """Which columns of a table are what."""

    image: str = ""  # a column of encoded images; auto where it is empty
    label: str = "auto"  # a column of integers or text; none: images without labels
    domain: str = ""  # a column of integers or text
    taxonomy: str = ""  # a JSON file that puts classes into groups
    level: str = "group"  # the key of the group in that file


def found_in(splits: Mapping[str, Table], options: TableOptions) -> Found:
    """The images, labels and groups of a data set's splits. Only classes that can be learned are numbered."""
    train = splits[TRAIN]
    label = label_column(train, options.label)
    tables, labels = _chosen(splits, label)
    image = options.image or image_column(train)
    files = [table.images(image) for table in tables]
    if not len(files[0]):
        raise DataError(f"{shown(train.place)} has no rows.")
    groups: list[dict[str, Numbers]] = [{} for _ in tables]
    group_names: dict[str, Sequence[str]] = {}
    classes: list[str] = []
    numbers: list[Numbers | None] = [None] * len(tables)
    if label:
        coded, names = encoded(labels, class_names(train.schema, label), label, train.place)
        used = np.unique(coded[0])
        _refuse_unlearned(coded, used, names, train.place)
        numbers = [np.searchsorted(used, own) for own in coded]
        classes = [names[number] for number in used]
        if options.taxonomy:
            group_of, group_names["taxonomy"] = class_groups(Path(options.taxonomy), options.level, names, used)
            groups = [{"taxonomy": group_of[np.searchsorted(used, own)]} for own in coded]
    elif options.taxonomy:
        raise SettingError("stream.taxonomy puts classes into groups, but these images have no labels.")
    if options.domain:
        columns = [table.column(options.domain) for table in tables]
        coded, names = encoded(columns, class_names(train.schema, options.domain), options.domain, train.place)
        used = np.unique(np.concatenate(coded))
        group_names["domain"] = [names[number] for number in used]
        groups = [{**own, "domain": np.searchsorted(used, c)} for own, c in zip(groups, coded, strict=True)]
    collections = [Collection(*parts) for parts in zip(files, numbers, groups, strict=True)]
    return Found(collections[0], collections[1] if len(collections) > 1 else None, classes, group_names)


def _chosen(splits: Mapping[str, Table], label: str) -> tuple[list[Table], list[Column]]:
    """The table to learn from and, if there is one, that to test on, with their labels.

    A test split that has -1 for a label, as some are published, is passed over.
    """
    train = splits[TRAIN]
    if not label:
        return [train, *[splits[name] for name in TESTS if name in splits][:1]], []
    labels = train.column(label)
    if not isinstance(labels, list) and (labels < 0).any():
        raise DataError(printable(f"column {label!r} of {train.place} has labels below 0: set stream.label to none."))
    for name in TESTS:
        if name in splits:
            own = splits[name].column(label)
            if isinstance(own, list) or not (own < 0).any():
                return [train, splits[name]], [labels, own]
    return [train], [labels]


def image_column(table: Table) -> str:
    """The column with encoded images: `image`, `img`, or the only one."""
    usable = [name for name in table.schema.names if _has_images(table, name)]
    for name in IMAGES:
        if name in usable:
            return name
    if len(usable) != 1:
        have = "several columns with images" if usable else "no column with images"
        listed = printable(", ".join(usable or table.schema.names))
        raise DataError(f"{shown(table.place)} has {have} ({listed}): name one with stream.image.")
    return str(usable[0])


def _has_images(table: Table, column: str) -> bool:
    try:
        image_fields(table.schema, column, table.place)
    except DataError:
        return False
    return True


def label_column(table: Table, wanted: str) -> str:
    """The column with labels, "" for none."""
    if wanted == "auto":
        return next((name for name in LABELS if name in table.schema.names), "")
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


def encoded(
    columns: Sequence[Column], names: list[str] | None, title: str, place: Path
) -> tuple[list[Numbers], list[str]]:
    """Numbers for the values of a column in all splits, and what each number is called."""
    if len({isinstance(column, list) for column in columns}) > 1:
        raise DataError(printable(f"column {title!r} of {place} is text in one split and integers in another."))
    if names is not None and not isinstance(columns[0], list):
        numbers = [np.asarray(column, dtype=np.int64) for column in columns]
        wrong = np.concatenate([own[(own < 0) | (own >= len(names))] for own in numbers])
        if len(wrong):
            raise DataError(
                printable(f"column {title!r} of {place} has the number {wrong[0]}, but only {len(names)} names.")
            )
        return numbers, names
    values: list[Any] = sorted(set().union(*map(set, columns)))
    number_of = {value: number for number, value in enumerate(values)}
    numbers = [np.array([number_of[value] for value in column], dtype=np.int64) for column in columns]
    return numbers, [printable(str(value)) for value in values]


def _refuse_unlearned(coded: Sequence[Numbers], used: Numbers, names: Sequence[str], place: Path) -> None:
    """Every class that is tested must be there to learn."""
    missing = np.setdiff1d(coded[-1], used)
    if len(missing):
        raise DataError(
            f"the test images beside {shown(place)} have {len(missing)} classes that are not there to learn, such as "
            f"{names[missing[0]]!r}."
        )
