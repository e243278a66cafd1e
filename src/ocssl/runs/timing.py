"""Where a run's time went: seconds by phase, in a file of their own, since they differ from run to run.

What was done and lost in a crash before the next checkpoint is not in them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from ocssl._core import checkpoint
from ocssl._files.untrusted import read_regular

TIMING = "timing.json"
LARGEST = 2**20  # bytes


def write_timing(folder: Path, seconds: Mapping[str, float]) -> None:
    """Note the seconds of each phase up to a checkpoint."""
    body = {phase: round(spent, 3) for phase, spent in seconds.items()}
    checkpoint.replace_file(folder / TIMING, json.dumps(body, indent=1).encode())


def read_timing(folder: Path) -> dict[str, float]:
    """The seconds by phase of a run folder; nothing where there are none, or none that can be read."""
    try:
        found = json.loads(read_regular(folder / TIMING, LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {phase: float(spent) for phase, spent in found.items() if _seconds(spent)}


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
