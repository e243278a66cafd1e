"""DINO (Caron et al., 2021): each view predicts the prototypes that a momentum network gives another global view."""

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl._core.random import frozen_statistics
from ocssl.objectives.objective import OBJECTIVES, Objective, Output
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Positive, Share, Size

Steps = Annotated[int, Field(ge=0)]
BOTTLENECK = 256  # at most, where the option is not set


def teacher_shares(scores: Tensor, center: Tensor, temperature: float | Tensor) -> Tensor:
    """Softmax of centred (less the centre) and sharpened (by a low temperature) scores, no gradient: [..., K]."""
    return torch.softmax((scores.detach().float() - center.float()) / temperature, dim=-1)


def dino_loss(shares: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy over pairs of a teacher's view g and another view v of the student: -> [B].

    `shares` [G, B, K] are the teacher's of G global views; `scores` [V, B, K] the student's, whose first G views are
    the same ones: pairs of a view with itself do not count.
    """
    logs = torch.log_softmax(scores.float() / temperature, dim=-1)
    with torch.autocast(scores.device.type, enabled=False):
        entropies = -torch.einsum("gbk,vbk->bgv", shares, logs)
    other = 1 - torch.eye(len(shares), len(scores), dtype=entropies.dtype, device=scores.device)  # [G, V]
    return (entropies * other).sum((1, 2)) / other.sum()


class Prototypes(nn.Linear):
    """Cosines with K directions: weight normalisation whose lengths stay at 1. [..., D] -> [..., K]."""

    def __init__(self, inputs: int, prototypes: int) -> None:
        super().__init__(inputs, prototypes, bias=False)

    def forward(self, input: Tensor, frozen: Tensor | None = None) -> Tensor:
        weight = self.weight if frozen is None else torch.where(frozen, self.weight.detach(), self.weight)
        return F.linear(unit(input), unit(weight))


class Head(nn.Module):
    """Three layers with GELU down to a bottleneck, which is normalised, then the prototypes. No batch norm."""

    def __init__(self, inputs: int, hidden: int, bottleneck: int, prototypes: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, bottleneck),
        )
        self.prototypes = Prototypes(bottleneck, prototypes)

    def forward(self, features: Tensor, frozen: Tensor | None = None) -> Tensor:
        scores: Tensor = self.prototypes(self.mlp(features), frozen)
        return scores


@OBJECTIVES.add("dino")
class DINO(Objective):
    """DINO: each view predicts the prototypes that a momentum (EMA) network assigns to another view. Exact per sample.

    `objective.projection` is the number of prototypes. The copy sees the two global views, in train mode; local views
    (`views.local`) are the student's alone, and leave batch norm's running statistics as they are. Centring keeps one
    prototype from winning everywhere, a teacher's temperature below the student's keeps shares from becoming equal.
    Centre, copy and step count move after each step. The encoder that is evaluated is the trained one.
    """

    shardable = True
    takes_local = True
    center: Tensor  # [K] running mean of the copy's scores
    steps: Tensor  # scalar: optimizer steps so far

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        momentum: Share = 0.996,  # of the momentum network: 1 never moves
        center_momentum: Share = 0.9,  # of the centre: 1 keeps it at 0, which is no centring
        temperature: Positive = 0.1,  # of the student
        teacher_temperature: Positive = 0.04,
        start_temperature: Positive | None = None,  # of the teacher, before it is warmed up; None: the same
        warmup: Steps = 0,  # steps in which the teacher's temperature moves from its start
        freeze: Steps = 0,  # steps in which the prototypes keep their directions
        hidden: Size | None = None,  # of the projector; None: as wide as the features
        bottleneck: Size | None = None,  # before the prototypes; None: as wide as the features, at most 256
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.momentum, self.center_momentum, self.temperature = momentum, center_momentum, temperature
        self.teacher_temperature, self.warmup, self.freeze = teacher_temperature, warmup, freeze
        self.start_temperature = teacher_temperature if start_temperature is None else start_temperature
        self.projector = Head(dimension, hidden or dimension, bottleneck or min(BOTTLENECK, dimension), projection)
        self.target = Teacher(self, live=True)
        self.register_buffer("center", torch.zeros(projection))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._pending: Tensor | None = None  # [K + 1]: sum and number of the copy's scores in the last forward pass

    def forward(self, views: Tensor, local: Tensor | None = None) -> Output:
        frozen = self.steps < self.freeze if self.freeze else None
        features = [self.encode(view) for view in views]
        projected = [self.projector(e, frozen) for e in features]
        scores = list(projected)
        if local is not None:
            with frozen_statistics(self.encoder):
                scores += [self.projector(self.encode(view), frozen) for view in local]
        taught = self.target(views)
        shares = teacher_shares(taught, self.center, self.current_temperature())
        loss = dino_loss(shares, torch.stack(scores), self.temperature)
        rows = taught.flatten(0, 1)
        self._pending = torch.cat([rows.sum(0), rows.new_full([1], len(rows))])
        return Output(loss, torch.stack(features), torch.stack(projected))

    def current_temperature(self) -> float | Tensor:
        """The teacher's in the next step: a straight line from the start to the end of the warm-up."""
        if not self.warmup:
            return self.teacher_temperature
        done = (self.steps / self.warmup).clamp_max(1)
        return self.start_temperature + done * (self.teacher_temperature - self.start_temperature)

    def begin(self) -> None:
        self.target.take(self)

    @torch.no_grad()
    def after_step(self) -> None:
        if self._pending is not None:
            together, self._pending = self.ranks.sum(self._pending), None
            self.center.lerp_(together[:-1] / together[-1], 1 - self.center_momentum)
        self.steps += 1
        self.target.follow(self, self.momentum)

    def distance(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy with the shares of constant targets, centred and sharpened as the teacher's are."""
        shares = teacher_shares(targets, self.center, self.current_temperature())
        return -(shares * torch.log_softmax(predictions.float() / self.temperature, dim=-1)).sum(-1).mean()
