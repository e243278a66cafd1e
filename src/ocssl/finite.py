"""What to say of a loss that is not finite."""

from __future__ import annotations

from torch import Tensor, isfinite

from ocssl.errors import NonFiniteLoss


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
