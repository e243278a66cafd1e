"""What a run will cost before it is started: for dry runs."""

from __future__ import annotations

from dataclasses import dataclass

from ocssl.cost.images import Images
from ocssl.cost.machine import Machine
from ocssl.cost.passes import passes_of
from ocssl.cost.work import resident_bytes, run_load
from ocssl.runs.config import RunSettings


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


def estimate(settings: RunSettings, machine: Machine, images: Images | None = None) -> Estimate:
    """Predict a run with all its evaluations; start-up, reading and decoding of images are not in it.

    Without `images` the benchmark must be one whose size is known before it is read.
    """
    images = images or Images.expected(settings)
    loads = run_load(settings, images)
    parts = {name: machine.seconds(load) for name, load in loads.items()}
    ends = images.minibatches(settings)
    return Estimate(
        machine=machine.name,
        measured=machine.measured,
        steps=passes_of(settings.learner()).steps * (ends[-1] if ends else 0),
        flops=sum(load.flops for load in loads.values()),
        bytes=sum(load.bytes for load in loads.values()),
        memory=sum(resident_bytes(settings, images).values()),
        seconds=sum(parts.values()),
        parts=parts,
    )
