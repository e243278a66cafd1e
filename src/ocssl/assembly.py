"""From settings to the parts of a learner: every name is looked up here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ocssl.encoders import ENCODERS, feature_dimension
from ocssl.errors import SettingError, unknown
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.objectives import OBJECTIVES, Objective
from ocssl.registry import Registry
from ocssl.settings import LearnerSettings, MemorySettings
from ocssl.terms import TERMS, Term
from ocssl.weights import initialise, quietly


def complete(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings table with the options of all its parts written out, so that a record of it says everything."""
    objective, memory = tree["objective"], tree["memory"]
    rules: dict[str, Registry[Any]] = {memory["keep"]: KEEPS, memory["draw"]: DRAWS}
    options = {name: registry.complete(name, memory["rules"].get(name)) for name, registry in rules.items()}
    return {
        **tree,
        "objective": {"name": objective["name"], **OBJECTIVES.complete(objective["name"], _others(objective))},
        "terms": {name: TERMS.complete(name, given) for name, given in tree["terms"].items()},
        "memory": {**memory, "rules": {**memory["rules"], **{name: o for name, o in options.items() if o}}},
    }


def _others(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "name"}


def usable_device(name: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingError(f"unknown device {name!r}: cpu and cuda are known.") from None
    if device.type not in ("cpu", "cuda"):
        raise SettingError(f"device {device.type} is not supported: use cpu or cuda.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingError("device cuda is not available: this PyTorch finds no GPU; use cpu.")
    return device


def build_terms(settings: LearnerSettings) -> dict[str, Term]:
    """The terms that a recipe names; weight 0 turns one off."""
    built = {name: TERMS.build(name, options) for name, options in settings.terms.items()}
    return {name: term for name, term in built.items() if term.weight > 0}


def build_objective(
    settings: LearnerSettings, image_size: int, encoder: nn.Module | None, generator: torch.Generator
) -> Objective:
    """The objective around its encoder; an encoder that is handed in keeps its weights."""
    with quietly():
        if encoder is None:
            choice = settings.encoder
            encoder = ENCODERS.build(choice.name, {"width": choice.width, "stem": choice.stem}, image_size)
            initialise(encoder, generator)
        dimension = feature_dimension(encoder, image_size)
        objective = OBJECTIVES.build(settings.objective.name, settings.objective.model_extra, encoder, dimension)
    for name, head in objective.named_children():
        if name != "encoder":
            initialise(head, generator)
    return objective


def build_memory(
    settings: MemorySettings,
    image_size: int,
    vectors: Mapping[str, int],
    terms: Mapping[str, Term],
    generator: torch.Generator,
    device: torch.device,
) -> Memory:
    """The memory with those vector columns, of all that could be stored, that a rule or term reads."""
    for rule, options in settings.rules.items():  # also those of rules that are not in use
        if rule not in KEEPS and rule not in DRAWS:
            raise unknown("rule in setting memory.rules:", rule, [*KEEPS, *DRAWS])
        (KEEPS if rule in KEEPS else DRAWS).build(rule, options)
    keep = KEEPS.build(settings.keep, settings.rules.get(settings.keep))
    draw = DRAWS.build(settings.draw, settings.rules.get(settings.draw))
    needs = keep.needs.union(draw.needs, *(term.needs for term in terms.values()))
    stored = {name: length for name, length in vectors.items() if name in needs}
    try:
        store = Store(settings.capacity, (3, image_size, image_size), stored, device)
    except (RuntimeError, MemoryError):
        raise SettingError(f"memory.capacity is {settings.capacity}: this machine cannot hold so many slots.") from None
    return Memory(store, keep, draw, generator, ema=settings.ema, unit_vectors=settings.mean == "unit")
