"""From what a source has found to the parts of a benchmark: splits, tasks, experiences, and opened images."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ocssl._core.random import generator_for
from ocssl.data import orders
from ocssl.data.decode.decoder import resize_array
from ocssl.data.decode.images import ArrayPictures, Pictures, Report
from ocssl.data.decode.opening import open_pictures
from ocssl.data.sources.source import Collection, Drawing, Found
from ocssl.data.split import Part
from ocssl.errors import SettingError
from ocssl.settings import DataSettings, StreamSettings

MOST_EXPERIENCES = 20  # where nobody says how many
TEST_IDS = 2**40  # test images are numbered from here, so that no number of training images reaches them


def assemble(found: Found, settings: StreamSettings, data: DataSettings, report: Report) -> dict[str, Any]:
    """The fields of a benchmark. The same settings and data give the same parts, whatever the seed of a run."""
    order = settings.order if settings.order != "auto" else ("class" if _labels(found.train) is not None else "given")
    train = _part(found.train, _first_share(found.train, settings.fraction), 0, settings, data, report)
    test = None
    if found.test is not None:
        test = _part(found.test, torch.arange(len(found.test)), TEST_IDS, settings, data, report)
    parts, tasks = _with_tasks(found, order, settings, [train] if test is None else [train, test])
    train = parts[0]
    if test is None:
        labelled = found.train.labels is not None
        train, test = split(train, settings.test_share if labelled else 0.0, settings.data_seed, "test")
    else:
        test = parts[1]
    train, val = split(train, settings.validation if found.train.labels is not None else 0.0, settings.data_seed)
    if settings.imbalance > 1:
        _need_labels(found.train, "stream.imbalance")
        train = train.subset(orders.imbalanced(train.labels, settings.imbalance, _generator(settings, "imbalance")))
    if not len(train):
        raise SettingError("no image is left to learn from; lower stream.validation or raise stream.fraction.")
    return {
        "train": train,
        "val": val,
        "test": test,
        "experiences": _experiences(train, order, settings),
        "classes": list(found.classes) if found.train.labels is not None else [],
        "tasks": tasks,
        "given": order == "given",
        "drift": settings.drift,
        "fingerprint": _fingerprint(found, settings),
    }


def split(part: Part, share: float, seed: int, name: str = "validation") -> tuple[Part, Part]:
    """Hold out a share of every class, evenly over its tasks: (rest, held out), the same for the same seed."""
    generator = generator_for(seed, name)
    held = torch.zeros(len(part), dtype=torch.bool)
    for label in part.labels.unique() if share else ():
        of_class = (part.labels == label).nonzero()[:, 0]
        wanted, passed, taken = round(share * len(of_class)), 0, 0
        for task in part.tasks[of_class].unique():
            rows = of_class[part.tasks[of_class] == task]
            passed += len(rows)
            quota = round(wanted * passed / len(of_class)) - taken  # so that small tasks add up to the class's share
            taken += quota
            held[rows[torch.randperm(len(rows), generator=generator)[:quota]]] = True
    return part.subset((~held).nonzero()[:, 0]), part.subset(held.nonzero()[:, 0])


def _labels(collection: Collection) -> Tensor | None:
    return None if collection.labels is None else torch.from_numpy(collection.labels)


def _need_labels(collection: Collection, what: str) -> Tensor:
    labels = _labels(collection)
    if labels is None:
        raise SettingError(f"{what} needs labels, and these images have none.")
    return labels


def _generator(settings: StreamSettings, name: str) -> torch.Generator:
    return generator_for(settings.data_seed, name)


def _first_share(collection: Collection, share: float) -> Tensor:
    """Rows of the first share of every class, in the order in which they stand; at least one image must be left."""
    labels = _labels(collection)
    labels = torch.zeros(len(collection), dtype=torch.int64) if labels is None else labels
    if share == 1:
        return torch.arange(len(labels))
    counts = torch.bincount(labels)
    wanted = (counts * share).round().to(torch.int64)
    if not wanted[counts > 0].all():
        least = int(counts[counts > 0].min())
        raise SettingError(f"stream.fraction {share} of {least} images a class leaves none to learn.")
    by_class = labels.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    place = torch.empty_like(by_class)
    place[by_class] = torch.arange(len(labels)) - starts[labels[by_class]]  # of each row within its class
    return (place < wanted[labels]).nonzero()[:, 0]


def _part(
    collection: Collection, rows: Tensor, first: int, settings: StreamSettings, data: DataSettings, report: Report
) -> Part:
    """Rows of a collection as a part whose tasks are not known yet."""
    labels = _labels(collection)
    labels = torch.full((len(collection),), -1) if labels is None else labels
    pictures, places = _open(collection, rows, settings, data, report)
    return Part(pictures, places, labels[rows], torch.zeros_like(rows), first + rows)


def _open(
    collection: Collection, rows: Tensor, settings: StreamSettings, data: DataSettings, report: Report
) -> tuple[Pictures, Tensor]:
    """The pictures of these rows, and where in them each row is."""
    images, size = collection.images, settings.image_size
    if isinstance(images, Drawing):
        return images.draw(rows, size), torch.arange(len(rows))
    if isinstance(images, Tensor):
        kept = images if len(rows) == len(images) else images[rows]
        return ArrayPictures(torch.from_numpy(resize_array(kept.numpy(), size, settings.fit))), torch.arange(len(rows))
    chosen = images.subset(rows.numpy())
    order = chosen.stored().argsort(kind="stable")  # read as they lie, wherever they stand
    pictures = open_pictures(
        chosen.subset(order),
        size=size,
        fit=settings.fit,
        decode=data.decode,
        workers=data.workers,
        cache=Path(data.cache) if data.cache else None,
        bad_images=data.bad_images,
        report=report,
    )
    places = torch.empty_like(rows)
    places[torch.from_numpy(order)] = torch.arange(len(rows))
    return pictures, places


def _with_tasks(
    found: Found, order: str, settings: StreamSettings, parts: Sequence[Part]
) -> tuple[list[Part], list[str]]:
    """The parts with the task of every image, and the names of the tasks."""
    collections = [found.train, found.test][: len(parts)]
    shuffle = _generator(settings, "order") if settings.shuffle else None
    if order in ("domain", "taxonomy"):
        names = list(found.group_names.get(order, ()))
        if not names or any(c is None or order not in c.groups for c in collections):
            known = [f"stream.order={kind}" for kind in found.group_names] or ["stream.order=class or iid"]
            raise SettingError(f"stream.order is {order}, but these images have no {order}: try {', '.join(known)}.")
        sequence = orders.arranged(names, settings.sequence, shuffle) or list(range(len(names)))
        task_of = torch.empty(len(names), dtype=torch.int64)
        task_of[torch.tensor(sequence)] = torch.arange(len(names))
        tasks = [task_of[torch.from_numpy(c.groups[order])] for c in collections if c is not None]
        return _told(parts, tasks), [names[number] for number in sequence]
    if found.train.labels is None:
        if order == "class":
            raise SettingError("stream.order is class, but these images have no labels: try stream.order=given or iid.")
        return list(parts), []
    by_user = orders.arranged(found.classes, settings.sequence, shuffle)
    classes: Sequence[int] = by_user or found.class_order or range(len(found.classes))
    count = settings.experiences or min(MOST_EXPERIENCES, len(classes))
    count = count if order == "class" else min(count, len(classes))
    tasks = [
        orders.class_tasks(torch.from_numpy(c.labels), classes, count)
        for c in collections
        if c is not None and c.labels is not None
    ]
    groups = torch.tensor(list(classes)).tensor_split(count)
    names = [", ".join(found.classes[number] for number in group.tolist()) for group in groups]
    return _told(parts, tasks), names if order == "class" else []


def _told(parts: Sequence[Part], tasks: Sequence[Tensor]) -> list[Part]:
    return [
        Part(part.pictures, part.rows, part.labels, own[part.ids % TEST_IDS], part.ids)
        for part, own in zip(parts, tasks, strict=True)
    ]


def _experiences(train: Part, order: str, settings: StreamSettings) -> list[orders.Experience]:
    if order == "iid":
        mixed = torch.randperm(len(train), generator=_generator(settings, "order"))
        experiences = orders.in_parts(mixed, settings.experiences or min(MOST_EXPERIENCES, len(train)))
    elif order == "given":
        wanted = settings.experiences or min(MOST_EXPERIENCES, len(train))
        experiences = orders.in_parts(torch.arange(len(train)), wanted)
    else:
        experiences = orders.one_by_one(train.tasks)
    for name, off in (("blurry", 0), ("drift", 0), ("repeats", 1)):
        if order == "given" and getattr(settings, name) != off:
            raise SettingError(f"stream.{name} reorders the images, but stream.order=given leaves them as they stand.")
    if settings.blurry:
        experiences = orders.blurred(experiences, settings.blurry, _generator(settings, "blurry"))
    if settings.repeats > 1:
        experiences = orders.repeated(experiences, settings.repeats, _generator(settings, "repeats"))
    return experiences[: settings.stop or None]


def _fingerprint(found: Found, settings: StreamSettings) -> str:
    """The same for the same images and labels, wherever they lie."""
    whole = hashlib.sha256()
    for collection in (found.train, found.test):
        if collection is None:
            continue
        images = collection.images
        if isinstance(images, Tensor):
            whole.update(f"{tuple(images.shape)} {zlib.crc32(images.contiguous().numpy().data)}".encode())
        else:
            whole.update(images.fingerprint().encode())
        if collection.labels is not None:
            whole.update(collection.labels.tobytes())
    return whole.hexdigest()
