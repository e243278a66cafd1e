"""From settings to the parts of a learner: every name is looked up here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ocssl.encoders import ENCODERS, feature_dimension
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.errors import unknown
from ocssl.objectives import OBJECTIVES, Objective
from ocssl.settings import LearnerSettings, MemorySettings
from ocssl.terms import TERMS, Term
from ocssl.weights import initialise, quietly


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
    for rule in settings.rules:
        if rule not in KEEPS and rule not in DRAWS:
            raise unknown("rule in setting memory.rules:", rule, [*KEEPS, *DRAWS])
    keep = KEEPS.build(settings.keep, settings.rules.get(settings.keep))
    draw = DRAWS.build(settings.draw, settings.rules.get(settings.draw))
    needs = keep.needs.union(draw.needs, *(term.needs for term in terms.values()))
    stored = {name: length for name, length in vectors.items() if name in needs}
    store = Store(settings.capacity, (3, image_size, image_size), stored, device)
    return Memory(store, keep, draw, generator, ema=settings.ema, unit_vectors=settings.mean == "unit")
