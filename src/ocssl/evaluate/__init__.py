"""How good a representation is: probes of its accuracy, and metrics of its latent space, from feature arrays alone."""

from ocssl.evaluate.latent import (
    deviation,
    overlap,
    overlap_count,
    overlap_count_from,
    sample_angles,
    spectrum,
    uniformity,
)
from ocssl.evaluate.probes import ProbeResult, knn_probe, linear_probe, ridge_probe

__all__ = [
    "ProbeResult",
    "deviation",
    "knn_probe",
    "linear_probe",
    "overlap",
    "overlap_count",
    "overlap_count_from",
    "ridge_probe",
    "sample_angles",
    "spectrum",
    "uniformity",
]
