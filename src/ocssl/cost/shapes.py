"""What a learner is made of at its real width and image size: built on PyTorch's meta device, which stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from ocssl._core.random import evaluating, generator_for
from ocssl._training.assembly import build_memory, build_objective, build_terms
from ocssl.settings import LearnerSettings, OptimizerSettings, ViewSettings

FLOAT = 4  # bytes
SCRATCH = 16  # bytes a slot of a store's working space


@dataclass(frozen=True)
class Layer:
    """What a convolution or linear layer does for one row that passes through it."""

    flops: float  # forwards, a multiply-add being two; each half of the backward pass takes as many
    bytes: float  # of its output


@dataclass(frozen=True)
class Shape:
    """A learner's network and memory by their sizes."""

    layers: dict[str, Layer]  # by name in `Learner.network`, copies of the encoder included
    weights: int  # bytes of all weights and buffers
    trained: int  # bytes of those that the optimizer moves
    slots: int
    slot: int  # bytes of one slot of the memory
    dimension: int  # of features
    features: bool  # whether the memory keeps mean features

    def encoder(self) -> dict[str, Layer]:
        return self._under("objective.encoder.")

    def projector(self) -> dict[str, Layer]:
        return self._under("objective.projector.")

    def _under(self, prefix: str) -> dict[str, Layer]:
        return {name: layer for name, layer in self.layers.items() if name.startswith(prefix)}


def shape_of(settings: LearnerSettings, image_size: int) -> Shape:
    """The shape of the learner that these settings make."""
    once = settings.schedule.model_copy(update={"passes": 1})
    return _shape_of(without_rates(settings).model_copy(update={"schedule": once}).model_dump_json(), image_size)


def without_rates(settings: LearnerSettings) -> LearnerSettings:
    """The settings without what changes neither shapes nor counts, so that many runs are counted at once."""
    views = settings.views.model_copy(update={"mean": ViewSettings().mean, "std": ViewSettings().std})
    terms = {name: {**told, "weight": float(told.get("weight", 1.0) > 0)} for name, told in settings.terms.items()}
    return settings.model_copy(update={"optimizer": OptimizerSettings(), "views": views, "terms": terms})


@lru_cache(maxsize=256)
def _shape_of(written: str, image_size: int) -> Shape:
    settings = LearnerSettings.model_validate_json(written)
    meta = torch.device("meta")
    with meta:
        objective = build_objective(settings, image_size, None, generator_for(0, "weights"))
        terms = build_terms(settings, objective, 0)
        memory = build_memory(settings, image_size, objective, terms, generator_for(0, "memory"), meta)
    network = nn.ModuleDict({"objective": objective, "terms": nn.ModuleDict(terms)})
    columns = [memory.store[name] for name in memory.store]
    return Shape(
        layers=_layers(network, type(objective.encoder), image_size),
        weights=_bytes(network.state_dict().values()),
        trained=_bytes(p for p in network.parameters() if p.requires_grad),
        slots=settings.memory.capacity,
        slot=SCRATCH + sum(column[:0].element_size() * column.shape[1:].numel() for column in columns),
        dimension=objective.dimension,
        features="feature" in memory.store,
    )


def _layers(network: nn.Module, encoder: type[nn.Module], image_size: int) -> dict[str, Layer]:
    """Every layer: those of an encoder, and of copies of it, by passing one image through, the others as heads."""
    found = {
        name: Layer(2.0 * layer.weight.numel(), float(FLOAT * layer.out_features))
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear)
    }
    for name, module in network.named_modules():
        if type(module) is encoder:
            with torch.no_grad(), evaluating(module), _watching(module, f"{name}.", found):
                module(torch.empty(1, 3, image_size, image_size, device="meta"))
    return found


@contextmanager
def _watching(encoder: nn.Module, prefix: str, found: dict[str, Layer]) -> Iterator[None]:
    """Note down what every layer of an encoder does while one image passes through."""

    def look(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(layer: nn.Module, _: tuple[Tensor, ...], out: Tensor) -> None:
            weight = layer.weight
            assert isinstance(weight, Tensor)
            found[name] = Layer(2.0 * weight.numel() * out.numel() / len(weight), float(FLOAT * out.numel()))

        return hook

    layers = [(name, layer) for name, layer in encoder.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    handles = [layer.register_forward_hook(look(prefix + name)) for name, layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
