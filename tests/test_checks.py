"""The contract checks pass for every registered part, and each catches parts that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from conftest import random_images
from ocssl.checks import ContractError, check_draw, check_keep, check_objective, check_stream
from ocssl.data import Batch, Experience, ExperienceStream, Subset, load_benchmark
from ocssl.data.decode.image_set import ArrayImages
from ocssl.errors import SettingError
from ocssl.memory import DRAWS, KEEPS, Context, Draw, Keep, Store
from ocssl.objectives import OBJECTIVES, Objective, Output, SimSiam
from ocssl.settings import DataSettings, StreamSettings

Arriving = Mapping[str, Tensor]


@pytest.mark.parametrize("name", list(KEEPS))
def test_every_keep_rule_passes(name: str) -> None:
    check_keep(name)


@pytest.mark.parametrize("name", list(DRAWS))
@pytest.mark.slow
def test_every_draw_rule_passes(name: str) -> None:
    check_draw(name)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_every_objective_passes(name: str) -> None:
    check_objective(name)


@pytest.mark.parametrize(
    "order", [{"order": "class"}, {"order": "iid"}, {"order": "given"}, {"blurry": 0.5}, {"drift": 1}]
)
def test_streams_in_every_order_pass(order: dict[str, object]) -> None:
    options = {"image_size": 8, "experiences": 4, "train": 6, "test": 1, **order}
    benchmark = load_benchmark("synthetic", StreamSettings.model_validate(options))
    check_stream(benchmark.stream(batch=5, seed=0, drop_last=False))


@pytest.mark.parametrize("decode", ["cache", "live"])
@pytest.mark.slow
def test_streams_of_files_pass(decode: Literal["cache", "live"], tmp_path: Path) -> None:
    for number, image in enumerate(random_images(24)):
        folder = tmp_path / "photos" / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    data = DataSettings(path=str(tmp_path / "photos"), decode=decode, workers=1, cache=str(tmp_path / "cache"))
    settings = StreamSettings(image_size=8, experiences=3)
    check_stream(load_benchmark("folder", settings, data).stream(batch=5, seed=0, drop_last=False))


def test_an_unknown_name_is_named_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="reservoir"):
        check_keep("reservior")


class Rule(Keep):
    needs: ClassVar[frozenset[str]] = frozenset({"born", "loss"})


class TwiceTheSame(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        return torch.zeros(len(arriving["born"]), dtype=torch.int64)


class OutsideTheStore(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        return store.capacity + torch.arange(len(arriving["born"]))


class Overwrites(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        store["loss"].zero_()
        return torch.full((len(arriving["born"]),), -1)


class Remembers(Rule):
    def __init__(self) -> None:
        self.next = 0

    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        slots = torch.full((len(arriving["born"]),), -1)
        slots[0] = self.next % store.capacity
        self.next += 1
        return slots


class LooksAtPixels(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        slots = torch.full((len(arriving["born"]),), -1)
        slots[0] = int(store["image"].sum()) % store.capacity
        return slots


class GlobalTorch(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        slots = torch.full((len(arriving["born"]),), -1)
        slots[0] = int(torch.randint(store.capacity, ()))
        return slots


class GlobalNumpy(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        slots = torch.full((len(arriving["born"]),), -1)
        slots[0] = int(np.random.randint(store.capacity))  # noqa: NPY002
        return slots


class TooFew(Rule):
    def place(self, store: Store, arriving: Arriving, generator: torch.Generator) -> Tensor:
        return torch.zeros(0, dtype=torch.int64)


class AnnotatesTooMuch(TooFew):
    def annotate(
        self, store: Store, arriving: Arriving, generator: torch.Generator, context: Context | None
    ) -> dict[str, Tensor]:
        return {"score": torch.zeros(len(arriving["born"]) + 1)}


WRONG_KEEPS = [
    (AnnotatesTooMuch, "one row an arriving"),
    (TwiceTheSame, "two samples"),
    (OutsideTheStore, "outside"),
    (Overwrites, "writes"),
    (Remembers, "a new rule"),
    (LooksAtPixels, "a new rule"),
    (GlobalTorch, "global"),
    (GlobalNumpy, "global"),
    (TooFew, "one per arriving"),
]


@pytest.mark.parametrize(("rule", "complaint"), WRONG_KEEPS)
def test_check_keep_catches(rule: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_keep(rule)


class DrawRule(Draw):
    needs: ClassVar[frozenset[str]] = frozenset({"born", "loss"})


class Repeats(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return torch.zeros(n, dtype=torch.int64)


class AlwaysTheFirst(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return torch.arange(n)


class Counts(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        slots = torch.randperm(len(store), generator=generator)[:n]
        store["draws"][slots] += 1
        return slots


class GlobalPermutation(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return torch.randperm(len(store))[:n]


class OneTooMany(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return torch.randperm(len(store), generator=generator)[: n + 1]


class BeyondTheFilled(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return store.capacity - 1 - torch.arange(n)


class NegativeWeights(DrawRule):
    def pick(self, store: Store, n: int, generator: torch.Generator, context: Context | None) -> Tensor:
        return torch.randperm(len(store), generator=generator)[:n]

    def weigh(self, store: Store, slots: Tensor) -> Tensor:
        return -torch.ones(len(slots))


WRONG_DRAWS = [
    (NegativeWeights, "weigh"),
    (Repeats, "twice"),
    (AlwaysTheFirst, "ever drawn"),
    (Counts, "writes"),
    (GlobalPermutation, "global"),
    (OneTooMany, "asked for"),
    (BeyondTheFilled, "filled"),
]


@pytest.mark.parametrize(("rule", "complaint"), WRONG_DRAWS)
def test_check_draw_catches(rule: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_draw(rule)


class Small(SimSiam):
    def __init__(self, encoder: nn.Module, dimension: int, projection: int) -> None:
        super().__init__(encoder, dimension, projection, bottleneck=4)


class BatchMean(Small):
    def forward(self, views: Tensor) -> Output:
        out = super().forward(views)
        return Output(out.loss.mean()[None], out.features, out.projected)


class MeanRepeated(Small):
    def forward(self, views: Tensor) -> Output:
        out = super().forward(views)
        weights = torch.linspace(0, 1, len(out.loss))
        return Output(out.loss * weights, out.features, out.projected)


class Detached(Small):
    def forward(self, views: Tensor) -> Output:
        features = torch.stack([self.encoder(v).detach() for v in views])
        projected = torch.stack([self.projector(f) for f in features])
        loss = -(self.predictor(projected[0]) * projected[1].detach()).sum(-1)
        return Output(loss, features, projected)


class Noisy(Small):
    def forward(self, views: Tensor) -> Output:
        return super().forward(views + torch.randn_like(views))


class HiddenCounter(Small):
    calls = 0

    def forward(self, views: Tensor) -> Output:
        out = super().forward(views)
        self.calls += 1
        return Output(out.loss * self.calls, out.features, out.projected)


class MemoryOfSteps(Small):
    steps = 0

    def after_step(self) -> None:
        self.steps += 1

    def forward(self, views: Tensor) -> Output:
        out = super().forward(views)
        return Output(out.loss + self.steps, out.features, out.projected)


class WideBatchLoss(Small):
    def forward(self, views: Tensor) -> Output:
        out = super().forward(views)
        return Output(out.loss, out.features, out.projected, batch_loss=out.loss)


WRONG_OBJECTIVES = [
    (MemoryOfSteps, "whole state"),
    (WideBatchLoss, "one finite number"),
    (BatchMean, "one per sample"),
    (MeanRepeated, "place in the batch"),
    (Detached, "reaches the encoder"),
    (Noisy, "global"),
    (HiddenCounter, "whole state"),
]


@pytest.mark.parametrize(("objective", "complaint"), WRONG_OBJECTIVES)
def test_check_objective_catches(objective: Callable[..., Objective], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_objective(objective)


def small_stream() -> ExperienceStream:
    images = torch.randint(1, 256, (12, 3, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    none = torch.zeros(12, dtype=torch.int64)
    part = Subset(ArrayImages(images), torch.arange(12), none, none, torch.arange(12))
    experiences = [Experience(torch.arange(6), 0), Experience(torch.arange(6, 12), 1)]
    return ExperienceStream(part, experiences, 3, torch.Generator().manual_seed(0))


class Wrapped:
    def __init__(self) -> None:
        self.inner = small_stream()
        self.visits = 0

    def __len__(self) -> int:
        return len(self.inner)

    def batches(self, start: int = 0) -> Iterator[Batch]:
        return self.inner.batches(start)


class ForgetsTheStart(Wrapped):
    def batches(self, start: int = 0) -> Iterator[Batch]:
        return self.inner.batches(0)


class ShufflesEachTime(Wrapped):
    def batches(self, start: int = 0) -> Iterator[Batch]:
        self.visits += 1
        found = list(self.inner.batches())
        return iter((found[self.visits % 4 :] + found[: self.visits % 4])[start:])


class Floats(Wrapped):
    def batches(self, start: int = 0) -> Iterator[Batch]:
        for b in self.inner.batches(start):
            yield Batch(b.images / 255, b.ids, b.task, b.labels)


class Shares(Wrapped):
    def __init__(self) -> None:
        super().__init__()
        self.kept = list(self.inner.batches())

    def batches(self, start: int = 0) -> Iterator[Batch]:
        return iter(self.kept[start:])


class RepeatsIds(Wrapped):
    def batches(self, start: int = 0) -> Iterator[Batch]:
        for b in self.inner.batches(start):
            yield Batch(b.images, b.ids % 5, b.task, b.labels)


class DropsTheLast(Wrapped):
    def batches(self, start: int = 0) -> Iterator[Batch]:
        return iter(list(self.inner.batches(start))[:-1])


WRONG_STREAMS = [
    (ForgetsTheStart, "from minibatch"),
    (ShufflesEachTime, "second time"),
    (Floats, "uint8"),
    (Shares, "shared"),
    (RepeatsIds, "twice"),
    (DropsTheLast, "len says"),
]


def test_a_right_stream_passes() -> None:
    check_stream(Wrapped())


@pytest.mark.parametrize(("stream", "complaint"), WRONG_STREAMS)
def test_check_stream_catches(stream: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(ContractError, match=complaint):
        check_stream(stream())
