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
from ocssl.settings import LearnerSettings, ObjectiveSettings
from ocssl.terms import TERMS, Term
from ocssl.weights import generator_for, initialise, quietly


def complete(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings table with the options of all its parts written out, so that a record of it says everything."""
    objective, memory = dict(tree["objective"]), tree["memory"]
    rules: dict[str, Registry[Any]] = {memory["keep"]: KEEPS, memory["draw"]: DRAWS}
    options = {name: registry.complete(name, memory["rules"].get(name)) for name, registry in rules.items()}
    return {
        **tree,
        "objective": {**objective, **OBJECTIVES.complete(objective["name"], _others(objective))},
        "terms": {name: TERMS.complete(name, given) for name, given in tree["terms"].items()},
        "memory": {**memory, "rules": {**memory["rules"], **{name: o for name, o in options.items() if o}}},
    }


def _others(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in ObjectiveSettings.model_fields}


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


def build_terms(settings: LearnerSettings, objective: Objective, seed: int) -> dict[str, Term]:
    """The terms that a recipe names, by name; weight 0 turns one off."""
    terms: dict[str, Term] = {}
    with quietly():
        for name, options in settings.terms.items():
            term = TERMS.build(name, options, objective)
            if term.weight > 0:
                initialise(term, generator_for(seed, f"terms.{name}"))
                term.begin(objective)
                terms[name] = term
    for name, term in terms.items():
        if term.boundaries and not settings.schedule.boundaries:
            raise SettingError(
                f"term {name!r} must be told where an experience ends: set schedule.boundaries=true, "
                "if the setting that you study allows it."
            )
    if objective.per_sample == "none" and not any(term.whole for term in terms.values()):
        able = " or ".join(name for name in TERMS if TERMS[name].whole)
        raise SettingError(
            f"objective {settings.objective.name!r} has no loss of its own: nothing to learn without a term that is "
            f"a whole loss ({able})."
        )
    return terms


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
        chosen = settings.objective
        known = [*ObjectiveSettings.model_fields, *OBJECTIVES.options(chosen.name)]
        for key in chosen.model_extra or {}:
            if key not in known:
                raise unknown("setting", f"objective.{key}", [f"objective.{name}" for name in known])
        objective = OBJECTIVES.build(chosen.name, chosen.model_extra, encoder, dimension, chosen.projection)
    for name, head in objective.named_children():
        if name != "encoder":
            initialise(head, generator)
    objective.begin()
    return objective


def build_memory(
    settings: LearnerSettings,
    image_size: int,
    objective: Objective,
    terms: Mapping[str, Term],
    generator: torch.Generator,
    device: torch.device,
) -> Memory:
    """The memory with those columns, of all that could be stored, that a rule or term reads."""
    chosen = settings.memory
    for rule, options in chosen.rules.items():  # also those of rules that are not in use
        if rule not in KEEPS and rule not in DRAWS:
            raise unknown("rule in setting memory.rules:", rule, [*KEEPS, *DRAWS])
        (KEEPS if rule in KEEPS else DRAWS).build(rule, options)
    keep = KEEPS.build(chosen.keep, chosen.rules.get(chosen.keep))
    draw = DRAWS.build(chosen.draw, chosen.rules.get(chosen.draw))
    needs = {f"memory.keep {chosen.keep!r}": keep.needs, f"memory.draw {chosen.draw!r}": draw.needs}
    needs |= {f"term {name!r}": term.needs for name, term in terms.items()}
    if chosen.capacity:
        _require_losses(settings.objective.name, objective, needs)
        if draw.weighs() and objective.per_sample != "exact":
            raise SettingError(
                f"memory.draw {chosen.draw!r} weighs the loss of each sample, and objective "
                f"{settings.objective.name!r} trains one number for the whole batch; turn its weights off."
            )
    vectors = {
        "feature": objective.dimension if chosen.space == "encoder" else objective.projection,
        "projected": objective.projection,
    }
    columns = {name: length for name, length in vectors.items() if any(name in names for names in needs.values())}
    columns |= keep.columns(chosen.capacity)
    try:
        store = Store(chosen.capacity, (3, image_size, image_size), columns, device)
    except (RuntimeError, MemoryError):
        raise SettingError(f"memory.capacity is {chosen.capacity}: this machine cannot hold so many slots.") from None
    return Memory(store, keep, draw, generator, ema=chosen.ema, unit_vectors=chosen.mean == "unit")


def _require_losses(name: str, objective: Objective, needs: Mapping[str, frozenset[str]]) -> None:
    ranking = [part for part, columns in needs.items() if "loss" in columns]
    if ranking and objective.per_sample == "none":
        raise SettingError(
            f"{ranking[0]} goes by the loss of each sample, and objective {name!r} has none; choose another of either."
        )
