"""Small text files that lie beside images: names of classes, annotations, taxonomies. Their content is not trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ocssl.data.decode.encoded import printable
from ocssl.errors import DataError, SettingError

MOST_BYTES = 2**26


def need(where: Path | None, benchmark: str, how: str = "--data DIR") -> Path:
    """The folder or file that the user named; an error where none was named or nothing is there."""
    if where is None:
        raise SettingError(f"benchmark {benchmark} reads files of yours: say where they are with {how}.")
    try:
        there = os.path.exists(where)
    except ValueError:
        there = False
    if not there:
        raise DataError(f"there is no folder {shown(where)}: say where the files of {benchmark} are with {how}.")
    return where


def shown(path: Path) -> str:
    """A path as it can be shown in a message."""
    return printable(str(path))


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """A text file of at most so many bytes."""
    try:
        if not path.is_file():  # opening a FIFO would wait for ever
            raise DataError(f"there is no file {shown(path)}.")
        with open(path, "rb") as file:
            data = file.read(min(most, path.stat().st_size) + 1)
        if len(data) > most:
            raise DataError(f"{shown(path)} is larger than {most / 2**20:,.0f} MiB: this is not what belongs here.")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {shown(path)}: {(error.strerror or str(error)).lower()}.") from None
    except UnicodeDecodeError:
        raise DataError(f"{shown(path)} is not a text file in UTF-8.") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file without the spaces around them; empty ones are left out."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def read_json(path: Path, most: int = MOST_BYTES, keep: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """What a JSON file says; `keep` may make each of its objects smaller on the way."""
    text = read_text(path, most)
    try:
        return json.loads(text, object_hook=keep)
    except json.JSONDecodeError as error:
        raise DataError(f"{shown(path)} is not JSON: {error.msg} in line {error.lineno}.") from None
    except (RecursionError, ValueError):  # nested without end, or a number of thousands of digits
        raise DataError(f"{shown(path)} is not JSON that can be read.") from None
