"""How fast a machine is, by four numbers: measured on this one, or taken from a GPU's data sheet as an assumption."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import numpy as np

from ocssl.cost.passes import fill, noise
from ocssl.cost.shapes import shape_of
from ocssl.cost.work import Load, encode_load, minibatch_load
from ocssl.errors import DataError, unknown
from ocssl.learner import BLOCK, Learner

FORMAT = 1
RATES = ("forward", "backward", "bandwidth", "overhead")


@dataclass(frozen=True)
class Machine:
    """Seconds are work over rate, bytes over bandwidth, and a fixed time for each call of a layer, added up."""

    name: str
    forward: float  # floating-point operations a second, forwards
    backward: float  # backwards
    bandwidth: float  # bytes a second
    overhead: float  # seconds a layer call
    measured: bool = True  # False: from a data sheet and an assumed utilisation, so all it says is an estimate

    def seconds(self, load: Load) -> float:
        compute = load.forward / self.forward + load.backward / self.backward
        return compute + load.bytes / self.bandwidth + load.calls * self.overhead

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Machine:
        try:
            told = json.loads(path.read_text())
            forward, backward, bandwidth, overhead = (float(told[key]) for key in RATES)
            machine = cls(str(told["name"]), forward, backward, bandwidth, overhead, bool(told["measured"]))
        except OSError as error:
            raise DataError(f"cannot read the machine {path}: {error.strerror}.") from None
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{path} is not a machine that was measured here; measure it again.") from None
        if told.get("format") != FORMAT or not all(0 < getattr(machine, rate) < math.inf for rate in RATES):
            raise DataError(f"{path} is of another version or has rates that cannot be; measure the machine again.")
        return machine


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
    """A named GPU. What it says is an estimate."""
    if name not in GPUS:
        raise unknown("GPU", name, list(GPUS))
    return GPUS[name]


# ---- calibration ----------------------------------------------------------------------------------------------------

Clock = Callable[[], float]
ROUND, MOST_AGAIN = 0.3, 8  # seconds that a work takes in a round if so many repetitions are enough
# Width, pixels and batch: narrow and wide, small and large images, and so few rows that calls are all that counts.
SHAPES = ((8, 16, 96), (16, 16, 96), (16, 32, 96), (32, 16, 96), (48, 16, 64), (16, 16, 10))


@dataclass(frozen=True)
class Sample:
    """A piece of real work, and how long it took."""

    load: Load
    seconds: float


def calibrate(name: str = "this machine", rounds: int = 3, clock: Clock = time.perf_counter) -> Machine:
    """Measure this machine by real steps and encodings of a few networks, in turn; 10 to 25 seconds.

    The processor's own clock (`time.process_time`, with one thread) is for a machine that is busy with other things.
    """
    return fit(name, measure(rounds, clock))


def measure(rounds: int = 3, clock: Clock = time.perf_counter) -> list[Sample]:
    """What `calibrate` fits: the middle of the rounds for every piece of work, after one that warms up."""
    works: list[tuple[Load, Callable[[], object]]] = []
    for width, size, batch in SHAPES:
        works += _works(width, size, batch)
    times: list[list[float]] = [[] for _ in works]
    again = [1] * len(works)  # times that a work is done in a round: short ones often, for they are the noisiest
    for number in range(rounds + 1):
        for place, (_, work) in enumerate(works):
            spent = [_took(work, clock) for _ in range(again[place])]
            if number:
                times[place] += spent
            else:
                again[place] = min(MOST_AGAIN, max(1, int(ROUND / max(spent[0], 1e-6))))
    return [Sample(load, statistics.median(spent)) for (load, _), spent in zip(works, times, strict=True)]


def _took(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def _works(width: int, size: int, batch: int) -> list[tuple[Load, Callable[[], object]]]:
    """A step of FIFO replay, and as many images as `transform` encodes at a time."""
    wanted = {"encoder.width": width, "objective.projection": 512, "schedule.passes": 1, "schedule.batch": batch}
    learner = Learner("er-fifo", image_size=size, settings={**wanted, "memory.capacity": 400})
    fill(learner)
    stream, images = noise(10, size), noise(BLOCK, size)
    layers = shape_of(learner.settings, size).encoder().values()
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
