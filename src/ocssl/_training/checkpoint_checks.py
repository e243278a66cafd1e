"""Whether a checkpoint can be that of a learner: types, shapes, sizes and values, before anything is built of it."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core.host_memory import check_memory
from ocssl._core.random import generator_for
from ocssl._training.assembly import build_memory, build_objective, build_terms
from ocssl.errors import CheckpointError, SettingError
from ocssl.objectives.sample_statistics import MeasureSamples
from ocssl.settings import LearnerSettings, validate

Shapes = Mapping[str, tuple[int, ...]]
TYPES: dict[str, type] = {"method": str, "settings": dict, "own_encoder": bool}
TYPES |= dict.fromkeys(("image_size", "seed", "steps", "seen"), int)
COLUMN, NETWORK = "memory.column.", "network."
KEPT = 4  # numbers that an optimizer may keep for each weight
SPARE = 2**20  # numbers: generators and counters


def check_state(shapes: Shapes, facts: Mapping[str, Any], encoder: nn.Module | None = None) -> None:
    """A CheckpointError where facts have a wrong type, or tensors have other shapes than the settings ask for.

    The learner is built without memory for its numbers, so that a checkpoint that lies about its size costs nothing.
    """
    check_facts(facts)
    if facts["own_encoder"] and encoder is None:
        return  # it cannot be loaded
    try:
        settings = validate(LearnerSettings, facts["settings"])
        wanted, columns = _expected(settings, facts["image_size"], encoder)
    except SettingError as error:
        raise CheckpointError(f"its settings cannot be used: {error}") from None
    except (NotImplementedError, RuntimeError) as error:  # a part of the user's own, which needs numbers to be built
        check_memory(error)
        return
    network = {name for name in shapes if name.startswith(NETWORK)}
    for name in sorted(network ^ wanted.keys()):
        raise CheckpointError(f"{name} is {'unknown' if name in network else 'missing'}.")
    for name, shape in wanted.items():
        if shapes[name] != shape:
            raise CheckpointError(f"{name} is {list(shapes[name])}, and its settings ask for {list(shape)}.")
    for name, shape in shapes.items():
        if name.startswith(COLUMN):
            row, capacity = columns.get(name.removeprefix(COLUMN)), settings.memory.capacity
            if row is None or shape[1:] != row or shape[0] > capacity:
                limit = f"at most {capacity} rows of {list(row or ())}"
                raise CheckpointError(f"{name} is {list(shape)}, and its settings ask for {limit}.")
    others = sum(math.prod(s) for name, s in shapes.items() if not name.startswith((NETWORK, COLUMN, "tile.")))
    if others > KEPT * sum(map(math.prod, wanted.values())) + SPARE:
        raise CheckpointError("it holds more numbers than a learner of its settings has.")


def check_facts(facts: Mapping[str, Any]) -> None:
    """A CheckpointError where a fact is missing or of a wrong type."""
    for name, kind in TYPES.items():
        if type(facts.get(name)) is not kind:
            raise CheckpointError(f"its {name} is {facts.get(name)!r:.40}, which is no {kind.__name__}.")
    if not (0 <= facts["steps"] < 2**63 and 0 <= facts["seen"] < 2**63 and 4 <= facts["image_size"] <= 1024):
        raise CheckpointError("its steps, images seen or image size are out of range.")


def check_values(tensors: Mapping[str, Tensor]) -> None:
    """A CheckpointError where weights or momenta are not finite, or a variance is negative."""
    for name, tensor in tensors.items():
        if name.startswith("memory.") and name not in (f"{COLUMN}loss", f"{COLUMN}angle"):
            continue
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{name} is not finite.")
        if name.endswith(".running_var") and bool((tensor < 0).any()):
            raise CheckpointError(f"{name} is a variance, and negative.")


def _expected(settings: LearnerSettings, image_size: int, encoder: nn.Module | None) -> tuple[Shapes, Shapes]:
    """Shapes of the network's tensors, and of a row of each of the memory's columns."""
    with torch.device("meta") as device:
        objective = build_objective(settings, image_size, encoder, generator_for(0, "weights"))
        terms = build_terms(settings, objective, 0)
        measure = MeasureSamples(settings.memory, objective.dimension, objective.projection)
        memory = build_memory(settings, image_size, objective, terms, 0, device)
    network = nn.ModuleDict({"objective": objective, "terms": nn.ModuleDict(terms), "measure": measure})
    shapes = {f"{NETWORK}{name}": tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    columns = {name: tuple(memory.store[name].shape[1:]) for name in memory.store}
    return shapes, columns
