"""How many images a run meets: read from a benchmark, or known of one that need not be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ocssl.data.benchmark import Benchmark
from ocssl.data.prepare import MOST_EXPERIENCES
from ocssl.data.sources.source import parse_name
from ocssl.errors import SettingError
from ocssl.runs.config import RunSettings
from ocssl.settings import StreamSettings

# Classes, images a class to learn from and to test on, as published; those of ImageNet-100 vary from class to class.
PUBLISHED: Mapping[str, tuple[int, int, int]] = {
    "cifar100": (100, 500, 100),
    "imagenet100": (100, 1300, 50),
    "mini-imagenet": (100, 200, 50),
}


@dataclass(frozen=True)
class Images:
    """The images of a benchmark under a run's stream settings."""

    experiences: tuple[int, ...]  # stream images of each
    train: int  # that the probe learns from
    val: int
    test: int
    classes: int  # 0: there are no labels, and so no probe

    @property
    def stream(self) -> int:
        return sum(self.experiences)

    @classmethod
    def of(cls, benchmark: Benchmark) -> Images:
        """Those of a benchmark that was loaded."""
        sizes = tuple(len(experience.rows) for experience in benchmark.experiences)
        train, val, test = map(len, (benchmark.train, benchmark.val, benchmark.test))
        return cls(sizes, train, val, test, len(benchmark.classes) if benchmark.labelled else 0)

    @classmethod
    def expected(cls, settings: RunSettings) -> Images:
        """Those of a benchmark whose size is known before it is read, every class being of the same size."""
        kind, _ = parse_name(settings.benchmark)
        stream = settings.stream
        options = stream.model_extra or {}
        if kind == "synthetic":
            classes, train, test = (int(options[name]) for name in ("classes", "train", "test"))
        elif kind in PUBLISHED:
            classes, train, test = PUBLISHED[kind]
        else:
            raise SettingError(
                f"how many images {settings.benchmark} has is not known before it is read; load it, or say how many."
            )
        used = round(stream.fraction * train)
        held = round(stream.validation * used)
        kept = classes * (used - held)
        if stream.imbalance > 1:  # sizes fall geometrically
            falling = (stream.imbalance ** (-rank / max(1, classes - 1)) for rank in range(classes))
            kept = sum(max(1, round((used - held) * share)) for share in falling)
        return cls(_parts(kept, classes, stream), kept, classes * held, classes * test, classes)

    def minibatches(self, settings: RunSettings) -> list[int]:
        """How many minibatches have passed when each experience ends."""
        size, stream = settings.schedule.stream_batch, settings.stream
        ends, passed = [], 0
        for images in self.experiences:
            here = images // size if stream.drop_last else -(-images // size)
            passed += here * stream.epochs
            if here:
                ends.append(passed)
        return ends


def _parts(images: int, classes: int, stream: StreamSettings) -> tuple[int, ...]:
    """The images in experiences as equal as whole classes, or whole images, can be."""
    wanted = stream.experiences or min(MOST_EXPERIENCES, classes)
    if stream.order in ("auto", "class"):
        parts = [round(images * group / classes) for group in _split(classes, wanted)]
    else:
        parts = _split(images, wanted)
    repeated = [each for time in zip(*(_split(part, stream.repeats) for part in parts), strict=True) for each in time]
    return tuple(repeated[: stream.stop or None])


def _split(whole: int, parts: int) -> list[int]:
    """Sizes of parts as equal as they can be, the larger ones first."""
    return [whole // parts + (number < whole % parts) for number in range(parts)]
