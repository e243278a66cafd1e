"""What to lower when memory is short is what takes most of it."""

from __future__ import annotations

from typing import Any

import pytest

from ocssl.cost.advice import USUAL, lower
from ocssl.runs.config import resolve_run


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"schedule.batch": 5000}, "schedule.batch"),
        ({"encoder.width": 256, "schedule.batch": 2, "schedule.stream_batch": 1}, "encoder.width"),
        ({"memory.capacity": 10**7}, "memory.capacity"),
    ],
)
def test_the_largest_part_comes_first(given: dict[str, Any], first: str) -> None:
    assert f"MB: lower {first}" in lower(resolve_run("solar", "synthetic", 0, given))


def test_what_cannot_be_counted_is_the_usual() -> None:
    assert lower(None) == f"lower {', then '.join(USUAL)}."
