"""Latent Rehearsal Decay in a run's evaluations: when it began, and when the packing before it did.

In the paper Deviation falls first (views of an image are packed ever tighter), then Overlap rises (images are told
apart less), and accuracy falls with it. The functions are pure: numbers in, a phase out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

OVERLAP_RISE, OVERLAP_LEAST = 0.10, 0.005  # of the lowest Overlap so far, and in shares of pairs
ACCURACY_FALL = 1.0  # points below the highest accuracy so far
DEVIATION_FALL = 0.10  # of Deviation where its fall began
IN_A_ROW = 2  # evaluations

RULE = (
    f"Decay: for {IN_A_ROW} evaluations or more in a row, Overlap is at least {100 * OVERLAP_RISE:g} % (and "
    f"{100 * OVERLAP_LEAST:g} % of pairs) above its lowest value so far while accuracy is at least {ACCURACY_FALL:g} "
    "point below its highest (means of three neighbouring evaluations; the untrained encoder does not count)."
)


@dataclass(frozen=True)
class Decay:
    """The phase of decay, in the unit of the places given."""

    start: float
    end: float
    lasts: bool  # to the last evaluation
    packing: float | None  # where the fall of Deviation that leads into it began


def find_decay(
    places: Sequence[float],
    deviation: Sequence[float | None],
    overlap: Sequence[float | None],
    accuracy: Sequence[float | None],
) -> Decay | None:
    """The first phase of decay among evaluations in order; None if there is none. The rule is `RULE`.

    Evaluations without Overlap or accuracy are passed over.

    >>> fall, rise = [0.5, 0.5, 0.4, 0.3, 0.2, 0.2], [0.2, 0.1, 0.1, 0.2, 0.3, 0.4]
    >>> find_decay([10, 20, 30, 40, 50, 60], fall, rise, [30, 40, 45, 40, 30, 20])
    Decay(start=40, end=60, lasts=True, packing=10)
    """
    rows = [
        row
        for row in zip(places, deviation, overlap, accuracy, strict=True)
        if row[2] is not None and row[3] is not None
    ]
    over, acc = _smooth([row[2] for row in rows]), _smooth([row[3] for row in rows])
    lowest, highest, ill = float("inf"), float("-inf"), []
    for o, a in zip(over, acc, strict=True):
        lowest, highest = min(lowest, o), max(highest, a)
        ill.append(o >= lowest + max(OVERLAP_RISE * lowest, OVERLAP_LEAST) and a <= highest - ACCURACY_FALL)
    first = next((i for i in range(len(ill)) if all(ill[i : i + IN_A_ROW]) and i + IN_A_ROW <= len(ill)), None)
    if first is None:
        return None
    last = next((i for i in range(first, len(ill)) if not ill[i]), len(ill)) - 1
    return Decay(rows[first][0], rows[last][0], last == len(ill) - 1, _packing(rows, first))


def _packing(rows: Sequence[tuple[float, float | None, float | None, float | None]], first: int) -> float | None:
    """Where the unbroken fall of Deviation up to the decay's beginning began, if it is deep enough."""
    before = [(row[0], row[1]) for row in rows[: first + 2] if row[1] is not None]
    smooth = _smooth([value for _, value in before])[: first + 1]
    at = len(smooth) - 1
    while at > 0 and smooth[at - 1] > smooth[at]:
        at -= 1
    return before[at][0] if smooth and smooth[-1] <= (1 - DEVIATION_FALL) * smooth[at] else None


def _smooth(values: Sequence[float | None]) -> list[float]:
    """Means of three neighbours, of two at the ends."""
    known = [value for value in values if value is not None]
    return [fmean(known[max(0, i - 1) : i + 2]) for i in range(len(known))]


def together(phases: Sequence[Decay | None]) -> Decay | None:
    """The phase of a method with these seeds: medians, if more than half of them decay."""
    found = [phase for phase in phases if phase]
    if 2 * len(found) <= len(phases):
        return None
    packing = [phase.packing for phase in found if phase.packing is not None]
    start, end = median(phase.start for phase in found), median(phase.end for phase in found)
    lasts = 2 * sum(phase.lasts for phase in found) > len(found)
    return Decay(start, max(start, end), lasts, median(packing) if packing else None)
