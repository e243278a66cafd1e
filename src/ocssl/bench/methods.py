"""What a step of every method costs: rows a second, and beside FIFO replay and the network passes that it adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from ocssl import recipes
from ocssl.bench.learners import ROWS, STREAM, arriving, ready
from ocssl.bench.rows import Effort, Row
from ocssl.bench.timing import interleaved, ratio, spread
from ocssl.learner import Learner
from ocssl.objectives.teachers import Teacher

Pass = tuple[str, int, int]  # forward or both ways, views, rows
# Network passes beside those of FIFO's own step: 2 views of 138 rows, forward and backward.
EXTRA: dict[str, list[Pass]] = {
    "minred": [("forward", 2, STREAM)],  # newcomers as they are
    "cla-e": [("forward", 2, ROWS)],  # teacher
    "scale": [("forward", 1, ROWS)],  # snapshot
    "mir": [("both", 2, STREAM), ("forward", 2, 512), ("forward", 2, 512)],  # virtual step; candidates before and after
    "gss": [("both", 2, 110)],  # gradients of ten parts of ten and of the newcomers: at most a whole backward pass
    "byol": [("forward", 2, ROWS)],  # target
    "moco": [("forward", 1, ROWS)],  # keys
    "cassle": [("forward", 2, ROWS)],  # frozen network
    "pfr": [("forward", 2, ROWS)],
    "sycon": [("forward", 2, ROWS)],
    "osiris-d": [("forward", 2, STREAM)],  # frozen encoder, stream rows
    "pocon": [("both", 2, ROWS), ("forward", 2, ROWS)],  # kept encoder; its past
}
INSTEAD: dict[str, list[Pass]] = {"cmp": [("both", 1, 200)]}  # methods whose step is another
OBJECTIVES = ("simclr", "byol", "barlow-twins", "moco", "vicreg")  # in FIFO's place of SimSiam
QUICK = ("solar", "er-reservoir", "minred")


def rows(effort: Effort) -> Iterator[Row]:
    names = (
        ["solar", "er-fifo", "er-reservoir", "minred"] if effort.quick else [*sorted(recipes.methods()), *OBJECTIVES]
    )
    for name in names:
        yield from cost(name, 16, 16, effort.rounds(9, 3))


def cost(name: str, width: int, size: int, rounds: int) -> Iterator[Row]:
    """A method or objective beside FIFO, and beside FIFO with the method's extra passes alone; the memory is full."""
    fifo, other, generator = ready("er-fifo", width, size), ready(name, width, size), torch.Generator().manual_seed(0)
    rows = batch_rows(other, generator)
    bare = [passes(other, p) for p in INSTEAD.get(name, EXTRA.get(name, []))]
    times = interleaved(
        {
            "fifo": lambda: fifo.partial_fit(arriving(fifo, generator)),
            "other": lambda: other.partial_fit(arriving(other, generator)),
            "extra": lambda: [run() for run in bare],
        },
        rounds,
    )
    least = [0.0 if name in INSTEAD else seconds for seconds in times["fifo"]]
    times["allowed"] = [a + b for a, b in zip(least, times["extra"], strict=True)]
    shape = f"width {width}, {size} px"
    note = f"{rows} images a step"
    yield Row("methods", f"{name}, {shape}", spread([rows / s for s in times["other"]]), "images/s", note=note)
    yield Row("methods", f"{name} / er-fifo, {shape}", ratio(times, "other", "fifo"), "x")
    if bare:
        told = ratio(times, "other", "allowed")
        yield Row("methods", f"{name} / er-fifo and its extra passes, {shape}", told, "x")


def batch_rows(learner: Learner, generator: torch.Generator) -> int:
    """Images that a step of this learner trains on, seen in one step."""
    seen: list[int] = []
    hook = learner.objective.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    learner.partial_fit(arriving(learner, generator))
    hook.remove()
    return seen[-1]


def passes(of: Learner, shape: Pass) -> Callable[[], None]:
    """Encoder and projector alone, over ready tensors."""
    kind, views, count = shape
    network = Teacher(of.objective, live=True).requires_grad_(kind == "both")
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(views * count, 3, of.image_size, of.image_size, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)

    def run() -> None:
        for view in images.split(count):
            if kind == "forward":
                network(view[None])
            else:
                network.projector(network.encoder(view)).sum().backward()

    return run
