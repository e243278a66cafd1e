"""From settings to the parts of a learner: every name is looked up here, and nowhere else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ocssl._core.random import generator_for, initialise, quietly
from ocssl._core.registry import Registry
from ocssl._distributed.ranks import ALONE, Ranks
from ocssl._distributed.shards import Shard
from ocssl.encoders import ENCODERS, feature_dimension
from ocssl.errors import SettingError, unknown
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.objectives import OBJECTIVES, Objective
from ocssl.settings import LearnerSettings, ObjectiveSettings
from ocssl.terms import TERMS, Term

STATISTICS = {"loss", "angle", "feature", "projected"}  # columns that come from a sample's own rows


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


def require_known(settings: LearnerSettings) -> None:
    """That every part which the settings name is registered."""
    memory = settings.memory
    named: list[tuple[Registry[Any], str]] = [(KEEPS, memory.keep), (DRAWS, memory.draw)]
    named += [(OBJECTIVES, settings.objective.name), *((TERMS, name) for name in settings.terms)]
    try:
        for registry, name in named:
            registry[name]
    except SettingError as error:
        raise SettingError(f"{str(error).removesuffix('.')}; a part of your own is named with --parts.") from None


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
        _require_what_a_term_needs(name, term, objective, settings)
    if not _has_losses(objective, settings) and not any(term.whole for term in terms.values()):
        able = " or ".join(name for name in TERMS if TERMS[name].whole)
        raise SettingError(
            f"objective {settings.objective.name!r} of weight {settings.objective.weight:g} trains nothing: it takes a "
            f"term that is a whole loss ({able})."
        )
    return terms


def _has_losses(objective: Objective, settings: LearnerSettings) -> bool:
    """Whether samples have losses that are trained, so that they mean something."""
    return objective.per_sample != "none" and settings.objective.weight > 0


def _require_what_a_term_needs(name: str, term: Term, objective: Objective, settings: LearnerSettings) -> None:
    schedule = settings.schedule
    if term.boundaries and not schedule.boundaries:
        raise SettingError(
            f"term {name!r} must be told where an experience ends: set schedule.boundaries=true, "
            "if the setting that you study allows it."
        )
    if term.pairs and objective.views != 2:
        raise SettingError(
            f"term {name!r} works with two views, and objective {settings.objective.name!r} has {objective.views}."
        )
    if "stream" in term.rows and schedule.stream_in == "none":
        raise SettingError(f"term {name!r} learns from stream samples: schedule.stream_in must not be none.")
    if "replay" in term.rows and (not settings.memory.capacity or schedule.stream_batch >= schedule.batch):
        raise SettingError(
            f"term {name!r} learns from replayed samples: memory.capacity must be above 0, "
            "and schedule.stream_batch below schedule.batch."
        )
    if "replay" in term.rows and schedule.mix:
        raise SettingError(
            f"term {name!r} learns from replayed samples, which have no rows of their own with schedule.mix."
        )


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
    if settings.compute.precision == "bfloat16":
        objective.precision = torch.bfloat16
    return objective


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile has what it needs: a C++ compiler, for the CPU."""
    compilers = (os.environ.get("CXX", "c++"), "g++", "clang++")
    return device.type != "cpu" or any(map(shutil.which, compilers))


def compile_encoder(objective: Objective, device: torch.device) -> None:
    """Let torch.compile make the encoder's passes, from the first step on."""
    if not can_compile(device):
        raise SettingError("compute.compile=true needs a C++ compiler, such as g++, which is not installed here.")
    objective.encoder.compile()


def build_memory(
    settings: LearnerSettings,
    image_size: int,
    objective: Objective,
    terms: Mapping[str, Term],
    generator: torch.Generator,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> Memory:
    """The memory, or a rank's shard of it, with those columns of all that there are that a rule or term reads."""
    chosen = settings.memory
    for rule, options in chosen.rules.items():  # also those of rules that are not in use
        if rule not in KEEPS and rule not in DRAWS:
            raise unknown("rule in setting memory.rules:", rule, [*KEEPS, *DRAWS])
        (KEEPS if rule in KEEPS else DRAWS).build(rule, options)
    keep = KEEPS.build(chosen.keep, chosen.rules.get(chosen.keep))
    options = dict(chosen.rules.get(chosen.draw, {}))
    if "low" in DRAWS.options(chosen.draw):
        options.setdefault("low", objective.lowest)
    draw = DRAWS.build(chosen.draw, options)
    needs = {f"memory.keep {chosen.keep!r}": keep.needs, f"memory.draw {chosen.draw!r}": draw.needs}
    asking = [name for name, asks in zip(needs, (keep.asks, draw.asks), strict=True) if asks]
    needs |= {f"term {name!r}": term.needs for name, term in terms.items()}
    if chosen.capacity:
        ranking = [part for part, columns in needs.items() if "loss" in columns]
        _require_statistics(settings, objective, asking + ranking, needs)
        if draw.weighs() and objective.per_sample != "exact":
            raise SettingError(
                f"memory.draw {chosen.draw!r} weighs the loss of each sample, and objective "
                f"{settings.objective.name!r} trains one number for the whole batch; turn the weights off in "
                f"memory.rules.{chosen.draw}."
            )
    vectors = {
        "feature": objective.dimension if chosen.space == "encoder" else objective.projection,
        "projected": objective.projection,
    }
    columns = {name: length for name, length in vectors.items() if any(name in names for names in needs.values())}
    capacity = ranks.share(chosen.capacity)
    columns |= keep.columns(capacity)
    try:
        store = Store(capacity, (3, image_size, image_size), columns, device)
    except (RuntimeError, MemoryError):
        raise SettingError(f"memory.capacity is {chosen.capacity}: this machine cannot hold so many slots.") from None
    memory = Memory(store, keep, draw, generator, ema=chosen.ema, unit_vectors=chosen.mean == "unit")
    return memory if ranks.size == 1 else Shard(memory, ranks, chosen.capacity)


def _require_statistics(
    settings: LearnerSettings, objective: Objective, ranking: list[str], needs: Mapping[str, frozenset[str]]
) -> None:
    name = settings.objective.name
    if ranking and not _has_losses(objective, settings):
        raise SettingError(
            f"{ranking[0]} goes by the loss of each sample, and objective {name!r} has none that is trained; choose "
            "another of either."
        )
    measuring = [part for part, columns in needs.items() if columns & STATISTICS]
    if measuring and settings.schedule.mix:
        raise SettingError(
            f"{measuring[0]} goes by what was measured on single samples, and schedule.mix trains on mixtures only."
        )
