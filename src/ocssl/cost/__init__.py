"""What a run costs: its work counted from the settings, the speed of a machine measured, the time predicted.

from ocssl.cost import calibrate, estimate
from ocssl.runs.config import resolve_run

estimate(resolve_run("solar", "cifar100", 0, {}), calibrate()).seconds
"""

from ocssl.cost.disk import most_bytes
from ocssl.cost.machine import GPUS, QUICK_SHAPES, Estimate, Machine, calibrate, estimate, fitting_preset, gpu
from ocssl.cost.work import ImageCounts, Load, about_bytes, minibatch_load, optimizer_steps, resident_bytes, run_load

__all__ = [
    "GPUS",
    "QUICK_SHAPES",
    "Estimate",
    "ImageCounts",
    "Load",
    "Machine",
    "about_bytes",
    "calibrate",
    "estimate",
    "fitting_preset",
    "gpu",
    "minibatch_load",
    "most_bytes",
    "optimizer_steps",
    "resident_bytes",
    "run_load",
]
