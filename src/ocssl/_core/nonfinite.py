"""Losses that are not finite: refused before any weight changes."""

from __future__ import annotations

import torch
from torch import Tensor, isfinite

from ocssl.errors import NonFiniteLoss


class Guard:
    """Watches the losses of a stream minibatch without making a device wait for the program, or the program for it.

    `refused` is 1 from the first loss on that is not finite: the optimizer then takes no step.
    Whether it is, `settle` asks once, at the end. On the CPU, where an answer costs nothing, it is asked at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.refused = torch.zeros((), device=device)
        self.at_once = device.type == "cpu"
        self._watched: list[tuple[Tensor, Tensor, Tensor, int]] = []

    def watch(self, loss: Tensor, losses: Tensor, ids: Tensor, steps: int) -> None:
        """Before step `steps` + 1: its loss, and the samples' losses [B] and ids [B]."""
        self.refused.copy_(torch.maximum(self.refused, (~isfinite(loss.detach())).to(self.refused)))
        self._watched.append((loss.detach(), losses.detach(), ids, steps))
        if self.at_once:
            self.settle()

    def settle(self) -> None:
        """Raise for the first refused step, if there was one; all is forgotten."""
        watched, self._watched = self._watched, []
        if watched and self.refused:
            self.refused.zero_()
            raise next(non_finite(losses, ids, steps) for loss, losses, ids, steps in watched if not isfinite(loss))


def non_finite(losses: Tensor, ids: Tensor, steps: int) -> NonFiniteLoss:
    """The error that names the samples whose losses [B] are not finite."""
    bad = ids[~isfinite(losses)].tolist()
    if not bad or len(bad) == len(ids):
        which, advice = "every sample of the batch", "the weights have diverged; try a lower optimizer.lr"
        bad = ids.tolist()
    else:
        shown = ", ".join(map(str, bad[:10])) + (", ..." if len(bad) > 10 else "")
        which, advice = f"{len(bad)} of {len(ids)} samples (ids {shown})", "look at these images"
    return NonFiniteLoss(
        f"the loss of step {steps + 1} is not finite for {which}; no weight was changed: {advice}.", bad
    )
