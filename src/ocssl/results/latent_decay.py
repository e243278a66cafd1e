"""Latent Rehearsal Decay in a run's evaluations: when it began, and when the packing before it did.

In the paper Deviation falls first (views of an image are packed ever tighter), then Overlap rises (images are told
apart less), and accuracy falls with it. Here accuracy must fall and Overlap rise at the same time, both by more than
the run's own noise would make them; Deviation only says where the packing began. Means look back, never ahead, so
that a phase does not begin before there is evidence of it. Noise is taken to be independent from one evaluation to
the next. The functions are pure: numbers in, a phase out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, median_low

OVERLAP_RISE, OVERLAP_LEAST = 0.10, 0.005  # of the lowest Overlap so far, and in shares of pairs
ACCURACY_FALL = 1.0  # points below the highest accuracy so far
DEVIATION_FALL = 0.10  # of Deviation where its fall began
SPAN = 3  # evaluations that a mean looks back on
NOISES = 3.25  # standard deviations of one evaluation; one flat curve of 50 comes so far in about 4 of 100 runs
IN_A_ROW = 2  # evaluations
LEAST = SPAN + IN_A_ROW  # evaluations that it takes to tell
BEND = NormalDist().inv_cdf(0.75) * math.sqrt(6)  # median size of a - 2 b + c of three numbers, of unit variance

RULE = (
    f"Decay: for {IN_A_ROW} evaluations or more in a row, accuracy is below its highest so far and Overlap above its "
    f"lowest, each by {NOISES:g} times its own noise from one evaluation to the next and by at least "
    f"{ACCURACY_FALL:g} point of accuracy, {100 * OVERLAP_RISE:g} % of Overlap and {100 * OVERLAP_LEAST:g} % of pairs; "
    f"the phase begins where both were half as far. All are means of {SPAN} evaluations, the present and those before; "
    f"the untrained encoder does not count, and it takes {LEAST} evaluations to tell."
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

    Evaluations without Overlap or accuracy are left out.

    >>> fall, rise = [0.5, 0.5, 0.5, 0.4, 0.3, 0.2, 0.2, 0.2], [0.2, 0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5]
    >>> find_decay([10, 20, 30, 40, 50, 60, 70, 80], fall, rise, [35, 40, 45, 45, 40, 30, 20, 10])
    Decay(start=60, end=80, lasts=True, packing=30)
    """
    rows = [
        (place, dev, over, acc)
        for place, dev, over, acc in zip(places, deviation, overlap, accuracy, strict=True)
        if over is not None and acc is not None
    ]
    if len(rows) < LEAST:
        return None
    falls = _falls([row[3] for row in rows], lambda _: ACCURACY_FALL)
    rises = _falls([-row[2] for row in rows], lambda best: max(OVERLAP_RISE * -best, OVERLAP_LEAST))
    both = [min(pair) for pair in zip(falls, rises, strict=True)]
    sure = next((i for i in range(len(both) - IN_A_ROW + 1) if min(both[i : i + IN_A_ROW]) >= 1), None)
    if sure is None:
        return None
    first = last = sure
    while first > 0 and both[first - 1] >= 0.5:
        first -= 1
    while last + 1 < len(both) and both[last + 1] >= 0.5:
        last += 1
    there = rows[SPAN - 1 :]
    known = rows[: sure + SPAN + IN_A_ROW - 1]
    packing = _packing([(row[0], row[1]) for row in known if row[1] is not None])
    return Decay(there[first][0], there[last][0], last == len(both) - 1, packing)


def _falls(values: Sequence[float], least: Callable[[float], float]) -> list[float]:
    """How far each mean lies below the highest so far; 1 is what decay takes: beyond noise, and `least` of the highest.

    >>> _falls([9, 9, 9, 6, 6, 6], lambda best: 1.0)
    [0.0, 1.0, 2.0, 3.0]
    """
    noise, best, falls = NOISES * _noise(values), -math.inf, []
    for mean in _means(values):
        best = max(best, mean)
        falls.append((best - mean) / max(noise, least(best)))
    return falls


def _noise(values: Sequence[float]) -> float:
    """The standard deviation of one value about the curve, from how it bends at each value.

    A straight rise or fall does not bend and the median passes over a few sudden steps, so that decay is no noise.
    """
    bends = [abs(values[i - 1] - 2 * values[i] + values[i + 1]) for i in range(1, len(values) - 1)]
    return median_low(bends) / BEND if bends else 0.0


def _means(values: Sequence[float]) -> list[float]:
    """Means of each value from the third on and the two before it."""
    return [fmean(values[i - SPAN : i]) for i in range(SPAN, len(values) + 1)]


def _packing(before: Sequence[tuple[float, float]]) -> float | None:
    """Where the unbroken fall of Deviation until the decay was sure began, if it is deep enough."""
    values = [value for _, value in before]
    means = _means(values)
    at = len(means) - 1
    while at > 0 and means[at - 1] > means[at]:
        at -= 1
    if not means or means[at] - means[-1] < max(NOISES * _noise(values), DEVIATION_FALL * means[at]):
        return None
    return before[at + SPAN - 1][0]


def median_phase(phases: Sequence[Decay | None]) -> Decay | None:
    """The phase of a method with these seeds: medians, if more than half of them decay."""
    found = [phase for phase in phases if phase]
    if 2 * len(found) <= len(phases):
        return None
    packing = [phase.packing for phase in found if phase.packing is not None]
    start, end = median(phase.start for phase in found), median(phase.end for phase in found)
    lasts = 2 * sum(phase.lasts for phase in found) > len(found)
    return Decay(start, max(start, end), lasts, median(packing) if packing else None)
