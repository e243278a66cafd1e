"""Extra losses beside the objective, one file each."""

from ocssl.terms.overlap import Overlap
from ocssl.terms.term import TERMS, Penalty, Step, Term

__all__ = ["TERMS", "Overlap", "Penalty", "Step", "Term"]
