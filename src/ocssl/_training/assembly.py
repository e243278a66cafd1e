"""From settings to the parts of a learner: every name is looked up here, and nowhere else."""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ocssl._core.host_memory import out_of_memory
from ocssl._core.random import generator_for, initialise
from ocssl._core.registry import Registry
from ocssl._distributed.ranks import ALONE, Ranks
from ocssl._distributed.shards import Shard
from ocssl._training.finetune import freeze, rate_factors
from ocssl._training.non_finite import Guard
from ocssl._training.optimizer import OPTIMIZERS, Optimizer
from ocssl.encoders import ENCODERS, check_module, feature_dimension, load_weights
from ocssl.encoders.randomness import own_randomness
from ocssl.errors import SettingError, unknown
from ocssl.memory import DRAWS, KEEPS, Memory, Store
from ocssl.objectives import OBJECTIVES, Objective
from ocssl.settings import PART_SECTIONS, LearnerSettings
from ocssl.terms import TERMS, Term

REGISTRIES: dict[str, Registry[Any]] = {"encoder": ENCODERS, "objective": OBJECTIVES, "optimizer": OPTIMIZERS}
STATISTICS = {"loss", "angle", "feature", "projected"}  # columns that come from a sample's own rows


def complete(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings table with the options of all its parts written out, so that a record of it says everything."""
    memory = tree["memory"]
    rules: dict[str, Registry[Any]] = {memory["keep"]: KEEPS, memory["draw"]: DRAWS}
    options = {name: registry.complete(name, memory["rules"].get(name)) for name, registry in rules.items()}
    return {
        **tree,
        **{section: _complete_section(section, tree[section]) for section in REGISTRIES},
        "terms": {name: TERMS.complete(name, given) for name, given in tree["terms"].items()},
        "memory": {**memory, "rules": {**memory["rules"], **{name: o for name, o in options.items() if o}}},
    }


def _complete_section(section: str, table: Mapping[str, Any]) -> dict[str, Any]:
    registry, name, options = REGISTRIES[section], table["name"], options_of(section, table)
    registry.check(name, options)
    return {**table, **registry.complete(name, options)}


def options_of(section: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the part that a section names; a key that is none is a SettingError with the nearest right one."""
    model, registry = PART_SECTIONS[section], REGISTRIES[section]
    options = {key: value for key, value in table.items() if key not in model.model_fields}
    for key in options:
        if key not in (known := registry.options(table["name"])):
            names = [*model.model_fields, *known]
            raise unknown("setting", f"{section}.{key}", [f"{section}.{name}" for name in names])
    return options


def named_parts(settings: LearnerSettings, terms: Iterable[str]) -> list[tuple[str, Registry[Any], str]]:
    """Parts that see batches or the memory: the setting that names each, its registry and its name."""
    memory = settings.memory
    parts: list[tuple[str, Registry[Any], str]] = [("objective", OBJECTIVES, settings.objective.name)]
    if memory.capacity:
        parts = [("memory.keep", KEEPS, memory.keep), ("memory.draw", DRAWS, memory.draw), *parts]
    return parts + [("term", TERMS, name) for name in terms]


def require_known(settings: LearnerSettings) -> None:
    """Check that every part which the settings name is registered."""
    named: list[tuple[Registry[Any], str]] = [(KEEPS, settings.memory.keep), (DRAWS, settings.memory.draw)]
    named += [(registry, getattr(settings, section).name) for section, registry in REGISTRIES.items()]
    try:
        for registry, name in [*named, *((TERMS, term) for term in settings.terms)]:
            registry[name]
    except SettingError as error:
        raise SettingError(f"{str(error).removesuffix('.')}; a part of your own is named with --parts.") from None


def usable_device(name: str | torch.device) -> torch.device:
    """The device of that name, if this machine has it; auto: a CUDA GPU, else Apple's (mps), else the processor."""
    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    try:
        device = torch.device(next(kind for kind, found in there.items() if found()) if name == "auto" else name)
    except RuntimeError:
        raise unknown("device", str(name), [*there, "auto"]) from None
    if device.type not in there:
        raise SettingError(f"device {device.type} is not supported: use cpu, cuda or mps.")
    if not there[device.type]():
        raise SettingError(f"device {device.type} is not available: this PyTorch finds no GPU of that kind; use cpu.")
    return device


def build_terms(settings: LearnerSettings, objective: Objective, seed: int) -> dict[str, Term]:
    """The terms that a recipe names, by name; weight 0 turns one off."""
    terms: dict[str, Term] = {}
    with torch.random.fork_rng(devices=[]):  # layers draw throw-away weights
        for name, options in settings.terms.items():
            term = TERMS.build(name, options, objective)
            if term.weight > 0:
                initialise(term, generator_for(seed, f"terms.{name}"))
                term.begin(objective)
                terms[name] = term
    for name, term in terms.items():
        _check_term(name, term, objective, settings)
    if not _has_losses(objective, settings) and not any(term.replaces_objective for term in terms.values()):
        able = " or ".join(name for name in TERMS if TERMS[name].replaces_objective)
        raise SettingError(
            f"objective {settings.objective.name!r} of weight {settings.objective.weight:g} trains nothing: it takes a "
            f"term that replaces it ({able})."
        )
    return terms


def _has_losses(objective: Objective, settings: LearnerSettings) -> bool:
    """Whether samples have losses that are trained, so that they mean something."""
    return objective.per_sample != "none" and settings.objective.weight > 0


def _check_term(name: str, term: Term, objective: Objective, settings: LearnerSettings) -> None:
    """Raise where these settings lack what a term needs."""
    schedule = settings.schedule
    if term.boundaries and not schedule.boundaries:
        raise SettingError(
            f"term {name!r} must know where an experience ends: set schedule.boundaries=true if your setting allows it."
        )
    if term.pairs and objective.views != 2:
        raise SettingError(
            f"term {name!r} works with two views, and objective {settings.objective.name!r} has {objective.views}."
        )
    if "stream" in term.rows and schedule.stream_in == "none":
        raise SettingError(f"term {name!r} learns from stream samples: schedule.stream_in must not be none.")
    if "replay" in term.rows and (not settings.memory.capacity or schedule.stream_batch >= schedule.batch):
        wanted = "memory.capacity must be above 0, and schedule.stream_batch below schedule.batch"
        raise SettingError(f"term {name!r} learns from replayed samples: {wanted}.")
    if "replay" in term.rows and schedule.mix:
        raise SettingError(f"term {name!r} learns from replayed samples, which have no rows left with schedule.mix.")


def build_objective(
    settings: LearnerSettings, image_size: int, encoder: nn.Module | None, generator: torch.Generator
) -> Objective:
    """The objective around its encoder; an encoder that is handed in keeps its weights."""
    encoder_options = options_of("encoder", settings.encoder.model_dump())
    chosen = settings.objective
    options = options_of("objective", chosen.model_dump())
    with torch.random.fork_rng(devices=[]):  # layers draw throw-away weights
        torch.default_generator.manual_seed(generator.initial_seed())  # of the CPU alone
        if encoder is None:
            encoder = ENCODERS.build(settings.encoder.name, encoder_options, image_size)
            if not getattr(encoder, "draws_weights", False):
                initialise(encoder, generator)
            _start_weights(encoder, settings, encoder_options)
        check_module(encoder)
        freeze(encoder, settings.encoder)
        own_randomness(encoder, generator.initial_seed())
        dimension = feature_dimension(encoder, image_size)
        objective = OBJECTIVES.build(chosen.name, options, encoder, dimension, chosen.projection)
    for name, head in objective.named_children():
        if name != "encoder":
            initialise(head, generator)
    objective.begin()
    if settings.views.local:
        _check_local_views(settings, image_size, objective)
    if settings.compute.precision == "bfloat16":
        objective.precision = torch.bfloat16
    return objective


def _start_weights(encoder: nn.Module, settings: LearnerSettings, options: Mapping[str, Any]) -> None:
    """The weights that a new encoder starts from, where they are not random; none on the meta device."""
    chosen = settings.encoder
    if any(tensor.is_meta for tensor in encoder.state_dict().values()):
        return
    if chosen.weights is not None:
        load_weights(encoder, chosen.weights, chosen.sha256)
    elif ENCODERS.complete(chosen.name, options).get("pretrained"):
        encoder.load_pretrained()  # type: ignore[operator]


def native_size(settings: LearnerSettings) -> int:
    """The image size that the named encoder was made for."""
    chosen = settings.encoder
    found = ENCODERS.preprocessing(chosen.name, options_of("encoder", chosen.model_dump()))
    if found is None or found.size is None:
        raise SettingError(f"image_size is None, and encoder {chosen.name!r} has no default size: pass image_size=.")
    return found.size


def without_weights(settings: LearnerSettings) -> LearnerSettings:
    """The same learner with random weights, to be filled from a checkpoint: no file or network is needed."""
    known = ENCODERS.options(settings.encoder.name) if settings.encoder.name in ENCODERS else {}
    random = {"weights": None, **({"pretrained": False} if "pretrained" in known else {})}
    if settings.encoder.weights is None and "pretrained" not in known:
        return settings
    return settings.model_copy(update={"encoder": settings.encoder.model_copy(update=random)})


def _check_local_views(settings: LearnerSettings, image_size: int, objective: Objective) -> None:
    """Raise where the objective takes no local views, or the encoder not their size."""
    if not objective.takes_local:
        able = " or ".join(name for name in OBJECTIVES if OBJECTIVES[name].takes_local)
        raise SettingError(
            f"objective {settings.objective.name!r} takes no local views: leave views.local out, or set "
            f"objective.name={able}."
        )
    size = settings.views.local_pixels(image_size)
    advice = f"set views.local_size to a size that it takes; {image_size} always works"
    if size > image_size:
        raise SettingError(f"views.local_size is {size}, larger than the images ({image_size} px).")
    try:
        dimension = feature_dimension(objective.encoder, size)
    except SettingError as error:
        raise SettingError(f"local views of {size} px: {str(error).removesuffix('.')}; {advice}.") from None
    if dimension != objective.dimension:
        lengths = f"{dimension} features at {size} px and {objective.dimension} at {image_size} px"
        raise SettingError(f"local views of {size} px: the encoder gives {lengths}; {advice}.")


def build_optimizer(settings: LearnerSettings, network: nn.Module, guard: Guard) -> Optimizer:
    """The optimizer of a network's trained parameters, with their rates."""
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if not parameters:
        raise SettingError("nothing is left to train: encoder.freeze takes all, and there are no heads.")
    chosen = settings.optimizer
    built = OPTIMIZERS.build(chosen.name, options_of("optimizer", chosen.model_dump()), parameters, chosen, guard)
    built.factors = rate_factors(network, parameters, settings)
    return built


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
    seed: int,
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
                f"memory.draw {chosen.draw!r} weighs the loss of each sample; objective {settings.objective.name!r} "
                f"trains one number for the whole batch; turn the weights off in memory.rules.{chosen.draw}."
            )
    space = objective.dimension if chosen.space == "encoder" else objective.projection
    vectors = {"feature": space, "projected": objective.projection}
    columns = {name: length for name, length in vectors.items() if any(name in names for names in needs.values())}
    capacity = ranks.share(chosen.capacity)
    columns |= keep.columns(capacity)
    try:
        store = Store(capacity, (3, image_size, image_size), columns, device)
    except (RuntimeError, MemoryError) as error:
        lack = f"; {found}" if (found := out_of_memory(error)) else ""
        raise SettingError(
            f"memory.capacity is {chosen.capacity}: this machine cannot hold that many slots{lack}; lower it."
        ) from None
    generator = generator_for(seed, ranks.named("memory"))
    memory = Memory(store, keep, draw, generator, ema=chosen.ema, unit_vectors=chosen.mean == "unit")
    return memory if ranks.size == 1 else Shard(memory, ranks, chosen.capacity)


def _require_statistics(
    settings: LearnerSettings, objective: Objective, ranking: list[str], needs: Mapping[str, frozenset[str]]
) -> None:
    name = settings.objective.name
    if ranking and not _has_losses(objective, settings):
        raise SettingError(
            f"{ranking[0]} goes by the loss of each sample; objective {name!r} trains none: change one of them."
        )
    measuring = [part for part, columns in needs.items() if columns & STATISTICS]
    if measuring and settings.schedule.mix:
        raise SettingError(f"{measuring[0]} goes by single samples, and schedule.mix trains on mixtures only.")
