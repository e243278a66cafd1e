"""Checks of a checkpoint before a learner is built from it: types, shapes, sizes and values."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core.checkpoint import Layout, Layouts
from ocssl._core.exclusive_call import own_torch_state
from ocssl._core.host_memory import check_memory
from ocssl._core.random import generator_for
from ocssl._training.assembly import build_memory, build_objective, build_terms
from ocssl.errors import CheckpointError, SettingError
from ocssl.objectives.sample_statistics import MeasureSamples
from ocssl.settings import LearnerSettings, validate

TYPES: dict[str, type] = {"method": str, "settings": dict, "own_encoder": bool}
TYPES |= dict.fromkeys(("image_size", "seed", "steps", "seen"), int)
COLUMN, NETWORK = "memory.column.", "network."
COUNTS = {"memory.seen", f"{COLUMN}born", f"{COLUMN}draws"}
KEPT = 4  # numbers that an optimizer may keep for each weight
SPARE = 2**20  # numbers: generators, counters and thumbnails
LARGEST_COUNT = 2**62  # of images or steps: far below where int64 wraps
MOST_UNKNOWN = 2**31  # numbers of a network that cannot be compared with the encoder
MOST_ROW = 2**17  # numbers that such a learner's memory keeps of an image, beside its pixels


def check_state(layouts: Layouts, facts: Mapping[str, Any], encoder: nn.Module | None = None) -> None:
    """A CheckpointError where facts have a wrong type, or tensors are not those that the settings ask for.

    The learner is built without memory for its numbers, so that a checkpoint that lies about its size costs nothing.
    """
    check_facts(facts)
    if facts["own_encoder"] and encoder is None:
        raise CheckpointError("this learner has a custom encoder: pass encoder= to load it.")
    try:
        settings = validate(LearnerSettings, facts["settings"])
        wanted, columns = _expected(settings, facts["image_size"], encoder)
    except SettingError as error:
        raise CheckpointError(f"its settings cannot be used: {error}") from None
    except (NotImplementedError, RuntimeError) as error:  # a part of the user's own, which needs numbers to be built
        check_memory(error)
        _check_unknown(layouts, settings, facts["image_size"])
        return
    network = {name for name in layouts if name.startswith(NETWORK)}
    for name in sorted(network ^ wanted.keys()):
        raise CheckpointError(f"{name} is {'unknown' if name in network else 'missing'}.")
    for name, layout in wanted.items():
        if layouts[name] != layout:
            raise CheckpointError(f"{name} is {layouts[name]}, and its settings ask for {layout}.")
    rows = [layout.shape[:1] for name, layout in layouts.items() if name.startswith(COLUMN)]
    for name, layout in layouts.items():
        if name.startswith(COLUMN):
            column, capacity = columns.get(name.removeprefix(COLUMN)), settings.memory.capacity
            count, row = layout.shape[:1], Layout(layout.dtype, layout.shape[1:])
            if row != column or count != rows[0] or not () < count <= (capacity,):
                limit = f"at most {capacity} rows of {column or 'nothing'}"
                raise CheckpointError(f"{name} is {layout}, and its settings ask for {limit}.")
    others = _numbers({n: layout for n, layout in layouts.items() if not n.startswith((NETWORK, COLUMN))})
    if others > KEPT * _numbers(wanted) + SPARE:
        raise CheckpointError("it holds more numbers than a learner of its settings has.")


def check_weights(layouts: Layouts, facts: Mapping[str, Any]) -> None:
    """As `check_state`, for weights that another learner starts from: a custom encoder need not be there."""
    check_facts(facts)
    if not facts["own_encoder"]:
        check_state(layouts, facts)
        return
    try:
        settings = validate(LearnerSettings, facts["settings"])
    except SettingError as error:
        raise CheckpointError(f"its settings cannot be used: {error}") from None
    _check_unknown(layouts, settings, facts["image_size"])


def _check_unknown(layouts: Layouts, settings: LearnerSettings, image_size: int) -> None:
    """A bound where the network's own tensors are not known."""
    most = MOST_UNKNOWN + settings.memory.capacity * (3 * image_size**2 + MOST_ROW)
    if _numbers(layouts) > most:
        raise CheckpointError(f"it holds more numbers than the {most:,} that are read.")


def _numbers(layouts: Layouts) -> int:
    return sum(math.prod(layout.shape) for layout in layouts.values())


def check_facts(facts: Mapping[str, Any]) -> None:
    """A CheckpointError where a fact is missing or of a wrong type."""
    for name, kind in TYPES.items():
        if type(facts.get(name)) is not kind:
            raise CheckpointError(f"its {name} is {facts.get(name)!r:.40}, which is no {kind.__name__}.")
    counts = all(0 <= facts[name] < LARGEST_COUNT for name in ("steps", "seen"))
    if not (counts and 4 <= facts["image_size"] <= 1024):
        raise CheckpointError("its steps, images seen or image size are out of range.")


def check_values(tensors: Mapping[str, Tensor]) -> None:
    """A CheckpointError where numbers are not finite, a variance is negative, or a count cannot be one."""
    for name, tensor in tensors.items():
        real = tensor.is_floating_point()
        if (real or tensor.is_complex()) and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{name} is not finite.")
        if name.endswith(".running_var") and real and bool((tensor < 0).any()):
            raise CheckpointError(f"{name} is a variance, and negative.")
        whole = tensor.dtype == torch.int64
        if name in COUNTS and not (whole and bool(((tensor >= 0) & (tensor < LARGEST_COUNT)).all())):
            raise CheckpointError(f"{name} is out of range.")


def check_layouts(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """A ValueError where tensors are missing, or have another type or shape; columns may have any number of rows."""
    for name, own in wanted.items():
        first = 1 if name.startswith(COLUMN) else 0
        found, expected = (Layout(tensor.dtype, tuple(tensor.shape)) for tensor in (given[name], own))
        same_row = found.dtype == expected.dtype and found.shape[first:] == expected.shape[first:]
        if not same_row or len(found.shape) != len(expected.shape):
            raise ValueError(f"{name} is {found}, wanted {expected}")


def _expected(
    settings: LearnerSettings, image_size: int, encoder: nn.Module | None
) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Layouts of the network's tensors, and of a row of each of the memory's columns."""
    with own_torch_state(), torch.device("meta") as device:
        objective = build_objective(settings, image_size, encoder, generator_for(0, "weights"))
        terms = build_terms(settings, objective, 0)
        measure = MeasureSamples(settings.memory, objective.dimension, objective.projection)
        memory = build_memory(settings, image_size, objective, terms, 0, device)
    network = nn.ModuleDict({"objective": objective, "terms": nn.ModuleDict(terms), "measure": measure})
    layouts = {f"{NETWORK}{name}": Layout(t.dtype, tuple(t.shape)) for name, t in network.state_dict().items()}
    columns = {name: Layout(memory.store[name].dtype, tuple(memory.store[name].shape[1:])) for name in memory.store}
    return layouts, columns
