"""Typed settings of a learner and its stream: names, ranges, defaults and descriptions.

The defaults are the paper's (138 samples a step, 6 passes, 2,000 slots, SGD without schedule). A method's TOML
changes what makes the method, a benchmark's what the benchmark asks for, and `--set` has the last word.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from ocssl.errors import SettingError, unknown

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Size = Annotated[int, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Triple = tuple[float, float, float]


class Section(BaseModel):
    """A group of settings: an unknown key or an infinite number is an error, and values never change later."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("true and false are not among its values")
        return value


class EncoderSettings(Section):
    """The network that is trained and kept; every other key is an option of the named encoder."""

    model_config = ConfigDict(extra="allow")

    name: str = Field("resnet18", description="see: ocssl list encoders")
    weights: str | None = Field(None, description="a safetensors file to start from, instead of random weights")
    sha256: str | None = Field(None, description="of that file, noted when the run starts")
    freeze: int | list[str] = Field(
        0, description="what is not trained: the first stages (a number), or parts by name (a list of prefixes)"
    )

    batch_norm: Literal["train", "frozen"] = Field(
        "train", description="frozen: by the running statistics that it has, which stay as they are, in all layers"
    )

    @field_validator("freeze")
    @classmethod
    def _from_0(cls, value: int | list[str]) -> int | list[str]:
        if isinstance(value, int) and value < 0:
            raise ValueError("a number of stages from 0 up, or a list of names, is wanted")
        return value


class ObjectiveSettings(Section):
    """The self-supervised loss; every other key is an option of the named objective."""

    model_config = ConfigDict(extra="allow")

    name: str = Field("simsiam", description="see: ocssl list objectives")
    projection: Size = Field(2048, description="length of what the projector makes of the features")
    weight: Weight = Field(1.0, description="of the objective's own loss; 0 where a term is the whole loss")


class MemorySettings(Section):
    """What is kept, what is replayed, and how the statistics of a slot are measured."""

    capacity: int = Field(2000, ge=0, le=2**53, description="slots; 0 turns replay off")
    keep: str = Field("reservoir", description="keep rule: which samples stay; see: ocssl list rules")
    draw: str = Field("uniform", description="draw rule: which samples are replayed; see: ocssl list rules")
    ema: Share = Field(0.5, description="weight of the old statistic at a refresh; 0 keeps only the newest value")
    angle: Literal["all", "distinct"] = Field(
        "all",
        description="view pairs that the angle is averaged over; all: also each view with itself",
    )
    mean: Literal["raw", "unit"] = Field("raw", description="whether view features are normalised before averaging")
    space: Literal["encoder", "projector"] = Field("encoder", description="where mean feature and angle are measured")
    center: Literal["none", "running"] = Field("none", description="running: features less their running mean")
    center_ema: float = Field(0.99, ge=0, lt=1, description="weight of the old running mean when a batch is added")
    rules: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of rules, by the rule's name")


class ScheduleSettings(Section):
    """How often a stream minibatch is trained on, with how much replay, and when it enters the memory."""

    passes: int = Field(6, ge=1, description="optimizer steps per stream minibatch")
    batch: int = Field(138, ge=1, description="samples per step, stream and replay together")
    stream_batch: int = Field(10, ge=1, description="stream samples that arrive together; more than `batch` are cut up")
    stream_in: Literal["first", "all", "none"] = Field("all", description="passes with the stream samples")
    admit: Literal["before", "first", "last"] = Field(
        "last", description="when stream samples enter the memory: before the passes, after the first or the last"
    )
    short: Literal["partial", "wait"] = Field(
        "partial", description="before the memory holds a full replay batch: replay what there is, or wait"
    )
    mix: Weight = Field(
        0.0, description="mixup with replayed images, lambda from Beta(mix, mix); 0: stream and replay are concatenated"
    )
    boundaries: bool = Field(False, description="offline methods: the learner knows where an experience ends")

    @model_validator(mode="after")
    def _possible(self) -> ScheduleSettings:
        if self.stream_in == "none" and self.admit != "before":
            raise ValueError(f"schedule.stream_in is none: schedule.admit must be before, not {self.admit}")
        if self.mix and self.stream_in != "all":
            raise ValueError(f"schedule.mix mixes in every pass: schedule.stream_in must be all, not {self.stream_in}")
        return self


class OptimizerSettings(Section):
    """The optimizer and its learning rate; every other key is an option of the named optimizer."""

    model_config = ConfigDict(extra="allow")

    name: str = Field("sgd", description="see: ocssl list optimizers")
    lr: Positive = Field(0.05, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="share of the last step in the next; adamw has beta1 instead")
    weight_decay: Weight = Field(1e-4, description="on every parameter; lars-sgd: not on biases and batch norm")
    schedule: Literal["constant", "cosine"] = Field("constant", description="cosine: the rate falls to 0 over the run")
    warmup: float = Field(0.0, ge=0, lt=1, description="share of the run in which the rate rises")
    encoder_lr: Weight = Field(1.0, description="factor on the encoder's learning rate; heads keep optimizer.lr")
    encoder_start: int = Field(0, ge=0, description="first steps in which only the heads learn, not the encoder")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="factor on the rate from one stage of the encoder to the one before; ViTs: 0.65"
    )

    def rate(self, done: float) -> float:
        """The learning rate when a share `done` of the run has passed."""
        if done < self.warmup:
            return self.lr * done / self.warmup
        if self.schedule == "constant":
            return self.lr
        return self.lr * (1 + math.cos(math.pi * (done - self.warmup) / (1 - self.warmup))) / 2


class ViewSettings(Section):
    """The augmentation of methods and metrics alike: crop, flip, colour jitter, grey, blur, solarize, normalisation."""

    crop_scale: tuple[Share, Share] = Field((0.2, 1.0), description="share of the area that a crop covers")
    crop_ratio: tuple[Positive, Positive] = Field((3 / 4, 4 / 3), description="aspect ratio of a crop")
    flip: Share = Field(0.5, description="probability of a mirror image")
    jitter: Share = Field(0.8, description="probability of colour jitter")
    brightness: Share = Field(0.4, description="largest change, as part of the value")
    contrast: Share = Field(0.4, description="largest change, as part of the value")
    saturation: Share = Field(0.2, description="largest change, as part of the value")
    hue: float = Field(0.1, ge=0, le=0.5, description="largest turn of the hue, as part of a circle")
    gray: Share = Field(0.2, description="probability of greyscale")
    blur: Share = Field(0.0, description="probability of Gaussian blur, its sigma between 0.1 and 2 pixels")
    solarize: Share = Field(0.0, description="probability that colours of at least 0.5 are inverted")
    local: int = Field(0, ge=0, le=64, description="extra small crops of each image, for objectives that take them")
    local_scale: tuple[Share, Share] = Field((0.05, 0.4), description="share of the area that a local crop covers")
    local_size: int = Field(0, ge=0, le=1024, description="pixels of a side of a local view; 0: half of the image's")
    mean: Triple = Field((0.5, 0.5, 0.5), description="subtracted from colours in [0, 1]")
    std: tuple[Positive, Positive, Positive] = Field((0.25, 0.25, 0.25), description="divides after the mean")

    @model_validator(mode="after")
    def _ordered(self) -> ViewSettings:
        for name in ("crop_scale", "crop_ratio", "local_scale"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"views.{name} must rise from above 0, not ({low}, {high})")
        return self

    def local_pixels(self, image_size: int) -> int:
        """Side of a local view of images of this size."""
        return self.local_size or max(1, image_size // 2)


class ComputeSettings(Section):
    """How the encoder's passes are computed; heads, losses and terms stay as they are, evaluation in float32."""

    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="of the encoder's passes; bfloat16 halves their memory and is faster on GPUs that have it",
    )
    compile: bool = Field(False, description="torch.compile the encoder: starts a minute later; needs a C++ compiler")
    ranks: int = Field(1, ge=1, le=4096, description="processes that train together; torchrun starts and sets them")


class LearnerSettings(Section):
    """All that a learner needs to know; no files, benchmarks or reports."""

    encoder: EncoderSettings = EncoderSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    memory: MemorySettings = MemorySettings()
    terms: dict[str, dict[str, Any]] = Field(default_factory=dict, description="extra losses by name; weight 0 is off")
    schedule: ScheduleSettings = ScheduleSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    views: ViewSettings = ViewSettings()
    compute: ComputeSettings = ComputeSettings()


# Sections that name one part each; keys that are not of the section itself are options of the part.
PART_SECTIONS: dict[str, type[Section]] = {
    "encoder": EncoderSettings,
    "objective": ObjectiveSettings,
    "optimizer": OptimizerSettings,
}


class StreamSettings(BaseModel):
    """The benchmark's stream; every other key is an option of the named benchmark."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    image_size: int = Field(32, ge=8, le=1024, description="pixels of a side")
    fit: Literal["squash", "crop"] = Field(
        "squash", description="how an image becomes square: squashed, or its shorter side fitted and the middle cut out"
    )
    experiences: int = Field(
        0, ge=0, description="parts of the stream; 0: 20, or one per class if there are fewer; one without labels"
    )
    fraction: float = Field(1.0, gt=0, le=1, description="share of each class's training images to use: the first")
    order: Literal["auto", "class", "irregular", "domain", "taxonomy", "iid", "given"] = Field(
        "auto",
        description="classes, domains or taxonomic groups one after another, all mixed, or as the images are given; "
        "irregular: classes in experiences of unequal size; auto: class where there are labels, else given",
    )
    sequence: list[str] = Field(default_factory=list, description="names of all classes or groups in their order")
    shuffle: bool = Field(False, description="classes or groups come in a random order that data_seed decides")
    blurry: float = Field(0.0, ge=0, le=1, description="share of each experience that is exchanged with the others")
    drift: float = Field(0.0, ge=0, description="largest shift of an image, in experiences")
    imbalance: float = Field(1.0, ge=1, description="how many times larger the largest class is than the smallest")
    repeats: int = Field(1, ge=1, description="times that each experience comes back, each time with other images")
    stop: int = Field(0, ge=0, description="experiences after which the stream ends; 0: it goes to the end")
    validation: float = Field(0.1, ge=0, lt=1, description="share of training images held out for the probe")
    test_share: float = Field(0.2, ge=0, lt=1, description="share held out to test on where there is no test set")
    epochs: int = Field(1, ge=1, description="times that each experience is gone through; above 1 it is not online")
    drop_last: bool = Field(True, description="leave out the incomplete last minibatch of an experience")
    data_seed: int = Field(42, description="seed of splits and class order, the same for every run seed")


class DataSettings(Section):
    """Where images are and how they are read. Results do not change, except by images that are skipped."""

    path: str | None = Field(None, description="folder or file with the benchmark's data")
    bad_images: Literal["skip", "stop"] = Field("skip", description="what to do with an image that cannot be used")
    decode: Literal["cache", "live"] = Field(
        "cache", description="decode all images once into a file of the cache, or on the way by worker processes"
    )
    workers: int = Field(0, ge=0, le=256, description="processes that decode; 0: one per core, at most 8")
    cache: str | None = Field(None, description="folder for decoded images; none: the user's cache folder")


EVERY = "minibatches between evaluations; 0: at the end of every experience, or of each eighth of an unlabeled stream"


class EvaluateSettings(Section):
    """What is measured at the start and after every experience."""

    probe: Literal["linear", "ridge", "knn"] = Field(
        "linear", description="what is trained on the frozen features: the paper's, a closed form, or neighbours' votes"
    )
    compat: Literal["none", "authors"] = Field(
        "none", description="authors: the linear probe drops partial batches and shuffles once, as the authors' code"
    )
    per_task: bool = Field(False, description="also a separate probe for every task")
    start: bool = Field(True, description="also evaluate the untrained encoder")
    every: int = Field(0, ge=0, description=EVERY)
    latent_samples: int = Field(500, ge=0, description="stream images for Deviation and Overlap; 0 leaves them out")
    latent_views: int = Field(20, ge=2, description="views of each of them")

    @model_validator(mode="after")
    def _possible(self) -> EvaluateSettings:
        if self.compat != "none" and self.probe != "linear":
            raise ValueError(f"evaluate.compat is of the linear probe: evaluate.probe must be linear, not {self.probe}")
        return self


Settings = TypeVar("Settings", bound=Section)


def checked_int(name: str, value: Any, low: int, high: int) -> int:
    """An integer of Python or numpy in a range, or a SettingError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise SettingError(f"{name} is {value!r}: wanted a whole number from {low} to {high}.")
    return number


def checked_float(name: str, value: Any, low: float) -> float:
    """A finite number from `low` up."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool | str) or not low <= number < math.inf:
        raise SettingError(f"{name} is {value!r}: wanted a finite number from {low:g} up.")
    return number


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys to nested tables; a table as a value is kept.

    >>> nest({"memory.capacity": 500, "schedule": {"passes": 2}})
    {'memory': {'capacity': 500}, 'schedule': {'passes': 2}}
    """
    tree: dict[str, Any] = {}
    if not isinstance(flat, Mapping) or not all(isinstance(key, str) for key in flat):
        raise SettingError(f"settings must be a table with names as keys, not {flat!r}.")
    for key, value in flat.items():
        leaf = nest(value) if isinstance(value, Mapping) else value
        for name in reversed(key.split(".")):
            leaf = {name: leaf}
        merge(tree, leaf)
    return tree


def flatten(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables to dotted keys; a table without keys has none.

    >>> dict(flatten({"memory": {"capacity": 500, "rules": {}}, "seed": 1}))
    {'memory.capacity': 500, 'seed': 1}
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}{key}.")
        else:
            yield path + key, value


def merge(tree: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one nested table over another, in place."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            merge(tree[key], value)
        else:
            tree[key] = merge({}, value) if isinstance(value, Mapping) else value
    return tree


def validate(model: type[Settings], tree: Mapping[str, Any]) -> Settings:
    """Check a nested table against its model; the error is one sentence about the first fault, with the nearest key."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise unknown("setting", key, keys(model)) from None
        if first["type"] == "missing":  # its input is all that stands beside it
            raise SettingError(f"setting {key} is missing.") from None
        reason = first["msg"].removeprefix("Value error, ").removesuffix(".")
        if first["type"] in ("model_type", "dict_type"):
            reason = f"it is a table; set what is in it, as in {key}.NAME=VALUE"
        if first["type"] == "value_error" and isinstance(first["input"], Mapping):  # of a whole section
            raise SettingError(f"{reason}.") from None
        raise SettingError(f"setting {key} is {first['input']!r}: {reason[:1].lower()}{reason[1:]}.") from None


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a settings model."""
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *get_args(field.annotation)]
        nested = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if nested:
            yield from keys(nested, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
