"""Losses, gradients and weights that are not finite: a step is refused before any weight changes."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, isfinite

from ocssl.errors import NonFiniteLoss


class Guard:
    """Watches the steps of a stream minibatch without making a device wait for the program, or the program for it.

    `refused` is 1 from the first number on that is not finite: the optimizer then takes no step.
    Whether it is, `settle` asks once, at the end. On the CPU, where an answer costs nothing, it is asked at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.refused = torch.zeros((), device=device)
        self.at_once = device.type == "cpu"
        self._watched: list[tuple[Tensor, Callable[[], NonFiniteLoss]]] = []

    def watch_loss(self, loss: Tensor, losses: Tensor, ids: Tensor, steps: int) -> None:
        """Before step `steps` + 1: its loss, and the samples' losses [B] and ids [B]."""
        self._watch(loss.detach(), lambda: bad_loss(losses.detach(), ids, steps))

    def watch_gradient(self, weights: Iterable[Tensor], ids: Tensor, steps: int) -> None:
        """Before step `steps` + 1: the gradient of the weights. A finite loss may have one that is not."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        self._watch(_norm(gradients), lambda: bad_step("gradient", "no weight was changed", ids, steps))

    def watch_weights(self, weights: Iterable[Tensor], ids: Tensor, steps: int) -> None:
        """After step `steps` + 1: the weights that it made."""
        outcome = "the weights are lost: load the last save"
        self._watch(_norm(list(weights)), lambda: bad_step("result", outcome, ids, steps))

    def _watch(self, number: Tensor, error: Callable[[], NonFiniteLoss]) -> None:
        self.refused.copy_(torch.maximum(self.refused, (~isfinite(number)).to(self.refused)))
        self._watched.append((number, error))
        if self.at_once:
            self.settle()

    def settle(self) -> None:
        """Raise for the first refused step, if there was one; all is forgotten."""
        watched, self._watched = self._watched, []
        if watched and self.refused:
            self.refused.zero_()
            raise next(error() for number, error in watched if not isfinite(number))


def bad_loss(losses: Tensor, ids: Tensor, steps: int) -> NonFiniteLoss:
    """The error that names the samples whose losses [B] are not finite."""
    bad = ids[~isfinite(losses)].tolist()
    if not bad or len(bad) == len(ids):
        which, advice = "every sample of the batch", "the weights have diverged; try a lower optimizer.lr"
        bad = ids.tolist()
    else:
        which, advice = f"{len(bad)} of {len(ids)} samples (ids {_first(bad)})", "look at these images"
    return NonFiniteLoss(
        f"the loss of step {steps + 1} is not finite for {which}; no weight was changed: {advice}.", bad
    )


def bad_step(what: str, outcome: str, ids: Tensor, steps: int) -> NonFiniteLoss:
    """The error for a step whose loss was finite, and its gradient or the new weights are not."""
    found = ids.tolist()
    return NonFiniteLoss(
        f"the {what} of step {steps + 1} is not finite, though its loss is (sample ids {_first(found)}); {outcome}: "
        "try a lower optimizer.lr.",
        found,
    )


def _first(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:10])) + (", ..." if len(ids) > 10 else "")


@torch.no_grad()
def _norm(tensors: list[Tensor]) -> Tensor:
    """The sum of norms: finite only if every number is, and none is so large that its square is not."""
    return torch.stack(torch._foreach_norm(tensors)).sum()
