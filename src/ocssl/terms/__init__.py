"""Extra losses beside the objective, one file each."""

from ocssl.terms.cassle import Cassle
from ocssl.terms.cla import ClaE, ClaR
from ocssl.terms.osiris import OsirisD, OsirisR
from ocssl.terms.overlap import Overlap
from ocssl.terms.pfr import Pfr
from ocssl.terms.pocon import Pocon
from ocssl.terms.scale import Scale
from ocssl.terms.sycon import Sycon
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
