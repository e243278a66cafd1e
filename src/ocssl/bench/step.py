"""A whole step beside what it cannot do without: the network's own forward pass, backward pass and update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ocssl._training.assembly import can_compile
from ocssl.bench.learners import ROWS, arriving, noise, ready
from ocssl.bench.peers.network import in_planes
from ocssl.bench.rows import Bar, Effort, Row
from ocssl.bench.timing import Work, interleaved, ratio, spread
from ocssl.learner import Learner
from ocssl.runs.profiler import PHASES, PhaseClock

SLIM, FULL = (16, 16), (64, 32)  # width of ResNet-18, pixels of a side
WHOLE = {SLIM: 1.25, FULL: 1.08}  # how much longer than the bare network a whole step may take
SOLAR = {SLIM: 1.03}  # how much longer than a FIFO step one of SOLAR may take: where the network costs least


def rows(effort: Effort) -> Iterator[Row]:
    yield from steps(*SLIM, rounds=effort.rounds(150, 40))
    yield from phases(*SLIM, rounds=effort.rounds(40, 10))
    yield from layout(*SLIM, rounds=effort.rounds(12, 4))
    if not effort.quick:
        yield from choices(*SLIM, rounds=20)
        yield from steps(*FULL, rounds=6)
        yield from phases(*FULL, rounds=2)
        yield from layout(*FULL, rounds=2)


def steps(width: int, size: int, rounds: int) -> Iterator[Row]:
    """SOLAR's step beside FIFO's, and both beside the bare network."""
    shape, generator = f"width {width}, {size} px", torch.Generator().manual_seed(0)
    fifo, solar = ready("er-fifo", width, size), ready("solar", width, size)
    times = interleaved(
        {
            "bare": bare(ready("er-fifo", width, size)),
            "er-fifo": lambda: fifo.partial_fit(arriving(fifo, generator)),
            "solar": lambda: solar.partial_fit(arriving(solar, generator)),
        },
        rounds,
        warmup=3 if width < FULL[0] else 1,
    )
    yield Row("step", f"solar / er-fifo, {shape}", ratio(times, "solar", "er-fifo"), "x", bar(SOLAR, width, size))
    for name in ("er-fifo", "solar"):
        told = ratio(times, name, "bare")
        yield Row("step", f"{name} / bare network, {shape}", told, "x", bar(WHOLE, width, size))
    for name, seconds in times.items():
        yield Row("step", f"{name}, {shape}", spread([1000 * s for s in seconds]), "ms")


def bar(limits: Mapping[tuple[int, int], float], width: int, size: int) -> Bar | None:
    return Bar(limits[width, size]) if (width, size) in limits else None


def bare(learner: Learner) -> Work:
    """Forward pass, backward pass and update over views that are ready: no memory, no views, no check."""
    images = noise(ROWS, learner.image_size, torch.Generator().manual_seed(2))
    views, optimizer = learner._see(images), learner._optimizer

    def step() -> None:
        loss = learner.objective(views).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def phases(width: int, size: int, rounds: int) -> Iterator[Row]:
    """Where SOLAR's step goes."""
    learner, generator = ready("solar", width, size), torch.Generator().manual_seed(0)
    learner.partial_fit(arriving(learner, generator))
    clock = PhaseClock(learner)
    spent: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for _ in range(rounds):
        clock.seconds = dict.fromkeys(PHASES, 0.0)
        learner.partial_fit(arriving(learner, generator))
        for phase, seconds in clock.seconds.items():
            spent[phase].append(1000 * seconds)
    for phase, times in spent.items():
        yield Row("step", f"solar, {phase}, width {width}, {size} px", spread(times), "ms")


def choices(width: int, size: int, rounds: int) -> Iterator[Row]:
    """What the settings of `compute` give, beside FIFO's step without them; compilation itself is not counted."""
    ways: dict[str, dict[str, object]] = {"plain": {}, "bfloat16": {"compute.precision": "bfloat16"}}
    if can_compile(torch.device("cpu")):
        ways["compiled"] = {"compute.compile": True}
    learners = {name: ready("er-fifo", width, size, **settings) for name, settings in ways.items()}
    generator = torch.Generator().manual_seed(0)
    works: dict[str, Work] = {
        name: lambda learner=learner: learner.partial_fit(arriving(learner, generator))  # type: ignore[misc]
        for name, learner in learners.items()
    }
    times = interleaved(works, rounds, warmup=3)
    for name in list(ways)[1:]:
        yield Row("step", f"{name} / plain, width {width}, {size} px", ratio(times, name, "plain"), "x")


def layout(width: int, size: int, rounds: int) -> Iterator[Row]:
    """Channels last, beside the same network with its batch norm and convolutions over planes."""
    times = interleaved(
        {"last": bare(ready("er-fifo", width, size)), "planes": in_planes(bare, ready("er-fifo", width, size))}, rounds
    )
    yield Row(
        "step",
        f"channels_last, faster than NCHW, width {width}, {size} px",
        ratio(times, "planes", "last"),
        "x",
        faster=True,
    )
