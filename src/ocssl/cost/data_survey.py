"""A survey of the user's images before a run: what it would use and skip, and its time and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ocssl.cost.machine import Machine, estimate
from ocssl.cost.work import ImageCounts
from ocssl.data.benchmark import Benchmark, load_benchmark
from ocssl.data.decode.decode_processes import Fault, rows_at_once
from ocssl.data.decode.decoder import BadImage, describe
from ocssl.data.decode.files import Files, Report, silent
from ocssl.data.decode.image_set import LiveImages
from ocssl.errors import DataError
from ocssl.runs.config import RunSettings

PRESETS = ("none", "cpu")  # whose cost is said


@dataclass(frozen=True)
class Cost:
    """What a run takes on a machine."""

    preset: str
    minibatches: int
    steps: int
    seconds: float  # training and evaluation; decoding comes before
    bytes: float  # of memory, beside PyTorch's own


@dataclass(frozen=True)
class Check:
    """All that is known of a source of images."""

    files: int  # of any kind
    used: int  # images that a run would use
    looked_at: int  # images that were decoded
    skipped: Sequence[Fault]
    formats: Mapping[str, int]  # images by their format
    widths: tuple[int, int, int] | None  # least, median, most; of the images that can be used
    heights: tuple[int, int, int] | None
    bytes: int  # of the files of images that were decoded
    classes: Mapping[str, int]  # usable images of each, in all parts of the data; none: there are no labels
    experiences: int
    costs: Sequence[Cost]
    note: str  # what the user should know of how the images are taken

    def reasons(self) -> dict[str, int]:
        """How many files are not used, by reason."""
        return dict(Counter(fault.kind for fault in self.skipped).most_common())


def check(
    settings: Mapping[str, RunSettings], measure: Callable[[], Machine], most: int = 0, report: Report = silent
) -> Check:
    """Look at the images of a run, under the settings of each preset; `most` images are decoded, 0: all.

    Where there are more they are spread evenly over all. The machine is measured last. Nothing is written.
    """
    first = next(iter(settings.values()))
    live = first.data.model_copy(update={"decode": "live", "bad_images": "skip"})
    loaded = load_benchmark(first.benchmark, first.stream, live, report)
    seen = _Seen(first, most, report)
    subsets = [subset for subset in (loaded.train, loaded.val, loaded.test) if subset.files is not None and len(subset)]
    total = sum(len(subset) for subset in subsets)
    bad = {key: seen.look(files, rows, total) for key, (files, rows) in _by_files(subsets).items()}
    if seen.faults and len(seen.faults) == seen.count:
        fault, many = seen.faults[0], seen.count > 1
        what = f"none of the {seen.count:,} images can" if many else "the only image cannot"
        raise DataError(f"{what} be used: {fault.name}: {fault.reason}.")
    classes: Counter[int] = Counter()  # one whose images are all bad is there too: a run counts it
    for subset in subsets:
        for label, row in zip(subset.labels.tolist(), subset.rows.tolist(), strict=True):
            classes[label] += row not in bad[id(subset.files)]
    named = {loaded.classes[number]: classes[number] for number in sorted(classes) if loaded.classes}
    left = [*loaded.left_out, *seen.faults]
    machine = measure()
    return Check(
        files=total + len(loaded.left_out),
        used=total - len(seen.faults),
        looked_at=seen.count,
        skipped=left,
        formats=dict(seen.formats.most_common()),
        widths=_range(seen.widths),
        heights=_range(seen.heights),
        bytes=seen.bytes,
        classes=named,
        experiences=len(loaded.experiences),
        costs=[_cost(name, own, loaded, machine) for name, own in settings.items()],
        note=loaded.note,
    )


def _by_files(subsets: Sequence[Any]) -> dict[int, tuple[Files, torch.Tensor]]:
    """The rows that are used of each collection of files, which several subsets may share."""
    found: dict[int, tuple[Files, torch.Tensor]] = {}
    for subset in subsets:
        files, rows = found.get(id(subset.files), (subset.files, torch.zeros(0, dtype=torch.int64)))
        found[id(subset.files)] = files, torch.cat([rows, subset.rows])
    return {key: (files, rows.sort().values) for key, (files, rows) in found.items()}


class _Seen:
    """What has been found so far."""

    def __init__(self, settings: RunSettings, most: int, report: Report) -> None:
        self.size, self.fit, self.workers = settings.stream.image_size, settings.stream.fit, settings.data.workers
        self.most, self.report = most, report
        self.count = self.bytes = 0
        self.faults: list[Fault] = []
        self.formats: Counter[str] = Counter()
        self.widths: list[int] = []
        self.heights: list[int] = []

    def look(self, files: Files, rows: torch.Tensor, total: int) -> set[int]:
        """Decode these rows, or some of them; the rows that cannot be used."""
        if self.most and total > self.most:
            rows = rows[:: -(-total // self.most)]
        cuts = list(rows.split(rows_at_once(self.size)))
        images = LiveImages(files, self.size, self.fit, self.workers)
        for cut, (_, usable) in zip(cuts, images.walk(cuts), strict=True):
            for row in cut[usable].tolist():
                with suppress(OSError, BadImage):
                    self._measure(files.read(row))
            self.count += len(cut)
            self.report("checking images", self.count, min(total, self.most or total))
        self.faults += [images.faults[row] for row in sorted(images.faults)]
        return set(images.faults)

    def _measure(self, data: bytes) -> None:
        kind, width, height = describe(data)
        self.formats[kind] += 1
        self.widths.append(width)
        self.heights.append(height)
        self.bytes += len(data)


def _range(values: Sequence[int]) -> tuple[int, int, int] | None:
    return (min(values), int(np.median(values)), max(values)) if values else None


def _cost(preset: str, settings: RunSettings, loaded: Benchmark, machine: Machine) -> Cost:
    images = ImageCounts.of(loaded)
    found, ends = estimate(settings, machine, images), images.minibatches(settings)
    return Cost(preset, ends[-1] if ends else 0, found.steps, found.seconds, found.memory)
