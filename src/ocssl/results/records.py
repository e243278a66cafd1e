"""What a run records at its evaluations: accuracy and latent space, spectrum, and what its memory holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ocssl.results.untrusted_values import number, numbers

QUANTILES = 5  # least, quarter, median, three quarters, most


@dataclass(frozen=True)
class Evaluation:
    """What was measured after an experience; experience 0 is the untrained encoder."""

    experience: int
    share: float | None  # of the stream, in per cent
    seen: float
    accuracy: float | None
    deviation: float | None
    overlap: float | None  # share of pairs, 0 to 1
    online_overlap: float | None = None  # the same from the memory's stored statistics
    tasks: tuple[float, ...] = ()  # accuracy of each task's own probe


@dataclass(frozen=True)
class Spectrum:
    """Singular values of mean features, the largest 1."""

    share: float | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class Holding:
    """What a memory held at an evaluation."""

    share: float | None
    stored: float
    born: tuple[float, ...]  # counts over equal parts of the stream
    age: tuple[float, ...]  # quantiles, in stream images
    loss: tuple[float, ...]  # quantiles
    losses: tuple[float, ...]  # counts over equal parts of the range of the loss
    classes: tuple[float, ...]  # counts


def evaluation(event: dict[str, Any], share: float | None) -> Evaluation | None:
    """An evaluation, if the event says when it was."""
    keys = ("experience", "seen", "accuracy", "deviation", "overlap", "online_overlap")
    experience, seen, accuracy, deviation, overlap, online = (number(event.get(key)) for key in keys)
    if experience is None or seen is None:
        return None
    tasks = tuple(numbers(event.get("tasks")))
    return Evaluation(int(experience), share, seen, accuracy, deviation, overlap, online, tasks)


def spectrum(event: dict[str, Any], share: float | None) -> Spectrum | None:
    values = numbers(event.get("values"))
    return Spectrum(share, tuple(values)) if values else None


def holding(event: dict[str, Any], share: float | None) -> Holding | None:
    """What was stored; None of a memory that is empty or cannot be understood."""
    stored = number(event.get("stored"))
    if not stored or stored < 0:
        return None
    losses = event.get("losses")
    histogram = losses if isinstance(losses, dict) else {}
    born, classes, counts = (
        _counts(value) for value in (event.get("born"), event.get("classes"), histogram.get("counts"))
    )
    return Holding(share, stored, born, _quantiles(event.get("age")), _quantiles(event.get("loss")), counts, classes)


def _counts(value: object) -> tuple[float, ...]:
    found = tuple(numbers(value))
    return found if all(count >= 0 for count in found) else ()


def _quantiles(value: object) -> tuple[float, ...]:
    found = tuple(numbers(value))
    return found if len(found) == QUANTILES and list(found) == sorted(found) else ()
