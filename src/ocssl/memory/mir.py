"""MIR (Aljundi et al., 2019): replay what the coming step would hurt most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ocssl.errors import OcsslError
from ocssl.memory.context import Context
from ocssl.memory.draw import DRAWS, Draw, first_to_finish
from ocssl.memory.store import Store
from ocssl.settings import Size


@DRAWS.add("mir")
@dataclass(kw_only=True)
class Mir(Draw):
    """Of uniformly drawn candidates, those whose loss would rise most by a step on the stream minibatch alone."""

    candidates: Size = 512
    asks: ClassVar[bool] = True

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        if context is None:
            raise OcsslError("draw rule 'mir' asks the learner how losses would change: Memory.draw needs a context.")
        slots = first_to_finish(store, None, min(len(store), max(n, self.candidates)), generator).sort().values
        if n in (0, len(slots)):
            return slots[:n]
        increase = context.loss_increase(store["image"][slots])
        return slots[increase.argsort(descending=True, stable=True)[:n]]
