"""How the cost of a step grows, and whether the model of cost in `ocssl.cost` foretells it.

    python benchmarks/growth.py                     # seconds and bytes along five axes, plots into docs/images
    python benchmarks/growth.py --check             # predicted and measured seconds of whole runs
    python benchmarks/growth.py --gpus              # what runs of the paper would take on named GPUs: an estimate

One thing is varied at a time around SOLAR with ResNet-18 of width 16, 16 px, 2,000 slots and 138 samples a step; the
points of an axis take turns. Exponents are slopes of least squares on log-log scales: over all points, and over the
last two, where what is fixed no longer counts. `--clock cpu` counts the processor's seconds instead of the clock's: for
one thread on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import ocssl
from ocssl.cost import GPUS, ImageCounts, Machine, calibrate, estimate, minibatch_load
from ocssl.cost.layers import fill, noise
from ocssl.cost.work import activation_bytes, training_load
from ocssl.data import load_benchmark
from ocssl.runs.config import resolve_run
from ocssl.runs.folder import create
from ocssl.runs.progress import Bars, Progress
from ocssl.runs.run import execute
from ocssl.runs.stop import Stop

BASE = {"width": 16, "size": 16, "slots": 2000, "batch": 138}
AXES = {
    "width": ("channels of the first stage", [4, 8, 16, 32, 64]),
    "size": ("pixels of a side", [8, 16, 32, 64]),
    "slots": ("slots of the memory", [500, 2000, 8000, 32000, 128000]),
    "batch": ("samples a step", [17, 34, 69, 138, 276]),
}
STREAM = [10, 20, 40, 80, 160]  # minibatches
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
PAPER = [("solar", "cifar100"), ("er-fifo", "cifar100"), ("solar", "imagenet100"), ("er-fifo", "imagenet100")]


@dataclass(frozen=True)
class Point:
    """One place on an axis."""

    x: float
    seconds: float  # a step, or the whole stretch of a stream
    quartiles: tuple[float, float]
    predicted: float  # seconds, by the model
    resident: float  # bytes of network, gradients, momentum and memory
    working: float  # bytes of what a step keeps for its backward pass
    expected: float  # the working bytes, by the model


# ---- growth ---------------------------------------------------------------------------------------------------------


def learner(width: int, size: int, slots: int, batch: int) -> ocssl.Learner:
    """With a full memory; each stream minibatch is one step."""
    chosen = {"encoder.width": width, "memory.capacity": slots, "schedule.batch": batch, "schedule.passes": 1}
    made = ocssl.Learner("solar", image_size=size, settings=chosen)
    fill(made)
    return made


def along(axis: str, rounds: int, machine: Machine, clock: Callable[[], float]) -> list[Point]:
    values = AXES[axis][1]
    learners = [learner(**{**BASE, axis: value}) for value in values]
    spent: list[list[float]] = [[] for _ in values]
    for number in range(rounds + 1):
        for one, seconds in zip(learners, spent, strict=True):
            start = clock()
            one.partial_fit(noise(10, one.image_size))
            if number:  # the first round warms up
                seconds.append(clock() - start)
    return [point(value, one, seconds, machine) for value, one, seconds in zip(values, learners, spent, strict=True)]


def point(x: float, one: ocssl.Learner, seconds: list[float], machine: Machine) -> Point:
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    load = minibatch_load(one.settings, one.image_size)
    sizes = resident(one), working(one), activation_bytes(one.settings, one.image_size)
    return Point(x, middle, (low, high), machine.seconds(load), *sizes)


def resident(one: ocssl.Learner) -> float:
    gradients = sum(p.numel() * p.element_size() for p in one.network.parameters() if p.requires_grad)
    return gradients + sum(tensor.numel() * tensor.element_size() for tensor in one.tensors().values())


def working(one: ocssl.Learner) -> float:
    """Bytes of all different tensors, weights apart, that one step saves for its backward pass."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in one.network.state_dict(keep_vars=True).values()}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        one.partial_fit(noise(10, one.image_size))
    return float(sum(saved.values()))


def along_stream(machine: Machine, clock: Callable[[], float]) -> list[Point]:
    """Seconds of the first minibatches of one stream: its memory fills up on the way."""
    one = ocssl.Learner(
        "solar", image_size=16, settings={"encoder.width": 16, "memory.capacity": 400, "schedule.passes": 1}
    )
    images = noise(10 * STREAM[-1], 16)
    taken = []
    for minibatch in images.split(10):
        start = clock()
        one.partial_fit(minibatch)
        taken.append(clock() - start)
    sizes = resident(one), working(one), activation_bytes(one.settings, 16)
    predicted = [machine.seconds(training_load(one.settings, 16, n)) for n in STREAM]
    spent = [sum(taken[:n]) for n in STREAM]
    return [Point(n, t, (t, t), p, *sizes) for n, t, p in zip(STREAM, spent, predicted, strict=True)]


def exponents(points: list[Point], what: str) -> tuple[float, float]:
    """Slope of log y over log x: of all points, and of the last two."""
    x, y = [math.log(p.x) for p in points], [math.log(getattr(p, what)) for p in points]
    return statistics.linear_regression(x, y).slope, (y[-1] - y[-2]) / (x[-1] - x[-2])


# ---- check ----------------------------------------------------------------------------------------------------------

SHORT = {
    "encoder.name": "resnet18",
    "stream.classes": 10,
    "stream.train": 36,
    "stream.test": 20,
    "stream.experiences": 2,
    "evaluate.latent_samples": 50,
    "evaluate.latent_views": 8,
    "memory.capacity": 200,
}
RUNS: list[tuple[str, dict[str, Any]]] = [
    ("solar", {"encoder.width": 8}),
    ("er-fifo", {"encoder.width": 16, "schedule.passes": 3}),
    ("solar", {"encoder.width": 32, "schedule.passes": 2}),
    ("er-fifo", {"encoder.width": 8, "stream.image_size": 32, "schedule.passes": 2}),
    ("solar", {"encoder.width": 16, "stream.image_size": 32, "schedule.passes": 1}),
    ("er-fifo", {"encoder.width": 16, "objective.name": "byol", "schedule.passes": 2}),
    ("minred", {"encoder.width": 16, "schedule.passes": 3, "objective.projection": 2048}),
    ("finetune", {"encoder.width": 16, "memory.capacity": 0}),
]


def check(clock: Callable[[], float], machine: Machine) -> Iterator[tuple[str, float, float]]:
    """Whole runs on the embedded benchmark: what they are, predicted and measured seconds."""
    for method, own in RUNS:
        settings = resolve_run(method, "synthetic", 0, SHORT | own)
        benchmark = load_benchmark(settings.benchmark, settings.stream)
        predicted = estimate(settings, machine, ImageCounts.of(benchmark)).seconds
        with tempfile.TemporaryDirectory() as place, Bars(Console(stderr=True), quiet=True) as bars:
            folder = Path(place) / "run"
            create(folder, settings)
            start = clock()
            execute(folder, Progress(bars), Stop(), benchmark=benchmark)
            measured = clock() - start
        yield (
            f"{method} {' '.join(f'{key.split(chr(46))[-1]}={value}' for key, value in own.items())}",
            predicted,
            measured,
        )


# ---- plots ----------------------------------------------------------------------------------------------------------

WIDE, HIGH, LEFT, BELOW = 360, 240, 64, 44  # of a panel, and its margins
Curve = tuple[str, str, list[tuple[float, float]], bool]  # name, colour, points, whether it is a line


def panel(x0: int, title: str, label: str, curves: list[Curve]) -> str:
    """A log-log plot as SVG."""
    every = [pair for _, _, pairs, _ in curves for pair in pairs]
    low_x, high_x = (f(x for x, _ in every) for f in (min, max))
    low, high = math.floor(math.log10(min(y for _, y in every))), math.ceil(math.log10(max(y for _, y in every)))

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / low_x) / math.log(high_x / low_x)
        up = (math.log10(y) - low) / (high - low)
        return x0 + LEFT + across * (WIDE - LEFT - 20), HIGH - BELOW - up * (HIGH - BELOW - 40)

    names = "".join(f'<tspan dx="12" fill="{colour}">{name}</tspan>' for name, colour, _, _ in curves)
    parts = [f'<text x="{x0 + LEFT}" y="18"><tspan font-weight="bold">{title}</tspan>{names}</text>']
    for power in range(low, high + 1):
        _, y = place(low_x, 10.0**power)
        parts.append(f'<path d="M{x0 + LEFT} {y:.1f}H{x0 + WIDE - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{told(10.0**power)}</text>')
    for x in sorted({x for x, _ in every}):
        across, _ = place(x, 10.0**low)
        parts.append(f'<text x="{across:.1f}" y="{HIGH - BELOW + 16}" text-anchor="middle">{told(x)}</text>')
    parts.append(f'<text x="{x0 + (LEFT + WIDE - 20) / 2}" y="{HIGH - 10}" text-anchor="middle">{label}</text>')
    for _, colour, pairs, line in curves:
        places = [place(x, y) for x, y in pairs]
        if line:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        else:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
    return "\n".join(parts)


def told(value: float) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def draw(path: Path, label: str, points: list[Point]) -> None:
    def curve(name: str, colour: str, what: str, line: bool) -> Curve:
        return name, colour, [(p.x, getattr(p, what)) for p in points], line

    seconds = [curve("measured", "#0b5fa5", "seconds", False), curve("model", "#c2410c", "predicted", True)]
    sizes = [
        curve("resident", "#0b5fa5", "resident", False),
        curve("kept for the backward pass", "#15803d", "working", False),
        curve("model of it", "#c2410c", "expected", True),
    ]
    body = panel(0, "seconds", label, seconds) + "\n" + panel(WIDE, "bytes", label, sizes)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDE} {HIGH}" font-family="sans-serif" '
        f'font-size="11">\n<rect width="{2 * WIDE}" height="{HIGH}" fill="white"/>\n{body}\n</svg>\n'
    )


# ---------------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="predict whole runs, then make them")
    parser.add_argument("--gpus", action="store_true", help="what runs of the paper would take: an estimate")
    parser.add_argument("--axes", nargs="*", default=[*AXES, "stream"], choices=[*AXES, "stream"])
    parser.add_argument("--rounds", type=int, default=5, help="steps that are timed at every point, at least 2")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--images", type=Path, default=Path("docs/images"))
    parser.add_argument("--output", type=Path, help="write all figures to this JSON file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = CLOCKS[args.clock]
    record: dict[str, Any] = {"clock": args.clock, "threads": args.threads}
    if args.gpus:
        record["gpus"] = print_gpus()
    else:
        machine = calibrate(clock=clock)
        record["machine"] = asdict(machine)
        print(
            f"forward {machine.forward / 1e9:.0f} and backward {machine.backward / 1e9:.0f} GFLOP/s, "
            f"{machine.bandwidth / 1e9:.1f} GB/s, {1e6 * machine.overhead:.0f} us a layer call",
            flush=True,
        )
        record |= {"check": print_check(clock, machine)} if args.check else {"axes": print_growth(args, machine, clock)}
    if args.output:
        args.output.write_text(json.dumps(record, indent=1) + "\n")


def print_growth(args: argparse.Namespace, machine: Machine, clock: Callable[[], float]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for axis in args.axes:
        if axis == "stream":
            label, points = "stream minibatches", along_stream(machine, clock)
        else:
            label, points = AXES[axis][0], along(axis, max(2, args.rounds), machine, clock)
        draw(args.images / f"growth-{axis}.svg", label, points)
        slopes = {what: exponents(points, what) for what in ("seconds", "resident", "working")}
        found[axis] = {"points": [asdict(p) for p in points], "exponents": slopes}
        print(f"\n{label:>28}    seconds   quartiles        model/measured   resident MB   working MB  model/measured")
        for p in points:
            low, high = p.quartiles
            print(
                f"{p.x:28g}{p.seconds:11.4f}   {low:.4f} to {high:.4f}{p.predicted / p.seconds:11.2f}"
                f"{p.resident / 1e6:18.1f}{p.working / 1e6:13.1f}{p.expected / p.working:12.2f}"
            )
        told_ = ", ".join(f"{what} {all_:.2f} ({last:.2f})" for what, (all_, last) in slopes.items())
        print(f"    exponents over all points (over the last two): {told_}", flush=True)
    return found


def print_check(clock: Callable[[], float], machine: Machine) -> list[dict[str, Any]]:
    rows = []
    print(f"\n{'predicted':>10}{'measured':>10}   ratio   run")
    for name, predicted, measured in check(clock, machine):
        rows.append({"run": name, "predicted": predicted, "measured": measured})
        print(f"{predicted:9.1f}s{measured:9.1f}s{predicted / measured:8.2f}   {name}", flush=True)
    return rows


def print_gpus() -> list[dict[str, Any]]:
    rows = []
    print("An estimate: data sheets and an assumed utilisation; images are there, decoded, when they are wanted.")
    print(f"{'run':24}{'steps':>8}{'PFLOP':>9}{'GB resident':>13}" + "".join(f"{name:>12}" for name in GPUS))
    for method, benchmark in PAPER:
        settings = resolve_run(method, benchmark, 0, {})
        each = {name: estimate(settings, machine) for name, machine in GPUS.items()}
        one = next(iter(each.values()))
        hours = "".join(f"{e.seconds / 3600:10.1f} h" for e in each.values())
        print(f"{method + ' ' + benchmark:24}{one.steps:8}{one.flops / 1e15:9.1f}{one.memory / 1e9:13.1f}{hours}")
        rows.append({"run": f"{method} {benchmark}", **{name: asdict(e) for name, e in each.items()}})
    return rows


if __name__ == "__main__":
    main()
