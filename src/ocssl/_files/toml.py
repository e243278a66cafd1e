"""TOML: read from files that others wrote, and written."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from ocssl._files.untrusted import read_text

MOST_BYTES = 2**20
MOST_DOTS = 500  # in a line; the time that tomllib takes for a dotted key is quadratic in its length
DEEPEST = 64  # tables and lists inside one another; deeper ones break what walks through them


def read_toml(path: Path, most: int = MOST_BYTES, links: bool = True) -> dict[str, Any]:
    """The content of a TOML file; OSError or ValueError where it cannot be read."""
    return parse_toml(read_text(path, most, links))


def parse_toml(text: str) -> dict[str, Any]:
    """TOML as a table; every error in it is a ValueError.

    >>> parse_toml("a = 1")
    {'a': 1}
    """
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"not TOML that can be read: a line with more than {MOST_DOTS} dots")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    except (RecursionError, ValueError):  # 100,000 opening brackets, or a number of 5,000 digits
        raise ValueError("not TOML that can be read") from None
    level: list[Any] = [table]
    for _ in range(DEEPEST):
        inside = [item for value in level for item in (value.values() if isinstance(value, dict) else value)]
        if any(isinstance(item, int) and not -(2**63) <= item < 2**63 for item in inside):
            raise ValueError("not TOML that can be read: a whole number beyond 64 bits")
        level = [item for item in inside if isinstance(item, dict | list)]
    if level:
        raise ValueError(f"not TOML that can be read: more than {DEEPEST} levels deep")
    return table


def dump_toml(table: Mapping[str, Any]) -> str:
    """A table as TOML text; ValueError where a name in it is no text. TOML has no null: such keys are left out.

    >>> dump_toml({"a": 1, "b": {"c": None}})
    'a = 1\\n\\n[b]\\n'
    """
    text = tomli_w.dumps(_without_none(table))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text[text.rfind("\n", 0, error.start) + 1 :].split("\n", 1)[0]
        raise ValueError(f"{line} is not UTF-8") from None
    return text


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in table.items() if value is not None}
    return {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in known.items()}
