"""The names of all parts, for `ocssl list`."""

import json
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from ocssl import recipes
from ocssl._core.registry import Registry
from ocssl._training.optimizer import OPTIMIZERS
from ocssl.encoders import ENCODERS
from ocssl.memory import DRAWS, KEEPS
from ocssl.objectives import OBJECTIVES
from ocssl.terms import TERMS


def names(kind: str) -> dict[str, dict[str, str]]:
    """Titles to tables of name and description."""
    if kind == "methods":
        return {"": recipes.methods()}
    if kind == "benchmarks":
        return {"": recipes.benchmarks()}
    if kind == "sources":
        from ocssl.data import BENCHMARKS

        own = [name for name in BENCHMARKS if getattr(BENCHMARKS[name], "after_colon", "")]
        lines = {name: BENCHMARKS.summary(name).partition(": ") for name in own}  # folder:PATH, and what it is
        return {"": {how if line else name: line or how for name, (how, _, line) in lines.items()}}
    if kind == "experiments":
        from ocssl.results.paper import own_plans, plan_names, read_plan

        return {"": {name: read_plan(name).title for name in [*plan_names(), *own_plans()]}}
    if kind == "measures":
        from ocssl._core.measures import MEASURES

        return {"": {key: measure.summary for key, measure in MEASURES.items()}}
    if kind == "rules":
        return {"keep rules (memory.keep)": _lines(KEEPS), "draw rules (memory.draw)": _lines(DRAWS)}
    if kind == "settings":
        return _settings()
    others: dict[str, Registry[Any]] = {
        "objectives": OBJECTIVES,
        "terms": TERMS,
        "encoders": ENCODERS,
        "optimizers": OPTIMIZERS,
    }
    return {"": _lines(others[kind])}


def _lines(registry: Registry[Any]) -> dict[str, str]:
    return {name: registry.summary(name) for name in registry}


def _settings() -> dict[str, dict[str, str]]:
    """Every key of `--set` with its default: section by section, then the options of the parts that a setting names."""
    from ocssl.data import BENCHMARKS
    from ocssl.runs.config import RunSettings

    found = {}
    for name, field in RunSettings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            found[f"{name}: {section.__doc__}"] = {
                _assigned(f"{name}.{key}", own.get_default(call_default_factory=True)): (own.description or "")
                + _choices(own.annotation)
                for key, own in section.model_fields.items()
                if key != "rules"  # they come below, one by one
            }
    return found | {
        "options of encoders": _options([ENCODERS], "encoder.", "if encoder.name is "),
        "options of objectives": _options([OBJECTIVES], "objective.", "if objective.name is "),
        "options of optimizers": _options([OPTIMIZERS], "optimizer.", "if optimizer.name is "),
        "options of rules": _options([KEEPS, DRAWS], "memory.rules.{name}."),
        "options of terms": _options([TERMS], "terms.{name}."),
        "options of benchmarks": _options([BENCHMARKS], "stream.", "if the benchmark is "),
    }


def _options(registries: Iterable[Registry[Any]], prefix: str, words: str = "") -> dict[str, str]:
    """The options of parts; those of several parts that have the same name and default share a line."""
    found: dict[tuple[str, str], list[str]] = {}
    for registry in registries:
        for name in registry:
            kinds = get_type_hints(registry[name].__init__)
            for key, option in registry.options(name).items():
                line = _assigned(prefix.format(name=name) + key, option.default)
                line += " = automatic" if option.default is None else ""
                found.setdefault((line, _choices(kinds.get(key))), []).append(name)
    return {
        key: f"{words}{', '.join(names)}{choices}" if words else choices.removeprefix("; ")
        for (key, choices), names in found.items()
    }


def _choices(kind: Any) -> str:
    """The values that a setting may have, where they are a few words."""
    known = [kind, *get_args(kind)]
    values = [value for one in known if get_origin(one) is Literal for value in get_args(one)]
    return f"; one of: {', '.join(map(str, values))}" if values else ""


def _assigned(key: str, value: Any) -> str:
    """A setting as it could stand in TOML; without a value if it has none by default."""
    return key if value is None else f"{key} = {json.dumps(value)}"
