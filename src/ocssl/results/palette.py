"""How methods look: a colour and a dash by name, the same in every chart and every report.

The six colours stay apart for the three kinds of colour blindness, and have a contrast of at least 3 on the ground of
the page, light or dark; a test measures both. Methods beyond six share a colour and differ in the dash. Quantities,
such as phases of the computation, have colours of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ocssl.results.read_runs import Run

COLOURS = ("#EC3905", "#6891DC", "#3E894A", "#AD2A90", "#7236D0", "#5D4C00")  # on light ground and in print
DARK = ("#F87E48", "#75A8F1", "#8ED393", "#C852BB", "#9477FF", "#94750D")  # of the same hues, on dark ground
LIGHT_GROUND, DARK_GROUND = "#ffffff", "#15181c"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
# the place in this list is the look: colour first, then dash; new methods are added at the end
METHODS = (
    *("solar", "er-reservoir", "er-fifo", "minred", "solar-c", "finetune"),
    *("lars", "mir", "gss", "per", "scale", "cmp"),
    *("climb", "cla-r", "cla-e", "storyboard", "lump", "cassle"),
    *("osiris-r", "osiris-d", "pfr", "sycon", "pocon", "pretrain"),
)
# for quantities, never for methods: neighbours differ much in lightness, so that parts of a bar stay apart
QUANTITIES = (
    *("#E6B579", "#733117", "#9299B0", "#4A3B78", "#A98148"),
    *("#D7D4E7", "#5D5D5D", "#B3B3B3", "#3D73A7"),
)
# Viridis, for heat maps
HEAT = ("#440154", "#482878", "#3E4989", "#31688E", "#26828E", "#1F9E89", "#35B779", "#6ECE58", "#B5DE2B", "#FDE725")


@dataclass(frozen=True)
class Style:
    """How a series looks in every chart and in the tables: colour by method, dash and marker by series."""

    colour: str
    dash: str = "solid"
    symbol: str = ""
    opacity: float = 1.0

    @property
    def ink(self) -> str:
        """The colour in the page, where dark ground has others."""
        return f"var(--c{COLOURS.index(self.colour)})" if self.colour in COLOURS else self.colour


def look_of(method: str) -> int:
    """The number of a method's look; methods that this list does not know get one from their name.

    >>> look_of("solar"), look_of("er-reservoir"), look_of("mine") == look_of("mine")
    (0, 1, True)
    """
    if method in METHODS:
        return METHODS.index(method)
    return int.from_bytes(hashlib.sha256(method.encode("utf-8", "replace")).digest()[:4], "big")


def styles(runs: Sequence[Run]) -> dict[str, Style]:
    """The style of each series: variants of a method keep its colour, and no two series look the same.

    Methods of this package get their look first, so that one of your own never takes it from them.
    """
    wanted = {run.series: run.method for run in runs}
    look: dict[str, Style] = {}
    taken = set[tuple[int, int]]()
    for series, method in sorted(wanted.items(), key=lambda item: item[1] not in METHODS):
        number = look_of(method)
        colour, dash = number % len(COLOURS), number // len(COLOURS) % len(DASHES)
        steps = range(len(COLOURS) * len(DASHES))
        places = [((colour + step // len(DASHES)) % len(COLOURS), (dash + step) % len(DASHES)) for step in steps]
        place = next((place for place in places if place not in taken), places[-1])
        taken.add(place)
        look[series] = Style(COLOURS[place[0]], DASHES[place[1]], SYMBOLS[place[0] % len(SYMBOLS)])
    return {series: look[series] for series in wanted}
