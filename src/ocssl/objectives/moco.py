"""MoCo v2 (Chen et al., 2020): each view finds a momentum network's key of the other among the keys of a queue."""

import torch
from torch import Tensor, nn

from ocssl._core.angles import unit
from ocssl.objectives.contrastive import contrast, contrastive_distance, others
from ocssl.objectives.objective import OBJECTIVES, Objective, Output, projector
from ocssl.objectives.teachers import Teacher
from ocssl.settings import Positive, Share, Size


def moco_loss(query: Tensor, key: Tensor, queue: Tensor, enqueued: Tensor, temperature: float) -> Tensor:
    """-log softmax of a query's own key among that key and the queue's: unit [B, P] x 2, [n, P] -> [B].

    Of the queue the first `enqueued` rows count. While there are none, the keys of the other samples take their place.
    """
    batch, device = len(query), query.device
    with torch.autocast(device.type, enabled=False):
        logits = query @ torch.cat([key, queue]).T / temperature  # [B, B + n]
    filled = (torch.arange(len(queue), device=device) < enqueued).expand(batch, -1)
    negatives = torch.cat([others(batch, device) & (enqueued == 0), filled], dim=1)
    own = torch.eye(batch, batch + len(queue), dtype=torch.bool, device=device)
    return contrast(logits, own, negatives)


@OBJECTIVES.add("moco")
class MoCo(Objective):
    """MoCo: finds the second view among queued keys of a momentum (EMA) network. Loss exact per sample.

    Keys enter the queue, and the copy moves towards the network, after every step. The queue starts empty: only keys
    that were put in count, and in the very first step the other samples' keys stand in for them. With `symmetric` the
    views also change roles and both views' keys are queued. Without, the network still encodes both views, since the
    memory's statistics need both. A sample that is replayed again soon meets its own older keys as negatives.
    """

    queue: Tensor  # [n, P] unit keys
    enqueued: Tensor  # scalar: keys put in so far; the next one's row is this modulo n

    def __init__(
        self,
        encoder: nn.Module,
        dimension: int,
        projection: int,
        *,
        momentum: Share = 0.999,  # of the momentum network: 1 never moves
        queue: Size = 2000,  # keys
        temperature: Positive = 0.07,
        symmetric: bool = False,
        hidden: Size | None = None,  # of the projector; None: as wide as the features
    ) -> None:
        super().__init__(encoder, dimension, projection)
        self.momentum, self.temperature, self.symmetric = momentum, temperature, symmetric
        self.projector = projector(dimension, hidden or dimension, projection)
        self.target = Teacher(self, live=True)
        self.register_buffer("queue", torch.zeros(queue, projection))
        self.register_buffer("enqueued", torch.zeros((), dtype=torch.int64))
        self._pending: Tensor | None = None  # keys of the last forward pass

    def forward(self, views: Tensor) -> Output:
        features = [self.encode(view) for view in views]
        projected = [self.projector(e) for e in features]
        queries = [unit(z.float()) for z in projected]
        keys = unit(self.target(views if self.symmetric else views[1:]).float())  # of both views, or of the second
        loss = self._loss(queries[0], keys[-1])
        if self.symmetric:
            loss = (loss + self._loss(queries[1], keys[0])) / 2
        self._pending = keys.flatten(0, 1)
        return Output(loss, torch.stack(features), torch.stack(projected))

    def _loss(self, query: Tensor, key: Tensor) -> Tensor:
        return moco_loss(query, key, self.queue, self.enqueued, self.temperature)

    def begin(self) -> None:
        self.target.take(self)

    @torch.no_grad()
    def after_step(self) -> None:
        if self._pending is not None:
            keys, self._pending = self._pending[-len(self.queue) :], None
            rows = (self.enqueued + torch.arange(len(keys), device=keys.device)) % len(self.queue)
            self.queue[rows] = keys
            self.enqueued += len(keys)
        self.target.follow(self, self.momentum)

    def distance(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return contrastive_distance(predictions.flatten(0, 1), targets.flatten(0, 1))
