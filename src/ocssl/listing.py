"""The names of all parts, for `ocssl list`."""

from __future__ import annotations

from typing import Any

from ocssl import recipes
from ocssl.encoders import ENCODERS
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.registry import Registry
from ocssl.terms import TERMS


def names(kind: str) -> dict[str, dict[str, str]]:
    """Titles to tables of name and description."""
    if kind == "methods":
        return {"": recipes.methods()}
    if kind == "benchmarks":
        return {"": recipes.benchmarks()}
    if kind == "experiments":
        from ocssl.experiments import plan_names, read_plan

        return {"": {name: read_plan(name).title for name in plan_names()}}
    if kind == "rules":
        return {"keep rules (memory.keep)": _lines(KEEPS), "draw rules (memory.draw)": _lines(DRAWS)}
    others: dict[str, Registry[Any]] = {"objectives": OBJECTIVES, "terms": TERMS, "encoders": ENCODERS}
    return {"": _lines(others[kind])}


def _lines(registry: Registry[Any]) -> dict[str, str]:
    return {name: registry.summary(name) for name in registry}
