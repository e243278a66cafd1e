"""A benchmark: stream, validation and test images with labels for evaluation, made from what a source provides."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ocssl._core.random import generator_for
from ocssl.data import orders
from ocssl.data.decode.decode_processes import Fault, by_reason
from ocssl.data.decode.decoder import resize_array
from ocssl.data.decode.files import Files, Report, silent
from ocssl.data.decode.image_set import ArrayImages, ImageSet, open_images
from ocssl.data.orders import Experience
from ocssl.data.sources import BENCHMARKS
from ocssl.data.sources.source import Collection, Drawing, SourceImages, parse_name
from ocssl.data.stream import ExperienceStream, Subset
from ocssl.errors import DataError, SettingError, unknown
from ocssl.settings import DataSettings, StreamSettings

MOST_EXPERIENCES = 20  # where the user sets none
BY_CLASS = ("class", "irregular")  # orders that go from classes to classes
TEST_IDS = 2**40  # test images are numbered from here, so that no number of training images reaches them


@dataclass(frozen=True)
class Benchmark:
    """What a run learns from and is tested on."""

    name: str
    train: Subset
    val: Subset
    test: Subset
    experiences: Sequence[Experience]  # rows of `train`
    classes: Sequence[str] = ()  # names of the labels; none: there are no labels
    tasks: Sequence[str] = ()  # names of the tasks; none: experiences are not about tasks
    given: bool = False  # images come in the order of the source, not shuffled
    drift: float = 0.0
    left_out: Sequence[Fault] = ()  # files of the source that are not among the images
    note: str = ""  # what the user should know of how the images were taken
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
        """How many unusable rows are known so far: cheap to ask for, and grows when there are new ones."""
        return sum(len(subset.images.faults) for subset in (self.train, self.test))

    def skipped(self) -> list[Fault]:
        """All that is not used: files left out of the images, and unusable images that are known so far."""
        return [*self.left_out, *self.faults()]

    def usage(self) -> str:
        """How many files are used, and why the others are not, in one line."""
        skipped, bad = self.skipped(), len(self.faults())
        used = len(self.train) + len(self.val) + len(self.test) - bad
        reasons = f": {by_reason(skipped)}" if skipped else ""
        return f"used {used:,} of {used + len(skipped):,}{reasons}"

    def path(self, number: int) -> str:
        """Where the image with this id is, as the memory and the events know it."""
        for subset in (self.train, self.val, self.test):
            places = (subset.ids == number).nonzero()[:, 0]
            if len(places) and (paths := subset.paths(places)):
                return paths[0]
        raise DataError(f"no file of {self.name} has the id {number}.")

    def faults(self) -> list[Fault]:
        """All unusable images that are known so far."""
        return list(self.faults_by_id().values())

    def faults_by_id(self) -> dict[int, Fault]:
        """The same by id, as the memory and the events know it."""
        return self.train.faults_by_id() | self.val.faults_by_id() | self.test.faults_by_id()

    def restore_faults(self, known: Mapping[int, Fault]) -> None:
        """Unusable images by id that an earlier session of a run has found."""
        for subset in (self.train, self.val, self.test):
            subset.restore_faults(known)


def load_benchmark(
    name: str, settings: StreamSettings, data: DataSettings | None = None, report: Report = silent
) -> Benchmark:
    """Read or draw a benchmark; a wrong name or option is a SettingError, data that cannot be used a DataError.

    >>> from ocssl.settings import StreamSettings
    >>> settings = StreamSettings(image_size=8, classes=4, train=10, test=5, experiences=2)
    >>> benchmark = load_benchmark("synthetic", settings)
    >>> next(benchmark.stream(batch=6, seed=0).batches()).images.shape
    torch.Size([6, 3, 8, 8])
    """
    data = data or DataSettings()
    kind, place = parse_name(name)
    options = settings.model_extra or {}
    known = BENCHMARKS.options(kind)
    for key in options:
        if key not in known:
            raise unknown("setting", f"stream.{key}", [f"stream.{k}" for k in (*StreamSettings.model_fields, *known)])
    where = data.path or place
    source = BENCHMARKS.build(kind, options).find(Path(where) if where else None, settings, report)
    return assemble(name, source, settings, data, report)


def assemble(
    name: str, source: SourceImages, settings: StreamSettings, data: DataSettings, report: Report
) -> Benchmark:
    """The same settings and data give the same benchmark, whatever the seed of a run."""
    labelled = source.train.labels is not None
    order = settings.order if settings.order != "auto" else ("class" if labelled else "given")
    tasks, task_names = _tasks(source, order, settings)
    rows = _first_share(source.train, settings.fraction)
    train = _subset(source.train, rows, tasks[0], 0, settings, data, report)
    if source.test is None:
        train, test = split(train, settings.test_share if labelled else 0.0, settings.data_seed, "test")
    else:
        test = _subset(source.test, torch.arange(len(source.test)), tasks[1], TEST_IDS, settings, data, report)
    train, val = split(train, settings.validation if labelled else 0.0, settings.data_seed)
    if settings.imbalance > 1:
        if not labelled:
            raise SettingError("stream.imbalance needs labels, and these images have none.")
        train = train.subset(orders.imbalanced(train.labels, settings.imbalance, _generator(settings, "imbalance")))
    if not len(train):
        raise SettingError("no image is left to learn from; lower stream.validation or raise stream.fraction.")
    faults = train.images.faults
    if len(faults) and all(int(row) in faults for row in train.rows):
        first = faults[int(train.rows[0])]
        what = "the only image" if len(train) == 1 else f"none of the {len(train):,} images"
        can = "cannot" if len(train) == 1 else "can"
        raise DataError(f"{what} of {name} {can} be used: {first.name}: {first.reason}.")
    return Benchmark(
        name,
        train,
        val,
        test,
        _experiences(train, order, settings),
        classes=list(source.classes) if labelled else [],
        tasks=task_names,
        given=order == "given",
        drift=settings.drift,
        left_out=source.left_out,
        note=source.note,
        fingerprint=_fingerprint(source),
    )


def split(subset: Subset, share: float, seed: int, name: str = "validation") -> tuple[Subset, Subset]:
    """Hold out a share of every class, evenly over its tasks: (rest, held out), the same for the same seed."""
    generator = generator_for(seed, name)
    held = torch.zeros(len(subset), dtype=torch.bool)
    for label in subset.labels.unique() if share else ():
        of_class = (subset.labels == label).nonzero()[:, 0]
        wanted, passed, taken = round(share * len(of_class)), 0, 0
        for task in subset.tasks[of_class].unique():
            rows = of_class[subset.tasks[of_class] == task]
            passed += len(rows)
            quota = round(wanted * passed / len(of_class)) - taken  # so that small tasks add up to the class's share
            taken += quota
            held[rows[torch.randperm(len(rows), generator=generator)[:quota]]] = True
    return subset.subset((~held).nonzero()[:, 0]), subset.subset(held.nonzero()[:, 0])


def _generator(settings: StreamSettings, name: str) -> torch.Generator:
    return generator_for(settings.data_seed, name)


def _tasks(source: SourceImages, order: str, settings: StreamSettings) -> tuple[list[Tensor], list[str]]:
    """The task of every training and test image, and the names of the tasks."""
    collections = [source.train, *([] if source.test is None else [source.test])]
    shuffle = _generator(settings, "order") if settings.shuffle else None
    if order in ("domain", "taxonomy"):
        names = list(source.group_names.get(order, ()))
        if not names or any(order not in collection.groups for collection in collections):
            known = [f"stream.order={kind}" for kind in source.group_names] or ["stream.order=class or iid"]
            raise SettingError(f"stream.order is {order}, but these images have no {order}: try {', '.join(known)}.")
        sequence = orders.arranged(names, settings.sequence, shuffle) or list(range(len(names)))
        task_of = torch.empty(len(names), dtype=torch.int64)
        task_of[torch.tensor(sequence)] = torch.arange(len(names))
        tasks = [task_of[torch.from_numpy(collection.groups[order])] for collection in collections]
        return tasks, [names[number] for number in sequence]
    if source.train.labels is None:
        if order in BY_CLASS:
            hint = "try stream.order=given or iid"
            raise SettingError(f"stream.order is {order}, but these images have no labels: {hint}.")
        return [torch.zeros(len(collection), dtype=torch.int64) for collection in collections], []
    by_user = orders.arranged(source.classes, settings.sequence, shuffle)
    classes: Sequence[int] = by_user or source.class_order or range(len(source.classes))
    count = settings.experiences or min(MOST_EXPERIENCES, len(classes))
    count = count if order in BY_CLASS else min(count, len(classes))
    sizes = class_counts(len(classes), count, order, settings)
    tasks = [orders.class_tasks(_labels(collection), classes, sizes) for collection in collections]
    groups = torch.tensor(list(classes)).split(sizes)
    names = [", ".join(source.classes[number] for number in group.tolist()) for group in groups]
    return tasks, names if order in BY_CLASS else []


def class_counts(classes: int, experiences: int, order: str, settings: StreamSettings) -> list[int]:
    """How many classes each experience has; those of an irregular stream are the same for every run seed."""
    if experiences > classes:
        raise SettingError(f"stream.experiences is {experiences}, but there are only {classes} classes.")
    if order == "irregular":
        return orders.irregular_sizes(classes, experiences, _generator(settings, "irregular"))
    return orders.equal_sizes(classes, experiences)


def _labels(collection: Collection) -> Tensor:
    """Class numbers [n]; -1: none."""
    labels = collection.labels
    return torch.full((len(collection),), -1) if labels is None else torch.from_numpy(labels)


def _first_share(collection: Collection, share: float) -> Tensor:
    """Rows of the first share of every class, in their order; at least one image must be left."""
    labels = _labels(collection).clamp(min=0)
    if share == 1:
        return torch.arange(len(labels))
    counts = torch.bincount(labels)
    wanted = (counts * share).round().to(torch.int64)
    if not wanted[counts > 0].all():
        least = int(counts[counts > 0].min())
        raise SettingError(f"stream.fraction {share} of {least} images per class leaves none to learn.")
    by_class = labels.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    place = torch.empty_like(by_class)
    place[by_class] = torch.arange(len(labels)) - starts[labels[by_class]]  # of each row within its class
    return (place < wanted[labels]).nonzero()[:, 0]


def _subset(
    collection: Collection,
    rows: Tensor,
    tasks: Tensor,
    first: int,
    settings: StreamSettings,
    data: DataSettings,
    report: Report,
) -> Subset:
    """Rows of a collection, with their images opened; ids count from `first`."""
    images, size, places = collection.images, settings.image_size, torch.arange(len(rows))
    opened: ImageSet
    files: Files | None = None
    if isinstance(images, Drawing):
        opened = images.draw(rows, size)
    elif isinstance(images, Tensor):
        kept = images if len(rows) == len(images) else images[rows]
        opened = ArrayImages(torch.from_numpy(resize_array(kept.numpy(), size, settings.fit)))
    else:
        chosen = images.subset(rows.numpy())
        order = chosen.stored().argsort(kind="stable")  # read in the order of storage
        places[torch.from_numpy(order)] = torch.arange(len(rows))
        files = chosen.subset(order)
        opened = open_images(
            files,
            size=size,
            fit=settings.fit,
            decode=data.decode,
            workers=data.workers,
            cache=Path(data.cache) if data.cache else None,
            bad_images=data.bad_images,
            report=report,
        )
    return Subset(opened, places, _labels(collection)[rows], tasks[rows], first + rows, files)


def _experiences(train: Subset, order: str, settings: StreamSettings) -> list[Experience]:
    labelled = bool((train.labels >= 0).any())
    wanted = settings.experiences or (min(MOST_EXPERIENCES, len(train)) if labelled else 1)
    if order == "iid":
        mixed = torch.randperm(len(train), generator=_generator(settings, "order"))
        experiences = orders.in_parts(mixed, wanted)
    elif order == "given":
        experiences = orders.in_parts(torch.arange(len(train)), wanted)
    else:
        experiences = orders.one_by_one(train.tasks)
    for name, off in (("blurry", 0), ("drift", 0), ("repeats", 1)):
        if order == "given" and getattr(settings, name) != off:
            raise SettingError(f"stream.{name} reorders the images, but stream.order=given keeps their order.")
    if settings.blurry:
        experiences = orders.blurred(experiences, settings.blurry, _generator(settings, "blurry"))
    if settings.repeats > 1:
        experiences = orders.repeated(experiences, settings.repeats, _generator(settings, "repeats"))
    return experiences[: settings.stop or None]


def _fingerprint(source: SourceImages) -> str:
    """The same for the same images and labels in any place."""
    digest = hashlib.sha256()
    for collection in (source.train, source.test):
        if collection is None:
            continue
        images = collection.images
        if isinstance(images, Tensor):
            digest.update(f"{tuple(images.shape)} {zlib.crc32(images.contiguous().numpy().data)}".encode())
        else:
            digest.update(images.fingerprint().encode())
        if collection.labels is not None:
            digest.update(collection.labels.tobytes())
    return digest.hexdigest()
