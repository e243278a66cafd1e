"""The layers of a learner: what each does for one row, and how many rows pass through it in a stream minibatch.

Shapes come from the learner built on PyTorch's meta device, which stores nothing. Rows are counted on a trial: one
minibatch of the real learner made small. How many rows a method sends through a layer, forwards and backwards, depends
on its recipe and neither on the width of the encoder nor on the size of images. So the trial has a narrow encoder and
images of 8 px, or of the first size that the encoder takes, and takes a fraction of a second; teachers, candidates and
gradients that a rule asks for are counted without being named here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ocssl._core.random import evaluating, generator_for
from ocssl._training.assembly import build_memory, build_objective, build_optimizer, build_terms, without_weights
from ocssl._training.finetune import ENCODER
from ocssl._training.learner_context import LearnerContext
from ocssl._training.non_finite import Guard
from ocssl.encoders import ENCODERS
from ocssl.encoders.encoder import blank_pass
from ocssl.errors import SettingError
from ocssl.learner import Learner
from ocssl.settings import LearnerSettings, OptimizerSettings, ViewSettings

FLOAT = 4  # bytes
RATES = ("encoder_lr", "layer_decay")  # factors on learning rates
REST = "(products)"  # an encoder's matrix products outside its layers, such as attention, counted as a layer
SCRATCH = 16  # bytes a slot of a store's working space
WIDTH, SIZES = 8, (8, 32, 64, 224)  # of the trial: channels, pixels: the first that the encoder takes
SLOTS = 2000  # of the trial at most


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
    state: int  # bytes of what the optimizer keeps of them, such as momentum
    slots: int
    slot: int  # bytes of one slot of the memory
    dimension: int  # of features
    features: bool  # whether the memory keeps mean features

    def part(self, *names: str) -> dict[str, Layer]:
        """The layers of `encoder`, `projector` or both."""
        prefixes = tuple(f"objective.{name}." for name in names)
        return {name: layer for name, layer in self.layers.items() if name.startswith(prefixes)}


@contextmanager
def _hooked(network: nn.Module, hook: Callable[[str, nn.Module, tuple[Tensor, ...], Tensor], None]) -> Iterator[None]:
    """Call a hook with name, layer, inputs and output whenever a convolution or linear layer runs in the block."""
    with ExitStack() as hooks:
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                hooks.enter_context(layer.register_forward_hook(partial(hook, name)))
        yield


def _flops(layer: nn.Module, out: Tensor) -> float:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return 2.0 * weight.numel() * out.numel() / len(weight)


# ---- shapes ---------------------------------------------------------------------------------------------------------


def shape_of(settings: LearnerSettings, image_size: int, work: bool = True) -> Shape:
    """The shape of the learner that these settings make; without `work` only bytes, which takes seconds less."""
    once = settings.schedule.model_copy(update={"passes": 1})
    alike = _without_rates(settings).model_copy(update={"schedule": once})
    return _shape_of(alike.model_dump_json(), image_size, work)


def _without_rates(settings: LearnerSettings) -> LearnerSettings:
    """The settings without what changes neither shapes nor counts, so that many runs share one count."""
    views = settings.views.model_copy(update={"mean": ViewSettings().mean, "std": ViewSettings().std})
    terms = {name: {**own, "weight": float(own.get("weight", 1.0) > 0)} for name, own in settings.terms.items()}
    usual = OptimizerSettings().model_dump(include={"lr", "weight_decay", "schedule", "warmup", *RATES})
    optimizer = settings.optimizer.model_copy(update=usual)
    learner = settings.model_copy(update={"optimizer": optimizer, "views": views, "terms": terms})
    return without_weights(learner)


@lru_cache(maxsize=256)
def _shape_of(settings_json: str, image_size: int, work: bool = True) -> Shape:
    settings = LearnerSettings.model_validate_json(settings_json)
    meta = torch.device("meta")
    with meta:
        objective = build_objective(settings, image_size, None, generator_for(0, "weights"))
        terms = build_terms(settings, objective, 0)
        memory = build_memory(settings, image_size, objective, terms, 0, meta)
    network = nn.ModuleDict({"objective": objective, "terms": nn.ModuleDict(terms)})
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    columns = [memory.store[name] for name in memory.store]
    return Shape(
        layers=_layers(network, image_size, work),
        weights=_bytes(network.state_dict().values()),
        trained=_bytes(trained.values()),
        state=_bytes(build_optimizer(settings, network, Guard(meta)).tensors().values()),
        slots=settings.memory.capacity,
        slot=SCRATCH + sum(column[:0].element_size() * column.shape[1:].numel() for column in columns),
        dimension=objective.dimension,
        features="feature" in memory.store,
    )


def _encoders(network: nn.Module) -> dict[str, nn.Module]:
    """The encoder and copies of it, by name."""
    return {name: module for name, module in network.named_modules() if getattr(module, ENCODER, False)}


def _layers(network: nn.Module, image_size: int, work: bool) -> dict[str, Layer]:
    """Every layer: those of an encoder, and of copies of it, by passing one image through, the others as heads.

    With `work` also what an encoder computes outside its layers; PyTorch imports a compiler to count that.
    """
    found = {
        name: Layer(2.0 * layer.weight.numel(), float(FLOAT * layer.out_features))
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear)
    }
    for prefix, module in _encoders(network).items():
        inside: list[float] = []

        def note(
            name: str, layer: nn.Module, _: Any, out: Tensor, prefix: str = prefix, inside: list[float] = inside
        ) -> None:
            found[f"{prefix}.{name}"] = Layer(_flops(layer, out), float(FLOAT * out.numel()))
            inside.append(_flops(layer, out))

        counter = FlopCounterMode(display=False) if work else None
        with torch.no_grad(), evaluating(module), _hooked(module, note), counter or nullcontext():
            blank_pass(module, (1, 3, image_size, image_size))
        rest = counter.get_total_flops() - sum(inside) if counter else 0.0
        found[f"{prefix}.{REST}"] = Layer(max(0.0, rest), 0.0)
    return found


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


# ---- rows -----------------------------------------------------------------------------------------------------------


@dataclass
class Passes:
    """One stream minibatch with a full memory."""

    forward: Counter[str] = field(default_factory=Counter)  # layer -> rows
    backward: Counter[str] = field(default_factory=Counter)  # layer -> rows, once for weights and once for inputs
    kept: Counter[str] = field(default_factory=Counter)  # layer -> rows whose outputs wait for the backward pass
    calls: int = 0  # of layers, both ways
    steps: int = 0  # of the optimizer
    views: int = 0  # rows that views were made of
    inside: float = 0.0  # floating-point operations of layers, at the trial's size
    other: float = 0.0  # those of matrix products outside layers

    images: int = 0  # in the pass of an encoder that is under way

    @contextmanager
    def counting(self, network: nn.Module) -> Iterator[None]:
        """Count the rows that pass through the layers of a network in the block."""
        with ExitStack() as hooks:
            for name, encoder in _encoders(network).items():
                hooks.enter_context(encoder.register_forward_pre_hook(self._enter))
                hooks.enter_context(encoder.register_forward_hook(partial(self._leave, f"{name}.{REST}")))
            hooks.enter_context(_hooked(network, self._count))
            yield

    def _enter(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.images = len(inputs[0])

    def _leave(self, name: str, encoder: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        rows, self.images = self.images, 0
        self.forward[name] += rows
        if out.requires_grad:  # counted when its gradient comes, both ways
            out.register_hook(lambda _: self.backward.update({name: 2 * rows}))

    def _count(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        rows = self.images or (len(out) if isinstance(layer, nn.Conv2d) else out.numel() // out.shape[-1])
        flops = _flops(layer, out)
        self.forward[name] += rows
        self.calls += 1
        self.inside += flops
        if not out.requires_grad:
            return
        self.kept[name] += rows
        assert isinstance(layer.weight, Tensor)
        halves = int(layer.weight.requires_grad) + int(inputs[0].requires_grad)

        def backwards(_: Tensor) -> None:
            self.backward[name] += halves * rows
            self.calls += halves
            self.inside += halves * flops

        out.register_hook(backwards)


def passes_of(settings: LearnerSettings) -> Passes:
    """The passes of one stream minibatch of `schedule.stream_batch` images under these settings.

    All passes over a minibatch after the first are alike: trials of one pass and of two suffice for any number.
    """
    wanted = settings.schedule.passes
    one = _trial(_small(settings, 1))
    if wanted == 1:
        return one
    two = _trial(_small(settings, 2))

    def more(first: Any, second: Any) -> Any:
        if isinstance(first, Counter):
            return Counter({name: more(first[name], second[name]) for name in first | second})
        return first + (wanted - 1) * (second - first)

    return Passes(**{f.name: more(getattr(one, f.name), getattr(two, f.name)) for f in fields(Passes)})


def _small(settings: LearnerSettings, passes: int) -> str:
    """The settings of a trial, as JSON; an encoder that has no width is tried as it is."""
    wide = ENCODERS.complete(settings.encoder.name, settings.encoder.model_extra)
    changed: dict[str, dict[str, Any]] = {
        "encoder": {"width": min(wide["width"], WIDTH)} if "width" in wide else {},
        "memory": {"capacity": min(settings.memory.capacity, SLOTS)},
        "schedule": {"passes": passes},
        "compute": {"precision": "float32", "compile": False},
    }
    sections = {name: getattr(settings, name).model_copy(update=update) for name, update in changed.items()}
    return _without_rates(settings).model_copy(update=sections).model_dump_json()


def _trial_shape(settings_json: str) -> tuple[int, Shape]:
    """The smallest size that the encoder takes, and the learner's shape at it."""
    for size in SIZES[:-1]:
        with suppress(SettingError):
            return size, _shape_of(settings_json, size)
    return SIZES[-1], _shape_of(settings_json, SIZES[-1])


@lru_cache(maxsize=256)
def _trial(settings_json: str) -> Passes:
    size, shape = _trial_shape(settings_json)
    learner = Learner(image_size=size, settings=LearnerSettings.model_validate_json(settings_json))
    fill(learner)
    if learner.settings.schedule.boundaries:
        learner.boundary()
    passes, counter = Passes(), FlopCounterMode(display=False)
    with passes.counting(learner.network), counter:
        learner.partial_fit(noise(learner.settings.schedule.stream_batch, size))
    passes.steps = learner.steps
    passes.views = max(rows for name, rows in passes.forward.items() if name.startswith("objective.encoder."))
    rest = {name: layer.flops for name, layer in shape.layers.items() if name.endswith(REST)}
    products = sum(flops * (passes.forward[name] + passes.backward[name]) for name, flops in rest.items())
    passes.other = max(0.0, counter.get_total_flops() - passes.inside - products)
    return passes


def noise(n: int, size: int, generator: torch.Generator | None = None) -> Tensor:
    """Random images: uint8 [n, 3, size, size]."""
    generator = generator or generator_for(0, "images")
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


def fill(learner: Learner) -> None:
    """Fill a learner's memory with noise, without training on it."""
    memory, objective, generator = learner.memory, learner.objective, generator_for(0, "fill")
    n = memory.store.capacity
    if not n:
        return
    rows = {
        "loss": torch.rand(n, generator=generator) - 1,
        "angle": torch.rand(n, generator=generator),
        "feature": torch.randn(n, objective.dimension, generator=generator),
        "projected": torch.randn(n, objective.projection, generator=generator),
    }
    images = noise(n, learner.image_size)
    context = LearnerContext(objective, learner.views, generator, images[:1], learner.lr)
    memory.insert(images, torch.arange(n), rows, context)
