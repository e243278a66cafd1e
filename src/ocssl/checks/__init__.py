"""Contract checks for parts of your own: each runs a part as the learner would and says what it does wrong.

>>> from ocssl.checks import check_keep
>>> check_keep("fifo")

A part is given as a registered name, a class, or any function that makes one. Every check makes it several times, as a
learner that is loaded from disk makes new parts too: what a rule needs to remember belongs in the store, what an
objective or a term remembers in its `state_dict`.
"""

from ocssl.checks.contract import ContractError, check_stream
from ocssl.checks.encoders import check_encoder
from ocssl.checks.losses import check_objective, check_term
from ocssl.checks.rules import check_draw, check_keep

__all__ = [
    "ContractError",
    "check_draw",
    "check_encoder",
    "check_keep",
    "check_objective",
    "check_stream",
    "check_term",
]
