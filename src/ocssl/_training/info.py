"""What a call of `partial_fit` tells of its optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ocssl._distributed.ranks import Ranks
from ocssl.objectives.statistics import effective_rank, spread

FEW = 8  # samples below which spread and rank are not told


@dataclass(frozen=True)
class Info:
    """What one call of `partial_fit` did; means over its optimizer steps."""

    loss: float  # what was minimised: objective and weighted terms
    ssl: float  # the objective's part
    steps: int  # optimizer steps since the learner was made
    seen: int  # stream images since the learner was made
    spread: float  # how far features lie apart in the last step: near 0 means collapse; NaN below 8 samples
    rank: float  # how many directions they use
    terms: dict[str, float] = field(default_factory=dict)  # each term's loss, and `term.signal` for what it shows


def tell(history: Sequence[dict[str, Tensor]], features: Tensor, steps: int, seen: int, ranks: Ranks) -> Info:
    """The means of what every step noted, and the state of the last one's features [B, d]; the device waits once."""
    keys = dict.fromkeys(key for step in history for key in step)  # a term may have more to show in some steps
    told = {key: torch.stack([step[key] for step in history if key in step]).mean() for key in keys}
    told = {key: ranks.sum(value) for key, value in told.items()}
    features = ranks.gather(features.detach().float())
    if len(features) >= FEW:  # else too few to speak of directions
        told |= {"spread": spread(features), "rank": effective_rank(features)}
    numbers = dict(zip(told, torch.stack([value.double() for value in told.values()]).tolist(), strict=True))
    return Info(
        loss=numbers.pop("loss"),
        ssl=numbers.pop("ssl"),
        steps=steps,
        seen=seen,
        spread=numbers.pop("spread", math.nan),
        rank=numbers.pop("rank", math.nan),
        terms=numbers,
    )
