"""How fast a machine is, by four rates, and what a run costs on it.

The rates are measured on this machine, or assumed from the data sheet of a GPU.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch

from ocssl.cost.layers import fill, noise, shape_of
from ocssl.cost.work import (
    ImageCounts,
    Load,
    about_bytes,
    encode_load,
    minibatch_load,
    optimizer_steps,
    resident_bytes,
    run_load,
)
from ocssl.errors import unknown
from ocssl.learner import BLOCK, Learner
from ocssl.runs.config import RunSettings


@dataclass(frozen=True)
class Machine:
    """Seconds are work over rate, bytes over bandwidth, and a fixed time for each call of a layer, added up."""

    name: str
    forward: float  # floating-point operations a second, forwards
    backward: float  # backwards
    bandwidth: float  # bytes a second
    overhead: float  # seconds a layer call
    measured: bool = True  # False: assumed, from a data sheet and a usual utilisation

    def seconds(self, load: Load) -> float:
        compute = load.forward / self.forward + load.backward / self.backward
        return compute + load.bytes / self.bandwidth + load.calls * self.overhead


@dataclass(frozen=True)
class Estimate:
    """The cost of a run: all but the seconds is counted, not measured."""

    machine: str
    measured: bool  # whether the machine's rates were measured; if not, the seconds rest on an assumed utilisation
    steps: int  # of the optimizer
    flops: float
    bytes: float  # moved
    memory: float  # bytes resident at most, without the interpreter and PyTorch themselves
    seconds: float
    parts: dict[str, float]  # seconds of training, encoding, probe, latent and saving


def estimate(settings: RunSettings, machine: Machine, images: ImageCounts | None = None) -> Estimate:
    """Predict a run with all its evaluations; start-up, reading and decoding of images are not in it.

    Without `images` the benchmark must be one whose size is known before it is read.
    """
    images = images or ImageCounts.expected(settings)
    loads = run_load(settings, images)
    parts = {name: machine.seconds(load) for name, load in loads.items()}
    return Estimate(
        machine=machine.name,
        measured=machine.measured,
        steps=optimizer_steps(settings, images),
        flops=sum(load.flops for load in loads.values()),
        bytes=sum(load.bytes for load in loads.values()),
        memory=sum(resident_bytes(settings, images).values()),
        seconds=sum(parts.values()),
        parts=parts,
    )


# ---- GPUs -----------------------------------------------------------------------------------------------------------

UTILISATION = 0.35  # of the peak that training is assumed to reach, and
REACHED = 0.6  # of the bandwidth; both are assumptions: nothing was measured on these
LAUNCH = 60e-6  # seconds a layer with its norm, activation and their kernels takes to launch: assumed, too
# Peak of dense float32 convolutions (TF32 where PyTorch uses it by default) and bandwidth, by the vendor's data sheets.
_SHEETS = {
    "v100": (15.7e12, 0.900e12),  # SXM2; float32, it has no TF32
    "rtx3090": (35.6e12, 0.936e12),
    "a100-40gb": (156e12, 1.555e12),
    "rtx4090": (82.6e12, 1.008e12),
    "h100": (495e12, 3.35e12),  # SXM
}
GPUS: Mapping[str, Machine] = {
    name: Machine(name, UTILISATION * peak, UTILISATION * peak, REACHED * wide, LAUNCH, measured=False)
    for name, (peak, wide) in _SHEETS.items()
}


def gpu(name: str) -> Machine:
    """A named GPU, its rates assumed."""
    if name not in GPUS:
        raise unknown("GPU", name, list(GPUS))
    return GPUS[name]


# ---- presets --------------------------------------------------------------------------------------------------------


def fitting_preset(settings: RunSettings, device: str) -> str:
    """gpu on a CUDA device that holds a run with these settings, and cpu anywhere else."""
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return "cpu"
    free, _ = torch.cuda.mem_get_info()
    return "gpu" if about_bytes(settings, ImageCounts((), 0, 0, 0, 0)) < free else "cpu"


# ---- calibration ----------------------------------------------------------------------------------------------------

Clock = Callable[[], float]
ROUND, MOST_REPEATS = 0.3, 8  # seconds that a short workload is repeated for in a round, and how often at most
# Width, pixels and batch: narrow and wide, small and large images, and so few rows that calls are all that counts.
QUICK_SHAPES = ((16, 32, 48), (32, 32, 16), (16, 16, 10))
SHAPES = ((8, 16, 96), (16, 16, 96), (16, 32, 96), (32, 16, 96), (48, 16, 64), (16, 16, 10))


@dataclass(frozen=True)
class Sample:
    """A piece of real work, and how long it took."""

    load: Load
    seconds: float


def calibrate(
    name: str = "this machine",
    rounds: int = 3,
    clock: Clock = time.perf_counter,
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
) -> Machine:
    """Measure this machine by real steps and encodings of a few networks, in turn; 10 to 25 seconds.

    With `QUICK_SHAPES` and one round it takes 3 to 5 seconds, for a rough figure.

    On a busy machine use the processor's clock (`time.process_time`) and one thread.
    """
    return fit(name, measure(rounds, clock, shapes))


def measure(rounds: int, clock: Clock, shapes: Sequence[tuple[int, int, int]]) -> list[Sample]:
    """What `calibrate` fits: the median of the rounds for every workload, after one that warms up."""
    workloads = [workload for shape in shapes for workload in _workloads(*shape)]
    times: list[list[float]] = [[] for _ in workloads]
    repeats = [1] * len(workloads)  # in a round: short workloads are the noisiest
    for number in range(rounds + 1):
        for place, (_, work) in enumerate(workloads):
            spent = [_seconds(work, clock) for _ in range(repeats[place])]
            if number:
                times[place] += spent
            else:
                repeats[place] = min(MOST_REPEATS, max(1, int(ROUND / max(spent[0], 1e-6))))
    return [Sample(load, statistics.median(spent)) for (load, _), spent in zip(workloads, times, strict=True)]


def _seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def _workloads(width: int, size: int, batch: int) -> list[tuple[Load, Callable[[], object]]]:
    """A step of FIFO replay, and as many images as `transform` encodes at a time."""
    wanted = {"encoder.width": width, "objective.projection": 512, "schedule.passes": 1, "schedule.batch": batch}
    learner = Learner("er-fifo", image_size=size, settings={**wanted, "memory.capacity": 400})
    fill(learner)
    stream, images = noise(10, size), noise(BLOCK, size)
    layers = shape_of(learner.settings, size).part("encoder")
    return [
        (minibatch_load(learner.settings, size), lambda: learner.partial_fit(stream)),
        (encode_load(layers, BLOCK, BLOCK), lambda: learner.transform(images)),
    ]


def fit(name: str, samples: Sequence[Sample]) -> Machine:
    """The four rates, none negative, whose relative errors on the samples have the smallest squares.

    Every choice of terms that may be zero is tried: there are fifteen.
    """
    wanted = np.array([sample.seconds for sample in samples])
    terms = np.array([astuple(sample.load) for sample in samples]) / wanted[:, None]  # [n, 4], times costs: near 1
    scale = terms.max(axis=0)
    best, least = np.zeros(4), np.inf
    for chosen in itertools.chain.from_iterable(itertools.combinations(range(4), k) for k in range(1, 5)):
        costs = np.zeros(4)
        costs[list(chosen)] = np.linalg.lstsq(terms[:, chosen] / scale[list(chosen)], np.ones(len(wanted)))[0]
        error = float(np.square(terms / scale @ costs - 1).sum())
        if (costs >= 0).all() and error < least:
            best, least = costs, error
    forward, backward, moved, call = (float(cost) for cost in np.maximum(best, 1e-9) / scale)
    return Machine(name, 1 / forward, 1 / backward, 1 / moved, call)
