"""Extra losses beside the objective, one class each."""

from ocssl.terms.cla import ClaE, ClaR
from ocssl.terms.distillation import Cassle, Pfr, Sycon
from ocssl.terms.osiris import OsirisD, OsirisR
from ocssl.terms.overlap import Overlap
from ocssl.terms.pocon import Pocon
from ocssl.terms.scale import Scale
from ocssl.terms.term import TERMS, Penalty, Step, Term

__all__ = [
    "TERMS",
    "Cassle",
    "ClaE",
    "ClaR",
    "OsirisD",
    "OsirisR",
    "Overlap",
    "Penalty",
    "Pfr",
    "Pocon",
    "Scale",
    "Step",
    "Sycon",
    "Term",
]
