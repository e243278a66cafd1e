"""Defaults of options, as the specification has them from the papers and the public code."""

from __future__ import annotations

from typing import Any

import pytest

from ocssl._core.registry import Registry
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.terms import TERMS

TABLE: list[tuple[Registry[Any], str, dict[str, Any]]] = [
    (OBJECTIVES, "simclr", {"temperature": 0.5}),
    (OBJECTIVES, "byol", {"momentum": 0.99}),
    (OBJECTIVES, "moco", {"momentum": 0.999, "queue": 2000, "temperature": 0.07}),
    (OBJECTIVES, "dino", {"momentum": 0.996, "center_momentum": 0.9, "temperature": 0.1, "teacher_temperature": 0.04}),
    (OBJECTIVES, "barlow-twins", {"off_diagonal": 5e-3}),
    (OBJECTIVES, "vicreg", {"invariance": 25, "variance": 25, "covariance": 1}),
    (OBJECTIVES, "emp-ssl", {"invariance": 200, "rate": 1, "eps": 0.2, "patches": 20}),
    (OBJECTIVES, "cmp", {"alignment": 100, "rate": 3, "eps": 0.2, "patches": 20}),
    (TERMS, "overlap", {"weight": 1, "k": 500}),
    (TERMS, "cla-e", {"momentum": 0.999}),
    (TERMS, "pocon", {"adapt": 1, "retain": 25}),
    (TERMS, "scale", {"rho": 0.1, "distill": 0.15}),
    (TERMS, "scale", {"temperature": 0.1, "past_temperature": 0.01, "mask_temperature": 0.1}),
    (DRAWS, "per", {"alpha": 0.6, "beta": 0.4}),
    (DRAWS, "mir", {"candidates": 512}),
    (KEEPS, "gss", {"subsets": 10, "subset_size": 10, "threshold": 0}),
]


@pytest.mark.parametrize(
    ("registry", "name", "option", "value"),
    [
        pytest.param(registry, name, option, value, id=f"{name}-{option}")
        for registry, name, options in TABLE
        for option, value in options.items()
    ],
)
def test_the_default_is_the_specified_one(registry: Registry[Any], name: str, option: str, value: Any) -> None:
    assert registry.options(name)[option].default == value
