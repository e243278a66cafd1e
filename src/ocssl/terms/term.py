"""The base class of terms, what they see and return, and their registry."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from ocssl._core.registry import Registry
from ocssl.memory import Memory, Replay
from ocssl.objectives import Objective, Output
from ocssl.objectives.sample_statistics import SampleStatistics


@dataclass(frozen=True)
class Step:
    """All that one optimizer step is made of. Rows of a batch are the stream's first, then the replayed ones."""

    number: int  # of the pass over this stream minibatch, from 0
    fresh: int  # how many rows are the stream's
    views: Tensor  # [V, B, 3, H, W] what the network saw
    replay: Replay  # the other rows: samples drawn from the memory
    out: Output  # what the objective made of the views
    measured: SampleStatistics  # and what was measured on every sample
    objective: Objective
    memory: Memory


@dataclass(frozen=True)
class Penalty:
    """A term's loss, unweighted, and what it wants to show."""

    loss: Tensor  # scalar
    signals: dict[str, Tensor] = field(default_factory=dict)  # detached scalars, the same names in every step


class Term(nn.Module):
    """An extra loss. It reads the step and changes nothing but itself; its own networks are trained with the rest.

    A subclass takes the objective, for the sizes of its spaces, and its options as keyword-only arguments, `weight`
    among them; weight 0 turns a term off. It defines `forward`.
    """

    needs: ClassVar[frozenset[str]] = frozenset()  # columns of the memory that it reads
    boundaries: ClassVar[bool] = False  # whether it must know where an experience ends
    replaces_objective: ClassVar[bool] = False  # whether it is a method's whole loss, beside an objective of weight 0
    shardable: ClassVar[bool] = False  # whether each rank's rows, or near it, give the loss of the whole batch
    rows: frozenset[str] = frozenset()  # "stream", "replay": rows of a batch without which it is nothing
    pairs: ClassVar[bool] = False  # whether it works with two views only

    def __init__(self, objective: Objective, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, step: Step) -> Penalty:
        raise TypeError(f"{type(self).__name__} does not define forward")

    def begin(self, objective: Objective) -> None:
        """Called once, when the initial weights are there."""

    def after_step(self, objective: Objective) -> None:
        """Called after every optimizer step."""

    def boundary(self, objective: Objective) -> None:
        """Called between two experiences, if the recipe says `schedule.boundaries`; may set the objective's weights."""

    def evaluated(self) -> nn.Module | None:
        """The encoder that is evaluated and kept, if it is this term's and not the objective's."""
        return None


TERMS: Registry[Term] = Registry("term")
