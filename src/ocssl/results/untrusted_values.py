"""Values from files that nobody vouches for, as plain numbers and short texts."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NUMBERS = 4096  # of a list in an event; what is longer is not ours
LARGEST = 1e15  # of which sums and products are finite, too


def number(value: object) -> float | None:
    """A number that one can count with, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return float(value)


def numbers(value: object) -> list[float]:
    """A list of finite numbers; anything else is an empty one."""
    if not isinstance(value, list) or len(value) > MOST_NUMBERS:
        return []
    found = [number(item) for item in value]
    return [item for item in found if item is not None] if None not in found else []


def short(text: str, most: int = 36) -> str:
    """A text that fits into a legend; of a path its end, which tells it from others."""
    if len(text) <= most:
        return text
    return "…" + text[1 - most :] if "/" in text else text[: most - 1] + "…"


def shortened(texts: Iterable[str]) -> dict[str, str]:
    """Texts as they fit into a legend, no two of them alike.

    >>> shortened(["solar", "x" * 50 + "a", "x" * 50 + "b"]).values()
    dict_values(['solar', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (2)'])
    """
    names: dict[str, str] = {}
    taken = set[str]()
    for text in dict.fromkeys(texts):
        name, number = short(text), 1
        while name in taken:
            number += 1
            name = f"{short(text)} ({number})"
        names[text] = name
        taken.add(name)
    return names
