"""How good a representation is: probes of its accuracy, and metrics of its latent space, from feature arrays alone."""

from ocssl.evaluate.latent import (
    alignment,
    deviation,
    overlap,
    overlap_count,
    overlap_count_from,
    sample_angles,
    spectrum,
    uniformity,
)
from ocssl.evaluate.linear import Task, linear_probe, linear_probes
from ocssl.evaluate.per_task import TaskSummary, summarise
from ocssl.evaluate.probe_data import ProbeResult
from ocssl.evaluate.probes import knn_probe, ridge_probe

__all__ = [
    "ProbeResult",
    "Task",
    "TaskSummary",
    "alignment",
    "deviation",
    "knn_probe",
    "linear_probe",
    "linear_probes",
    "overlap",
    "overlap_count",
    "overlap_count_from",
    "ridge_probe",
    "sample_angles",
    "spectrum",
    "summarise",
    "uniformity",
]
