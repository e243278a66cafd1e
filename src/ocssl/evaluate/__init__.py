"""How good a representation is: probes of its accuracy, and metrics of its latent space, from feature arrays alone."""

from ocssl._core.measures import measure
from ocssl.evaluate.label_free import centred_overlap, instance_at_1, lidar, rankme
from ocssl.evaluate.latent_metrics import alignment, deviation, spectrum, uniformity
from ocssl.evaluate.linear_classifiers import linear_probe, linear_probes
from ocssl.evaluate.overlap_metric import overlap, overlap_count, overlap_count_from, sample_angles
from ocssl.evaluate.per_task import TaskSummary, summarise
from ocssl.evaluate.probes import ProbeResult, Task, knn_probe, ridge_probe

__all__ = [
    "ProbeResult",
    "Task",
    "TaskSummary",
    "alignment",
    "centred_overlap",
    "deviation",
    "instance_at_1",
    "knn_probe",
    "lidar",
    "linear_probe",
    "linear_probes",
    "measure",
    "overlap",
    "overlap_count",
    "overlap_count_from",
    "rankme",
    "ridge_probe",
    "sample_angles",
    "spectrum",
    "summarise",
    "uniformity",
]
