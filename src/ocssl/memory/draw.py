"""Draw rules: which slots are replayed. A new extraction rule goes here.

All sample without replacement by a race: slot i finishes at an exponential time of rate w_i, and the first n to finish
are drawn. That has the distribution of drawing one by one with probabilities w / sum(w) renormalised after each draw.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ocssl._core.registry import Registry
from ocssl._core.transfer import send
from ocssl.errors import OcsslError
from ocssl.memory.store import LONG, NO_TIER, RULES, SHORT, TIER, Context, Store, smallest_slots
from ocssl.settings import Positive, Share, Size, Weight


class Draw:
    """The paper's extract policy."""

    needs: ClassVar[frozenset[str]] = frozenset()  # columns of the store that it reads
    asks: ClassVar[bool] = False  # whether it asks the context, which answers about losses
    shardable: ClassVar[bool] = False  # whether it is right, or near it, on each part of a memory by itself

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        """n distinct filled slots, 0 <= n <= len(store)."""
        raise TypeError(f"{type(self).__name__} does not define pick")

    def weighs(self) -> bool:
        """Whether drawn samples have weights other than 1 in the loss."""
        return False

    def weigh(self, store: Store, slots: Tensor) -> Tensor:
        """The weights of drawn samples in the loss: [n]."""
        return torch.ones(len(slots), device=slots.device)


DRAWS: Registry[Draw] = Registry("draw rule", RULES)
LEAST = 1e-6  # priority that every slot has


@DRAWS.add("uniform")
class Uniform(Draw):
    """Every slot with the same probability."""

    shardable = True

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return first_to_finish(store, None, n, generator)


@DRAWS.add("least-drawn")
@dataclass(kw_only=True)
class LeastDrawn(Draw):
    """Slots replayed less often are likelier: Softmax(-count), counts scaled to [0, 1].

    `one-minus-softmax` is the formula of the paper's pseudo-code; with 2,000 slots it is uniform to within 0.06 %.
    A lower temperature prefers the least drawn more strongly.
    """

    probability: Literal["softmax", "one-minus-softmax"] = "softmax"
    temperature: Positive = 1.0
    needs = frozenset({"draws"})
    shardable = True

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        logits = min_max(store["draws"], out=store.scratch(0)).div_(self.temperature)
        if self.probability == "softmax":
            logits.neg_()
        else:
            logits.sub_(logits.logsumexp(0)).exp_().neg_().log1p_()
        return first_to_finish(store, logits, n, generator)


@DRAWS.add("high-loss")
@dataclass(kw_only=True)
class HighLoss(Draw):
    """Slots of higher stored loss are likelier: Softmax(loss), losses scaled to [0, 1]."""

    temperature: Positive = 1.0
    needs = frozenset({"loss"})
    shardable = True

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        logits = min_max(store["loss"], out=store.scratch(0)).div_(self.temperature)
        return first_to_finish(store, logits, n, generator)


@DRAWS.add("per")
@dataclass(kw_only=True)
class Per(Draw):
    """Prioritised replay: probability ~ (loss - low)^alpha, and rarely drawn samples weigh more in the loss.

    `low` is the lowest loss that there can be; none: what the objective says, -1 for SimSiam. Slots that were never
    drawn have the highest priority in the memory. `softmax` goes by Softmax(loss), losses scaled to [0, 1], without
    alpha. The weights (N P)^-beta, divided by the largest in the memory, undo the preference in part, fully at beta 1,
    which it reaches after `anneal` arrivals (none: never); `importance` turns them off.
    """

    mode: Literal["proportional", "softmax"] = "proportional"
    alpha: Weight = 0.6
    beta: Share = 0.4
    anneal: Size | None = None
    low: float | None = None
    importance: bool = True
    needs = frozenset({"born", "draws", "loss"})

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return first_to_finish(store, self._logits(store), n, generator)

    def weighs(self) -> bool:
        return self.importance

    def weigh(self, store: Store, slots: Tensor) -> Tensor:
        if not self.importance or not len(slots):
            return super().weigh(store, slots)
        arrivals = store["born"].max() + 1
        risen = (arrivals.double() / self.anneal).clamp_max(1) if self.anneal else 0.0
        beta = self.beta + (1 - self.beta) * risen
        logits = self._logits(store)
        return (beta * (logits.min() - logits[slots])).exp().float()  # N and the sum of all P cancel out

    def _logits(self, store: Store) -> Tensor:
        """log P of each slot, up to a constant."""
        losses = store.scratch(0).copy_(store["loss"])
        if len(losses):
            losses.masked_fill_(store["draws"] == 0, losses.max())
        if self.mode == "softmax":
            return min_max(losses, out=losses)
        return losses.sub_(-1.0 if self.low is None else self.low).add_(LEAST).clamp_min_(LEAST).log_().mul_(self.alpha)


@DRAWS.add("mir")
@dataclass(kw_only=True)
class Mir(Draw):
    """Of uniformly drawn candidates, those whose loss a trial step on the stream minibatch would raise most.

    MIR (Aljundi et al., 2019): replay what the coming step would hurt most.
    """

    candidates: Size = 512
    asks = True

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        if context is None:
            raise OcsslError("draw rule 'mir' asks the learner how losses would change: Memory.draw needs a context.")
        slots = first_to_finish(store, None, min(len(store), max(n, self.candidates)), generator).sort().values
        if n in (0, len(slots)):
            return slots[:n]
        increase = context.loss_increase(store["image"][slots])
        return slots[increase.argsort(descending=True, stable=True)[:n]]


@DRAWS.add("tiers")
@dataclass(kw_only=True)
class Tiers(Draw):
    """Long-term and short-term samples in fixed shares, uniform in each; where one has too few, the other has more.

    For keep rules with two tiers (`climb`, `storyboard`); of any other memory it draws uniformly. Samples that belong
    to no tier are drawn only when all others are.
    """

    long: Share = 0.5

    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        if TIER not in store:
            return first_to_finish(store, None, n, generator)
        order = first_to_finish(store, None, len(store), generator)
        tiers = store[TIER][order]
        long, short, none = (order[tiers == tier] for tier in (LONG, SHORT, NO_TIER))
        from_long = max(min(int(self.long * n), len(long)), n - len(short))  # what short-term samples cannot fill
        return torch.cat([long[:from_long], short[: n - min(from_long, len(long))], none])[:n]


def min_max(values: Tensor, out: Tensor) -> Tensor:
    """Scale to [0, 1] into `out`; all zero where every value is the same."""
    out.copy_(values)
    if len(out):
        low, high = out.aminmax()
        out.sub_(low).div_((high - low).clamp_min(torch.finfo(out.dtype).tiny))
    return out


def first_to_finish(store: Store, logits: Tensor | None, n: int, generator: torch.Generator) -> Tensor:
    """The race: n slots without replacement with probabilities Softmax(logits) (None: all equal)."""
    times = store.scratch(1)
    if generator.device == times.device:
        times.exponential_(generator=generator)
    else:  # the same numbers on every device
        times.copy_(send(torch.empty(len(times), dtype=times.dtype).exponential_(generator=generator), times.device))
    if logits is not None:
        times.log_().sub_(logits)  # in logarithms, so that no weight is too small or too large
    return smallest_slots(times, n)
