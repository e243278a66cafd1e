"""MinRed (Purushwalkam et al., 2022): the memory keeps what is least redundant."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ocssl._core.angles import unit
from ocssl.memory.keep import KEEPS, Keep, lowest
from ocssl.memory.store import REFUSED, Context, Store

SELF = -2.0  # on the diagonal: lower than any cosine, so that no sample is its own neighbour


@KEEPS.add("minred")
class MinRed(Keep):
    """Accepts every sample; for each, evicts the older of the two stored samples with the closest projections.

    Cosines of all pairs of slots are stored, M x M numbers, and brought up to date for changed slots only. Pairs whose
    cosines differ by less than float32 resolves, about 1e-6, may go in either order.
    """

    needs = frozenset({"born", "projected"})

    def columns(self, capacity: int) -> dict[str, int]:
        return {"similarity": capacity}

    def annotate(
        self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator, context: Context | None
    ) -> dict[str, Tensor]:
        return {"first": arriving["born"][:1].expand(len(arriving["born"]))}  # of those that arrive together

    def place(self, store: Store, arriving: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        n, born = len(arriving["born"]), store["born"]
        kept = min(n, store.capacity)
        slots = torch.full((n,), REFUSED, dtype=torch.int64, device=born.device)
        slots[n - kept :] = closest(store["similarity"], born, kept, spared=born >= arriving["first"][0])
        return slots

    def note(self, store: Store, slots: Tensor) -> None:
        slots = slots[slots != REFUSED]
        if not len(slots):
            return
        vectors = store["projected"]
        length = vectors.norm(dim=1)
        cosines = unit(vectors[slots]) @ vectors.T / torch.where(length > 1e-12, length, torch.inf)
        among = cosines[:, slots]
        cosines[:, slots] = (among + among.T) / 2  # exactly symmetric
        similarity = store["similarity"][:, : len(store)]
        similarity[slots] = cosines
        similarity[:, slots] = cosines.T
        similarity[slots, slots] = SELF


def closest(similarity: Tensor, born: Tensor, n: int, spared: Tensor | None = None) -> Tensor:
    """n slots, one after another the older of the closest pair that is left; of equally close ones the oldest slot.

    `spared` slots neither go nor count as neighbours, unless there are not enough others: then the oldest go.
    Row maxima are upper bounds once slots are gone: only rows that come up with a neighbour that is gone are looked at
    again.
    """
    gone = torch.zeros_like(born, dtype=torch.bool) if spared is None else spared.clone()
    if n >= len(born) - int(gone.sum()):
        return born.argsort()[:n]
    bound, nearest = similarity.masked_fill(gone, -torch.inf).max(1) if gone.any() else similarity.max(1)
    bound[gone] = -torch.inf
    victims: list[Tensor] = []
    while len(victims) < n:
        slot = lowest(-bound, born, 1)[0]
        if gone[nearest[slot]]:
            stale = gone[nearest]
            stale &= bound > bound.masked_fill(stale, -torch.inf).max()
            stale[slot] = True
            bound[stale], nearest[stale] = similarity[stale].masked_fill_(gone, -torch.inf).max(1)
        else:
            gone[slot], bound[slot] = True, -torch.inf
            victims.append(slot)
    return torch.stack(victims) if victims else born[:0]
