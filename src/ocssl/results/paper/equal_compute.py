"""Equal compute: how many passes each method may take, so that all do the same work in the encoder.

A method that sends more rows through the encoder or a copy of it in a pass, such as a teacher's, pays with fewer
passes; one with smaller batches has more. Rows are counted by `ocssl.cost` for one stream minibatch with a full memory.
"""

from __future__ import annotations

from ocssl.cost.layers import REST, passes_of
from ocssl.runs.config import RunSettings

SPARE = 0.02  # by how much of the reference's work a method may exceed it
_counted: dict[str, float] = {}  # work by settings of the learner: runs of a plan share most of them


def work(settings: RunSettings) -> float:
    """Rows through the encoder and its copies in one stream minibatch, all its passes.

    A row backwards counts twice, once for weights and once for inputs: each takes as long as one forwards.
    """
    learner = settings.learner()
    key = learner.model_dump_json()
    if key not in _counted:
        passes = passes_of(learner)
        rows = [*passes.forward.items(), *passes.backward.items()]
        _counted[key] = float(sum(count for name, count in rows if name.endswith(f".{REST}")))
    return _counted[key]


def with_passes(settings: RunSettings, passes: int) -> RunSettings:
    """The same run with this number of passes over each stream minibatch."""
    return settings.model_copy(update={"schedule": settings.schedule.model_copy(update={"passes": passes})})


def equal_passes(settings: RunSettings, budget: float) -> int:
    """The most passes whose work is not above the budget by more than 2 %, and at least one."""
    one, two = (work(with_passes(settings, passes)) for passes in (1, 2))
    return max(1, 1 + int((budget * (1 + SPARE) - one) // (two - one)))  # all passes after the first are alike
