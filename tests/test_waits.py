"""The loop asks a device for nothing: operations whose answer the program has to wait for are counted as torch runs
them. Here they run on the CPU, where they cost nothing; on a GPU each would stop the queue of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import ocssl
from ocssl import recipes
from ocssl._training.optimizer import OPTIMIZERS
from ocssl.memory import keep

# operations that read a number, or make a tensor whose size depends on numbers
ASKING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim")
# Methods that do ask, and why; all others never do.
ASKS = {
    "minred": "victims are chosen one after another, and each depends on the last",
    "climb": "each newcomer's centroid depends on the last newcomer, and tiers are picked by masks",
    "storyboard": "newcomers take slots one after another, and tiers are picked by masks",
    "lars": "newcomers take slots one after another",
    "gss": "whether all newcomers are novel",
    "scale": "off-diagonal pairs and the kept set are picked by masks",
    "lump": "the mixing share is drawn as a number",
    "cassle": "whether there is a past to distil from",
    "pfr": "whether there is a past to distil from",
    "sycon": "whether there is a past to distil from",
    "osiris-r": "whether there is a past to compare with",
    "osiris-d": "whether there is a past to compare with",
    "pocon": "whether the expert's phase is over",
    "cmp": "which rows are blurred and solarized; that answer lies with the program",
}


class Waits(TorchDispatchMode):
    """Names the operations inside it that a program has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = str(func).removeprefix("aten.").partition(".")[0]
        masks = name in ("index", "index_put_", "index_put") and any(
            isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        )
        if name in ASKING or masks:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def learner(method: str, optimizer: str = "sgd") -> ocssl.Learner:
    settings: dict[str, Any] = {
        "optimizer.name": optimizer,
        "encoder.name": "resnet10",
        "encoder.width": 2,
        "objective.projection": 16,
        "memory.capacity": 30,
    }
    return ocssl.Learner(method, image_size=8, settings=settings | {"schedule.passes": 2})


def waits(made: ocssl.Learner) -> list[str]:
    """Of a stream minibatch after the memory has filled."""
    generator = torch.Generator().manual_seed(0)
    batch = made.settings.schedule.stream_batch
    stream = torch.randint(0, 256, (5, batch, 3, 8, 8), dtype=torch.uint8, generator=generator)
    for images in stream[:4]:
        made.partial_fit(images)
    made._guard.at_once = False  # as on a device
    with Waits() as found:
        made._fit_minibatch(stream[4], torch.arange(batch), [])
    return found.names


@pytest.fixture(autouse=True)
def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest values are found by sorting all, as `lowest` does where the values are not the program's."""
    monkeypatch.setattr(keep, "up_to_nth", lambda values, n: torch.arange(len(values)))


@pytest.mark.parametrize("method", sorted(set(recipes.methods()) - set(ASKS)))
def test_a_minibatch_is_learned_without_waiting(method: str) -> None:
    assert waits(learner(method)) == []


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_no_optimizer_waits(optimizer: str) -> None:
    assert waits(learner("er-fifo", optimizer)) == []


@pytest.mark.parametrize("method", sorted(ASKS))
def test_what_is_said_to_ask_does_ask(method: str) -> None:
    assert waits(learner(method))


def test_the_whole_call_waits_twice() -> None:
    """Once for whether a loss was refused, once for the numbers that it tells."""
    made = learner("solar")
    images = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    made.partial_fit(images)
    made._guard.at_once = False
    with Waits() as found:
        made.partial_fit(images)
    assert len(found.names) <= 2, found.names


def test_a_step_that_asks_is_caught() -> None:
    made = learner("solar")
    step = made._step

    def asking(loss: Tensor, losses: Tensor, ids: Tensor) -> None:
        float(loss.detach())
        ids[losses > 0]
        step(loss, losses, ids)

    made._step = asking  # type: ignore[method-assign]
    assert {"_local_scalar_dense", "index"} <= set(waits(made))
