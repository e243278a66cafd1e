"""Groups of classes, such as birds and vehicles, from a file of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ocssl.data.sources.source import Numbers
from ocssl.data.sources.text_files import read_json, shown
from ocssl.errors import DataError, SettingError, nearest


def class_groups(path: Path, level: str, classes: Sequence[str], used: Numbers) -> tuple[Numbers, list[str]]:
    """The group of each used class, numbered by name, and the names of the groups.

    The file is JSON: a list with one object a class, in the order of the class numbers, or an object that maps each
    class's name to an object or straight to its group. `level` is the key of the group in the objects.
    """
    content = read_json(path)
    if isinstance(content, list):
        if len(content) != len(classes):
            raise DataError(f"{shown(path)} lists {len(content):,} classes, but there are {len(classes):,}.")
        entries = [content[number] for number in used]
    elif isinstance(content, dict):
        entries = [_entry(content, classes[number], path) for number in used]
    else:
        raise DataError(f"{shown(path)} is no taxonomy: wanted is a list of objects, or an object with a key a class.")
    groups = [_group(entry, level, classes[number], path) for entry, number in zip(entries, used, strict=True)]
    names = sorted(set(groups))
    number_of = {name: number for number, name in enumerate(names)}
    return np.array([number_of[group] for group in groups], dtype=np.int64), names


def _entry(content: dict[str, Any], name: str, path: Path) -> Any:
    if name not in content:
        close = nearest(name, content)
        hint = f": did you call it {close!r}?" if close else "."
        raise DataError(f"{shown(path)} says nothing about class {name!r}{hint}")
    return content[name]


def _group(entry: Any, level: str, name: str, path: Path) -> str:
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict):
        raise DataError(f"{shown(path)} has no object and no text for class {name!r}.")
    if level not in entry:
        keys = [key for key, value in entry.items() if isinstance(value, str)]
        close = nearest(level, keys)
        hint = f"did you mean {close!r}?" if close else f"there are {', '.join(map(repr, keys)) or 'none'}."
        raise SettingError(f"stream.level is {level!r}, which {shown(path)} does not have for class {name!r}: {hint}")
    group = entry[level]
    if not isinstance(group, str):
        raise SettingError(f"stream.level is {level!r}, which is no text in {shown(path)} for class {name!r}.")
    return group
