"""How stream and replayed rows become one batch: side by side, or mixed as in LUMP."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.memory import Replay
from ocssl.settings import ScheduleSettings


class Join:
    """Stream and replayed rows side by side, or, with `schedule.mix`, each stream row mixed with a replayed one."""

    def __init__(self, schedule: ScheduleSettings, generator: torch.Generator) -> None:
        self.schedule = schedule
        self.generator = generator

    def wanted(self, fresh: int, stored: int) -> int:
        """How many samples to draw beside so many stream rows from a memory of that size."""
        if self.schedule.mix:
            return fresh if stored >= fresh else 0
        wanted = self.schedule.batch - fresh
        waits = self.schedule.short == "wait" and fresh > 0 and stored <= wanted
        return 0 if waits else wanted

    def __call__(self, views: Tensor, fresh: int, replay: Replay) -> tuple[Tensor, Replay]:
        """Views [V, B, ...] of the batch, stream rows first, and the replay whose samples have rows of their own.

        A mixed row is neither of its two images, so nothing of it is written back to the replayed one's slot.
        """
        if not self.schedule.mix or not len(replay):
            return views, replay
        share = self._beta()
        return torch.lerp(views[:, fresh:], views[:, :fresh], share), replay.none()

    def _beta(self) -> float:
        """One draw from Beta(a, a): X / (X + Y) of two Gamma(a) numbers."""
        concentration = torch.full((2,), self.schedule.mix, dtype=torch.float64)
        first, second = torch._standard_gamma(concentration, generator=self.generator)
        return float(first / (first + second)) if first + second > 0 else 0.5
