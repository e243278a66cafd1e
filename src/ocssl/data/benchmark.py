"""A benchmark: images in a stream part, a held-out validation part and a test part, and the order of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ocssl._core.random import generator_for
from ocssl.data.decode.images import Fault, Report, silent
from ocssl.data.orders import Experience
from ocssl.data.prepare import assemble
from ocssl.data.sources import BENCHMARKS
from ocssl.data.sources.source import parse_name
from ocssl.data.split import Part
from ocssl.data.stream import ExperienceStream
from ocssl.errors import unknown
from ocssl.settings import DataSettings, StreamSettings


@dataclass(frozen=True)
class Benchmark:
    """What a run learns from and is tested on."""

    name: str
    train: Part
    val: Part
    test: Part
    experiences: Sequence[Experience]  # rows of `train`
    classes: Sequence[str] = ()  # names of the labels; none: there are no labels
    tasks: Sequence[str] = ()  # names of the tasks; none: experiences are not about tasks
    given: bool = False  # images come as they stand, not shuffled
    drift: float = 0.0
    fingerprint: str = ""  # the same for the same data

    def stream(self, batch: int, seed: int, drop_last: bool = True, epochs: int = 1) -> ExperienceStream:
        """The stream that a run with this seed sees: experiences in fixed order, shuffled inside."""
        generator = None if self.given else generator_for(seed, "stream")
        return ExperienceStream(self.train, self.experiences, batch, generator, drop_last, epochs, self.drift)

    @property
    def labelled(self) -> bool:
        """Whether a probe can be trained and tested."""
        return bool(self.classes) and len(self.test) > 0

    @property
    def known_faults(self) -> int:
        """How many rows are known, so far, to be of no use: cheap to ask for, and grows when there are new ones."""
        return sum(len(part.pictures.faults) for part in (self.train, self.test))

    def faults(self) -> list[Fault]:
        """All images that are known, so far, to be of no use."""
        return [fault for part in (self.train, self.val, self.test) for fault in part.faults()]


def load_benchmark(
    name: str, settings: StreamSettings, data: DataSettings | None = None, report: Report = silent
) -> Benchmark:
    """Read or draw a benchmark; a wrong name or option is a SettingError, data that cannot be used a DataError."""
    data = data or DataSettings()
    kind, place = parse_name(name)
    options = settings.model_extra or {}
    known = BENCHMARKS.options(kind)
    for key in options:
        if key not in known:
            raise unknown("setting", f"stream.{key}", [f"stream.{k}" for k in (*StreamSettings.model_fields, *known)])
    where = data.path or place
    found = BENCHMARKS.build(kind, options).find(Path(where) if where else None, settings, report)
    return Benchmark(name, **assemble(found, settings, data, report))
