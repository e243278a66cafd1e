"""Self-supervised objectives, one file each."""

from ocssl.objectives.barlow import BarlowTwins
from ocssl.objectives.byol import BYOL
from ocssl.objectives.contrastive import SimCLR
from ocssl.objectives.dino import DINO
from ocssl.objectives.moco import MoCo
from ocssl.objectives.objective import OBJECTIVES, NoObjective, Objective, Output
from ocssl.objectives.patches import CMP, EMPSSL
from ocssl.objectives.simsiam import SimSiam
from ocssl.objectives.vicreg import VICReg

__all__ = [
    "BYOL",
    "CMP",
    "DINO",
    "EMPSSL",
    "OBJECTIVES",
    "BarlowTwins",
    "MoCo",
    "NoObjective",
    "Objective",
    "Output",
    "SimCLR",
    "SimSiam",
    "VICReg",
]
