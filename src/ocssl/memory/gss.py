"""GSS-greedy (Aljundi et al., 2019): the memory keeps samples whose gradients point in different directions."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.errors import OcsslError
from ocssl.memory.draw import first_to_finish
from ocssl.memory.keep import KEEPS, Keep
from ocssl.memory.store import REFUSED, Context, Store
from ocssl.settings import Size

FIRST = 0.1  # score of samples that meet an empty memory
TINY = 1e-12  # keeps probabilities defined where all scores are equal or -1


@KEEPS.add("gss")
@dataclass(kw_only=True)
class Gss(Keep):
    """Admits a minibatch whose gradient opposes those of stored samples; similar stored samples are evicted first.

    A sample's score is the highest cosine of its gradient with those of some random parts of the memory, as measured
    when it arrives. A full memory refuses a minibatch whose own score is not below the threshold.
    """

    subsets: Size = 10
    subset_size: Size = 10
    threshold: float = 0.0
    asks = True

    def columns(self, capacity: int) -> dict[str, int]:
        return {"score": 0}

    def annotate(
        self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator, context: Context | None
    ) -> dict[str, Tensor]:
        if context is None:
            raise OcsslError("keep rule 'gss' asks the learner for gradients: Memory.insert needs a context.")
        images = arriving["image"]
        if not len(store):
            score = torch.full((len(images),), FIRST, device=images.device)
            return {"score": score, "novel": torch.ones_like(score, dtype=torch.bool)}
        parts = self._parts(len(store), generator).to(images.device)
        rows = context.gradients([*store["image"][parts], *images.split(1)])
        score, whole = similarities(rows, len(parts))
        return {"score": score, "novel": (whole < self.threshold).expand(len(images))}

    def _parts(self, stored: int, generator: torch.Generator) -> Tensor:
        """Random parts of the memory that have no slot in common: [subsets, subset_size], fewer in a small memory."""
        size = min(self.subset_size, stored)
        count = min(self.subsets, stored // size)
        return torch.randperm(stored, generator=generator)[: count * size].view(count, size)

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        score = arriving["score"]
        slots = torch.full((len(score),), REFUSED, dtype=torch.int64, device=score.device)
        if not arriving["novel"].all():
            return slots
        n = min(len(score), store.capacity)  # of a batch that is larger than the memory the last ones have a chance
        logits = store.scratch(0).copy_(store["score"])
        logits.sub_(logits.min().clone()).add_(TINY).log_()
        candidates = first_to_finish(store, logits, n, generator)
        old, new = store["score"][candidates].double() + 1 + TINY, score[len(score) - n :].double() + 1 + TINY
        chance = torch.rand(n, generator=generator, dtype=torch.float64).to(old.device)
        slots[len(score) - n :] = torch.where(chance * (old + new) < old, candidates, REFUSED)
        return slots


def similarities(rows: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Highest cosine with the first `parts` gradients, of each of the others [n] and of their mean."""
    products = rows @ rows.T  # gradients are long: all cosines come from their products
    across, own = products[parts:, :parts], products[parts:, parts:]
    length = products.diagonal()[:parts].sqrt()
    lengths = own.diagonal().sqrt()
    score = _divide(_divide(across, lengths[:, None]), length).amax(1)
    whole = _divide(_divide(across.mean(0), own.mean().clamp_min(0).sqrt()), length).amax()
    return score.clamp(-1, 1), whole


def _divide(a: Tensor, length: Tensor) -> Tensor:
    """a / length, 0 for a gradient of length 0."""
    return a / torch.where(length > 0, length, torch.inf)
