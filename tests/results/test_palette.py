"""Facts about colours: a method keeps its own, and all stay apart for each kind of colour blindness."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ocssl import recipes
from ocssl.results.figures import FILLS
from ocssl.results.palette import COLOURS, DARK, DARK_GROUND, DASHES, LIGHT_GROUND, METHODS, look_of, styles
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import name_runs

# Machado, Oliveira and Fernandes 2009, full severity, on linear RGB
SIGHT = {
    "usual": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
APART = 0.08  # distance in Oklab; Okabe and Ito's colours without black and yellow come to 0.04 on white
CONES = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
CONES += [[0.0883024619, 0.2817188376, 0.6299787005]]
LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
LAB += [[0.0259040371, 0.7827717662, -0.8086757660]]
Colour = npt.NDArray[np.float64]


def linear(colour: str) -> Colour:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb: Colour) -> Colour:
    return np.asarray(LAB) @ np.cbrt(np.asarray(CONES) @ rgb.clip(0, 1))


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05 for colour in (one, other))
    return high / low


def nearest(colours: tuple[str, ...], sight: str) -> float:
    seen = [oklab(np.asarray(SIGHT[sight]) @ linear(colour)) for colour in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))


@pytest.mark.parametrize("colours", [COLOURS, DARK])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_every_sight(colours: tuple[str, ...], sight: str) -> None:
    assert nearest(colours, sight) > APART


def test_red_and_green_of_one_lightness_are_found() -> None:
    assert nearest(("#B06000", "#7A7A00"), "deutan") < APART < nearest(("#B06000", "#7A7A00"), "usual")


@pytest.mark.parametrize(("colours", "ground"), [(COLOURS, LIGHT_GROUND), (DARK, DARK_GROUND)])
def test_colours_stand_out_from_their_ground(colours: tuple[str, ...], ground: str) -> None:
    assert all(contrast(colour, ground) >= 3 for colour in colours)


def test_every_method_of_this_package_has_a_look_that_no_other_has() -> None:
    assert set(recipes.methods()) <= set(METHODS)
    assert len({(look_of(name) % len(COLOURS), look_of(name) // len(COLOURS)) for name in METHODS}) == len(METHODS)
    assert len(METHODS) <= len(COLOURS) * len(DASHES)


def test_solar_and_its_centred_variant_differ_in_colour() -> None:
    runs = named("solar", "solar-c", "er-reservoir", "er-fifo", "minred")
    assert len({style.colour for style in styles(runs).values()}) == 5


def named(*methods: str) -> list[Run]:
    runs = [Run(Path(f"{i}"), method, "synthetic", 0, "", {}) for i, method in enumerate(methods)]
    name_runs(runs)
    return runs


def test_a_method_keeps_its_look_whoever_is_beside_it() -> None:
    alone = styles(named("minred"))["minred"]
    for others in (["solar"], ["mine", "er-fifo"], ["a", "b", "c", "d", "e", "f", "g", "h"]):
        assert styles(named(*others, "minred"))["minred"] == alone
        assert styles(named("minred", *others))["minred"] == alone
    assert styles(named("mine"))["mine"] == styles(named("solar", "mine"))["mine"] or look_of("mine") % 30 == 0


def turn(one: str, other: str) -> float:
    """Degrees between the hues of two colours."""
    (_, a, b), (_, c, d) = (oklab(linear(colour)) for colour in (one, other))
    return abs(float(np.degrees(np.angle(complex(a, b) / complex(c, d)))))


def test_a_method_keeps_its_hue_on_dark_ground() -> None:
    assert max(map(turn, COLOURS, DARK)) < 20
    assert turn("#3E894A", "#A1E3D3") > 20  # green and mint


def test_quantities_never_have_the_colour_of_a_method() -> None:
    methods = [oklab(linear(colour)) for colour in (*COLOURS, *DARK)]
    quantities = [oklab(linear(colour)) for colour in FILLS.values()]
    assert min(float(np.linalg.norm(a - b)) for a in methods for b in quantities) > 0.06


@pytest.mark.parametrize("sight", SIGHT)
def test_neighbouring_parts_of_a_bar_stay_apart_for_every_sight(sight: str) -> None:
    fills = tuple(FILLS.values())
    assert nearest(fills, sight) > APART
    assert min(nearest(pair, sight) for pair in itertools.pairwise(fills)) > 2.5 * APART
    assert nearest(("#3B496C", "#575D6D"), sight) < 2.5 * APART  # two steps of Cividis
    assert min(contrast(fill, ground) for fill in fills for ground in (LIGHT_GROUND, DARK_GROUND)) > 1.4
