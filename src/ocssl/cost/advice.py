"""Which settings to lower when a run does not fit into memory, the one that saves most first."""

from __future__ import annotations

from contextlib import suppress

from ocssl.cost.work import ImageCounts, resident_bytes_untried
from ocssl.runs.config import RunSettings

LOWER = {
    "activations": "schedule.batch",
    "network": "encoder.width",
    "optimizer": "encoder.width",
    "memory": "memory.capacity",
    "images": "stream.fraction",
}
NAMES = {
    "activations": "activations of a step",
    "network": "weights",
    "optimizer": "gradients and momenta",
    "memory": "stored images",
    "images": "images of the benchmark",
}
USUAL = ("schedule.batch", "encoder.width", "memory.capacity", "stream.image_size")
LEAST = 2**20  # bytes of a part that is worth naming


def lower(settings: RunSettings | None, images: ImageCounts | None = None) -> str:
    """A clause such as: activations of a step take the most, about 900 MB: lower schedule.batch, then encoder.width."""
    parts: dict[str, float] = {}
    if settings is not None:
        with suppress(Exception):  # there is too little memory to count, too
            parts = resident_bytes_untried(settings, images or ImageCounts.expected(settings))
    parts = {name: size for name, size in parts.items() if size >= LEAST}
    order = sorted(parts, key=lambda name: -parts[name])
    keys = list(dict.fromkeys([*(LOWER[name] for name in order), *(USUAL if not order else ())]))
    said = f"lower {', then '.join(keys[:3])}"
    if not order:
        return f"{said}."
    return f"{NAMES[order[0]]} take the most, about {parts[order[0]] / 1e6:,.0f} MB: {said}."
