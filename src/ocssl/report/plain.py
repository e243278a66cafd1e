"""Values from files that nobody vouches for, as plain numbers and short texts."""

from __future__ import annotations

import math

MOST_NUMBERS = 4096  # of a list in an event; what is longer is not ours


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def numbers(value: object) -> list[float]:
    """A list of finite numbers; anything else is an empty one."""
    if not isinstance(value, list) or len(value) > MOST_NUMBERS:
        return []
    found = [number(item) for item in value]
    return [item for item in found if item is not None] if None not in found else []


def short(text: str, most: int = 36) -> str:
    """A text that fits into a legend."""
    return text if len(text) <= most else text[: most - 1] + "…"
