"""Settings of a run: the learner's, and those of stream, evaluation and checkpoints."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from ocssl import recipes
from ocssl._files.toml import dump_toml, parse_toml, read_toml
from ocssl._files.untrusted import reading
from ocssl.errors import RunFolderError, SettingError
from ocssl.settings import (
    DataSettings,
    EvaluateSettings,
    LearnerSettings,
    Section,
    StreamSettings,
    flatten,
    nest,
    validate,
)


class CheckpointSettings(Section):
    """How often the state is saved. More often costs time and changes nothing else."""

    every: int = Field(50, ge=1, description="stream minibatches between checkpoints")
    keep: int = Field(2, ge=1, description="checkpoints that are kept")
    most_snapshots: int = Field(100, ge=2, description="above it only every second, fourth ... is kept, and the last")
    snapshots: bool = Field(
        True, description="keep network and memory statistics at every evaluation, to inspect later"
    )


class InitSettings(Section):
    """Weights to start from, instead of random ones."""

    path: str | None = Field(None, description="a run folder, or a folder that a learner was saved to")
    parts: Literal["all", "encoder"] = Field("all", description="encoder and heads, or the encoder alone")
    sha256: str | None = Field(None, description="of the weights, noted when the run starts")


class RunSettings(LearnerSettings):
    """Everything that decides a run's result, and how it is recorded."""

    method: str
    benchmark: str
    seed: int = Field(0, ge=0, lt=2**63)
    preset: Literal["none", "cpu", "gpu"] = "none"  # which has lowered settings before the user's own came
    stream: StreamSettings = StreamSettings()
    data: DataSettings = DataSettings()
    init: InitSettings = InitSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()

    def learner(self) -> LearnerSettings:
        """The part that a learner may know."""
        return LearnerSettings(**{name: getattr(self, name) for name in LearnerSettings.model_fields})

    def result(self) -> dict[str, Any]:
        """What decides a run's result: not where files are, nor how often it is saved."""
        places = {"weights"} if self.encoder.sha256 else set()
        hidden: dict[str, Any] = {"data": True, "checkpoint": True, "preset": True, "init": {"path"}, "encoder": places}
        return self.model_dump(mode="json", exclude=hidden)

    def reading(self, moved: Path | None = None) -> DataSettings:
        """Where the images are, or have been moved to, and how they are read."""
        return self.data if moved is None else self.data.model_copy(update={"path": str(moved.absolute())})


def resolve_run(
    method: str, benchmark: str, seed: int, overrides: Mapping[str, Any], preset: str = "none"
) -> RunSettings:
    """Defaults, benchmark, method, preset and the user's settings, merged in this order and checked."""
    tree = recipes.resolve(method, benchmark, overrides)
    for name in ("method", "benchmark", "seed", "preset"):
        if name in tree:
            raise SettingError(f"{name} cannot be set: it is an argument of the run.")
    run = {"method": method, "benchmark": benchmark, "seed": seed}
    settings = complete_run(validate(RunSettings, {**run, **tree}))
    if preset == "none":
        return settings
    have, own = dict(flatten(settings.model_dump())), dict(flatten(nest(overrides)))
    most = recipes.preset(preset)
    lowered = {key: limit for key, limit in most.items() if key not in own and have.get(key, limit) > limit}
    tree = recipes.resolve(method, benchmark, {**lowered, **overrides})
    return complete_run(validate(RunSettings, {**run, "preset": preset, **tree}))


def complete_run(settings: RunSettings) -> RunSettings:
    """The settings with the options of all parts written out."""
    from ocssl._training.assembly import complete
    from ocssl.data import BENCHMARKS
    from ocssl.data.sources.source import parse_name

    tree = complete(settings.model_dump())
    kind, _ = parse_name(settings.benchmark)
    tree["stream"] = {**tree["stream"], **BENCHMARKS.complete(kind, settings.stream.model_extra)}
    return validate(RunSettings, tree)


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """`key=value` words as a table; a value that is not TOML is text.

    >>> parse_assignments(["memory.capacity=500", "memory.keep=fifo"])
    {'memory.capacity': 500, 'memory.keep': 'fifo'}
    """
    table: dict[str, Any] = {}
    for word in assignments:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"--set {word!r} is not of the form key=value.")
        try:
            value = parse_toml(f"value = {text}")["value"]
        except ValueError:
            value = text.strip()
        table[key.strip()] = value
    return table


def to_toml(settings: BaseModel) -> str:
    """Settings as TOML text that `read_settings` gives back exactly."""
    try:
        return dump_toml(settings.model_dump(mode="json"))
    except ValueError as error:
        raise SettingError(f"cannot write the settings down: {error}; rename it.") from None


def read_settings(path: Path) -> RunSettings:
    """The settings of a run folder."""
    with reading(path, RunFolderError):
        try:
            tree = read_toml(path)
        except FileNotFoundError:
            raise RunFolderError(f"{path.parent} is not a run folder: it has no {path.name}.") from None
    return validate(RunSettings, tree)
