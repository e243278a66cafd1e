"""The order of a stream: to which task an image belongs, and what comes in which experience.

A task is a property of an image: of its class, its domain or its taxonomic group. An experience is a stretch of the
stream. In a class-incremental stream the two are the same; blurry, repeated or drifting ones separate them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.errors import SettingError, unknown


@dataclass(frozen=True)
class Experience:
    """A stretch of the stream: the rows that come in it, and the task that it is about."""

    rows: Tensor  # [n] int64
    task: int


def arranged(names: Sequence[str], sequence: Sequence[str], shuffle: torch.Generator | None) -> list[int] | None:
    """Numbers of classes or groups in the order that the user asks for; None: the user asks for none."""
    if sequence and shuffle:
        raise SettingError("stream.sequence and stream.shuffle both say in which order things come; set one of them.")
    for name in sequence:
        if name not in names:
            raise unknown("name in stream.sequence:", name, names)
    if sequence and sorted(sequence) != sorted(names):
        left = next((name for name in names if name not in sequence), None)
        what = f"{left!r} is missing" if left is not None else "a name occurs twice"
        raise SettingError(f"stream.sequence has to name each of the {len(names)} classes or groups once: {what}.")
    if sequence:
        return [list(names).index(name) for name in sequence]
    return torch.randperm(len(names), generator=shuffle).tolist() if shuffle else None


def equal_sizes(whole: int, parts: int) -> list[int]:
    """Sizes of parts as equal as they can be, the larger ones first."""
    return [whole // parts + (number < whole % parts) for number in range(parts)]


def irregular_sizes(classes: int, experiences: int, generator: torch.Generator) -> list[int]:
    """How many classes each experience has, at least one, in the irregular streams of CLIMB (arXiv 2606.31275).

    Every experience has one class. The others are dealt out in proportion to uniform random numbers: the whole parts
    first, then one each to the largest remainders.
    """
    shares = torch.rand(experiences, generator=generator, dtype=torch.float64)
    exact = shares / shares.sum() * (classes - experiences)
    sizes = exact.floor().long()
    sizes[(exact - sizes).argsort(descending=True, stable=True)[: classes - experiences - int(sizes.sum())]] += 1
    return (sizes + 1).tolist()


def class_tasks(labels: Tensor, order: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The task of each label: classes in the given order, cut into groups of these sizes."""
    task_of = torch.empty(len(order), dtype=torch.int64)
    for task, group in enumerate(torch.tensor(order).split(list(sizes))):
        task_of[group] = task
    return task_of[labels]


def one_by_one(tasks: Tensor) -> list[Experience]:
    """An experience for each task that has rows, in order."""
    return [Experience((tasks == task).nonzero()[:, 0], int(task)) for task in tasks.unique()]


def in_parts(rows: Tensor, experiences: int) -> list[Experience]:
    """The rows in their order, in equal parts."""
    if experiences > len(rows):
        raise SettingError(f"stream.experiences is {experiences}, but there are only {len(rows)} images.")
    return [Experience(part, number) for number, part in enumerate(rows.tensor_split(experiences))]


def imbalanced(labels: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """Rows of a long-tailed part: class sizes fall geometrically from all images to 1 / ratio of them.

    Which class is large and which of its images stay is random; every class keeps at least one image.
    """
    classes = labels.unique()
    kept = []
    ranks = torch.randperm(len(classes), generator=generator).tolist()
    for label, rank in zip(classes, ranks, strict=True):
        rows = (labels == label).nonzero()[:, 0]
        share = ratio ** (-rank / max(1, len(classes) - 1))
        kept.append(rows[torch.randperm(len(rows), generator=generator)[: max(1, round(share * len(rows)))]])
    return torch.cat(kept).sort().values


def blurred(experiences: Sequence[Experience], share: float, generator: torch.Generator) -> list[Experience]:
    """A share of every experience is thrown together and dealt out again at random; sizes stay as they are."""
    staying, moving = [], []
    for experience in experiences:
        mixed = experience.rows[torch.randperm(len(experience.rows), generator=generator)]
        count = round(share * len(mixed))
        moving.append(mixed[:count])
        staying.append(mixed[count:])
    pool = torch.cat(moving)
    dealt = pool[torch.randperm(len(pool), generator=generator)].split([len(part) for part in moving])
    return [
        Experience(torch.cat([rows, part]), experience.task)
        for rows, part, experience in zip(staying, dealt, experiences, strict=True)
    ]


def repeated(experiences: Sequence[Experience], times: int, generator: torch.Generator) -> list[Experience]:
    """All experiences, then all again, each time with another part of their rows: no image comes twice."""
    parts = [
        experience.rows[torch.randperm(len(experience.rows), generator=generator)].tensor_split(times)
        for experience in experiences
    ]
    return [
        Experience(parts[number][time], experience.task)
        for time in range(times)
        for number, experience in enumerate(experiences)
        if len(parts[number][time])
    ]


def drifted(parts: Sequence[Tensor], width: float, generator: torch.Generator) -> list[Tensor]:
    """Every row moves to an earlier or later place, by up to `width` mean part lengths; the parts keep their lengths.

    So one part fades into the next: near a boundary the stream holds images of both sides.
    """
    rows = torch.cat(list(parts))
    reach = width * len(rows) / max(1, len(parts))
    places = torch.arange(len(rows)) + reach * (2 * torch.rand(len(rows), generator=generator, dtype=torch.float64) - 1)
    return list(rows[places.argsort(stable=True)].split([len(part) for part in parts]))
