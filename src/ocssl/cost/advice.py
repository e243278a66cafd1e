"""Which settings to lower when a run does not fit into memory, the one that saves most first."""

from __future__ import annotations

from contextlib import suppress

from ocssl.cost.work import ImageCounts, resident_bytes
from ocssl.runs.config import RunSettings

LOWER = {  # of each part: what it is called, and the setting that makes it smaller
    "activations": ("activations of a step", "schedule.batch"),
    "network": ("weights", "encoder.width"),
    "optimizer": ("gradients and momenta", "encoder.width"),
    "memory": ("stored images", "memory.capacity"),
    "images": ("images of the benchmark", "stream.fraction"),
}
USUAL = ("schedule.batch", "encoder.width", "memory.capacity")
LEAST = 2**20  # bytes of a part that is worth naming


def lower(settings: RunSettings | None) -> str:
    """A clause such as: activations of a step take the most, about 900 MB: lower schedule.batch, then encoder.width."""
    parts: dict[str, float] = {}
    if settings is not None:
        with suppress(Exception):  # there is too little memory to count, too
            parts = resident_bytes(settings, ImageCounts.expected(settings), trial=False)
    order = sorted((name for name in parts if parts[name] >= LEAST), key=lambda name: -parts[name])
    if not order:
        return f"lower {', then '.join(USUAL)}."
    keys = list(dict.fromkeys(LOWER[name][1] for name in order))
    most = f"{LOWER[order[0]][0]} take the most, about {parts[order[0]] / 1e6:,.0f} MB"
    return f"{most}: lower {', then '.join(keys[:3])}."
