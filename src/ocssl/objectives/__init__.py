"""Self-supervised objectives, one file each."""

from ocssl.objectives.nothing import Nothing
from ocssl.objectives.objective import OBJECTIVES, Objective, Output
from ocssl.objectives.simsiam import SimSiam

__all__ = ["OBJECTIVES", "Nothing", "Objective", "Output", "SimSiam"]
