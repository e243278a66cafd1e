"""What a run costs: its work counted from the settings, the speed of a machine measured, the time predicted.

from ocssl.cost import calibrate, estimate
from ocssl.runs.config import resolve_run

estimate(resolve_run("solar", "cifar100", 0, {}), calibrate()).seconds
"""

from ocssl.cost.estimate import Estimate, estimate
from ocssl.cost.images import Images
from ocssl.cost.machine import GPUS, Machine, calibrate, gpu
from ocssl.cost.work import Load, about_bytes, minibatch_load, resident_bytes, run_load

__all__ = [
    "GPUS",
    "Estimate",
    "Images",
    "Load",
    "Machine",
    "about_bytes",
    "calibrate",
    "estimate",
    "gpu",
    "minibatch_load",
    "resident_bytes",
    "run_load",
]
