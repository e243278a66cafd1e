"""Self-supervised objectives, one file each."""

from ocssl.objectives.objective import OBJECTIVES, Objective, Output
from ocssl.objectives.simsiam import SimSiam

__all__ = ["OBJECTIVES", "Objective", "Output", "SimSiam"]
