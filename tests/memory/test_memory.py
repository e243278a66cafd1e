"""The memory's own work: filling, refreshing, counting, looking up, and going on from a saved state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ocssl.memory import DRAWS, KEEPS, Memory, Replay, Store


class Plain:
    """A context that answers the same for all images."""

    def loss_increase(self, images: Tensor) -> Tensor:
        return torch.zeros(len(images))

    def gradients(self, batches: Sequence[Tensor]) -> Tensor:
        return torch.ones(len(batches), 2)


def filled(
    capacity: int = 8,
    n: int = 8,
    ema: float = 0.5,
    unit_vectors: bool = False,
    keep: str = "fifo",
    draw: str = "uniform",
    kind: type[Memory] = Memory,
) -> Memory:
    rule = KEEPS.build(keep)
    store = Store(capacity, (3, 2, 2), {"feature": 2, "projected": 2, **rule.columns(capacity)})
    memory = kind(store, rule, DRAWS.build(draw), torch.Generator().manual_seed(0), ema, unit_vectors)
    if n:
        memory.insert(
            torch.zeros(n, 3, 2, 2, dtype=torch.uint8),
            torch.arange(100, 100 + n),
            {
                "loss": torch.arange(n).float(),
                "angle": torch.ones(n),
                "feature": torch.ones(n, 2),
                "projected": torch.eye(2)[torch.arange(n) % 2],
            },
            Plain(),
        )
    return memory


def compare_refresh(kind: type[Memory]) -> None:
    memory = filled(kind=kind)
    replay = memory.draw(3)
    old = memory.store["loss"].clone()
    new = torch.tensor([10.0, 20.0, 30.0])
    memory.refresh(replay, {"loss": new, "feature": torch.zeros(3, 2)})
    expected = old.clone()
    for slot, value in zip(replay.slots.tolist(), new.tolist(), strict=True):
        expected[slot] = 0.5 * float(old[slot]) + 0.5 * value
    torch.testing.assert_close(memory.store["loss"], expected)
    assert torch.equal(memory.store["feature"][replay.slots], torch.full((3, 2), 0.5))
    assert torch.equal(memory.store["angle"], torch.ones(8))


def test_a_refresh_mixes_old_and_new_half_and_half_once() -> None:
    compare_refresh(Memory)


class Twice(Memory):
    def refresh(self, replay: Replay, statistics: Mapping[str, Tensor]) -> None:
        super().refresh(replay, statistics)
        super().refresh(replay, statistics)


class Never(Memory):
    def refresh(self, replay: Replay, statistics: Mapping[str, Tensor]) -> None:
        pass


class OtherSlots(Memory):
    def refresh(self, replay: Replay, statistics: Mapping[str, Tensor]) -> None:
        slots = (replay.slots + 1) % len(self)
        super().refresh(replace(replay, slots=slots, born=self.store["born"][slots]), statistics)


class OtherRows(Memory):
    def refresh(self, replay: Replay, statistics: Mapping[str, Tensor]) -> None:
        super().refresh(replay, {name: rows.roll(1, 0) for name, rows in statistics.items()})


@pytest.mark.parametrize("broken", [Twice, Never, OtherSlots, OtherRows])
def test_the_oracle_catches_a_refresh_that_is_wrong(broken: type[Memory]) -> None:
    with pytest.raises(AssertionError):
        compare_refresh(broken)


def test_without_ema_a_refresh_keeps_the_newest_value() -> None:
    memory = filled(ema=0.0)
    replay = memory.draw(8)
    memory.refresh(replay, {"loss": replay.slots.float() * 7})
    assert torch.equal(memory.store["loss"], torch.arange(8) * 7.0)


def test_a_slot_overwritten_since_the_draw_is_not_refreshed() -> None:
    memory = filled()
    replay = memory.draw(8)
    memory.insert(torch.zeros(3, 3, 2, 2, dtype=torch.uint8), torch.arange(3), {"loss": torch.full((3,), -5.0)})
    memory.refresh(replay, {"loss": torch.full((8,), 1000.0)})
    loss = memory.store["loss"]
    assert loss[:3].tolist() == [-5, -5, -5]  # the newcomers' own
    assert bool((loss[3:] > 400).all())


def test_the_guard_goes_by_arrival_even_where_ids_repeat() -> None:
    memory = filled()
    replay = memory.draw(8)
    same_ids = memory.store["id"][:3].clone()
    memory.insert(torch.zeros(3, 3, 2, 2, dtype=torch.uint8), same_ids, {"loss": torch.full((3,), -5.0)})
    memory.refresh(replay, {"loss": torch.full((8,), 1000.0)})
    assert memory.store["loss"][:3].tolist() == [-5, -5, -5]


def test_unit_vectors_stay_unit_after_a_refresh() -> None:
    memory = filled(unit_vectors=True)
    replay = memory.draw(4)
    memory.refresh(replay, {"feature": torch.tensor([[1.0, 0.0]]).expand(4, 2)})
    lengths = memory.store["feature"][replay.slots].norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(4))


def compare_counts(kind: type[Memory]) -> None:
    memory = filled(capacity=5, n=5, kind=kind)
    expected = dict.fromkeys(range(100, 200), 0)
    for step in range(30):
        for i in memory.draw(3).ids.tolist():
            expected[i] += 1
        memory.insert(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.tensor([105 + step]), {})
        table = memory.table()
        assert {int(i): int(d) for i, d in zip(table["id"], table["draws"], strict=True)} == {
            int(i): expected[int(i)] for i in table["id"]
        }


def test_counts_add_up_to_the_draws_of_samples_still_there() -> None:
    compare_counts(Memory)


class CountsTwice(Memory):
    def draw(self, n: int, context: Any = None) -> Replay:
        replay = super().draw(n, context)
        self.store["draws"][replay.slots] += 1
        return replay


class CountsNothing(Memory):
    def draw(self, n: int, context: Any = None) -> Replay:
        before = self.store["draws"].clone()
        replay = super().draw(n, context)
        self.store["draws"].copy_(before)
        return replay


class CountsSlots(Memory):
    """A newcomer inherits the count of the sample whose slot it takes."""

    def insert(self, images: Tensor, ids: Tensor, statistics: Mapping[str, Tensor], context: Any = None) -> Tensor:
        before = self.store["draws"].clone()
        slots = super().insert(images, ids, statistics, context)
        self.store["draws"][: len(before)] = before
        return slots


@pytest.mark.parametrize("broken", [CountsTwice, CountsNothing, CountsSlots])
def test_the_oracle_catches_a_wrong_count_of_draws(broken: type[Memory]) -> None:
    with pytest.raises(AssertionError):
        compare_counts(broken)


def test_a_draw_is_at_most_what_there_is() -> None:
    assert len(filled(n=5).draw(138)) == 5
    assert len(filled(n=0).draw(138)) == 0
    assert len(filled().draw(-3)) == 0


def test_a_memory_without_slots_takes_nothing() -> None:
    memory = filled(capacity=0, n=3)
    assert len(memory) == 0
    assert memory.seen == 3
    assert len(memory.draw(10)) == 0


def test_top_are_the_highest_values_outside_the_given_slots() -> None:
    memory = filled()
    assert memory.top(3, "loss", outside=torch.tensor([7, 5])).tolist() == [6, 4, 3]
    assert sorted(memory.top(100, "loss", outside=torch.tensor([7, 5])).tolist()) == [0, 1, 2, 3, 4, 6]
    assert len(memory.top(5, "loss", outside=torch.arange(8))) == 0


def test_of_equal_values_top_takes_the_older_first() -> None:
    memory = filled()
    memory.store["loss"].fill_(1.0)
    assert memory.top(3, "loss", outside=torch.tensor([0])).tolist() == [1, 2, 3]


def test_the_table_has_a_row_a_filled_slot_and_is_a_copy() -> None:
    memory = filled(capacity=20, n=6)
    table = memory.table()
    assert set(table) == {"id", "loss", "angle", "draws", "born"}
    assert all(isinstance(column, np.ndarray) and len(column) == 6 for column in table.values())
    table["loss"][:] = 99
    assert float(memory.store["loss"].max()) < 99


def test_stored_images_do_not_alias_the_callers() -> None:
    memory = filled(n=0)
    images = torch.full((2, 3, 2, 2), 7, dtype=torch.uint8)
    memory.insert(images, torch.arange(2), {})
    images.fill_(0)
    assert memory.store["image"].min() == 7
    replay = memory.draw(2)
    replay.images.fill_(1)
    assert memory.store["image"].min() == 7


def statistics(losses: Tensor) -> dict[str, Tensor]:
    vectors = torch.stack([losses.cos(), losses.sin()], dim=1)
    return {"loss": losses, "feature": vectors, "projected": vectors}


@pytest.mark.parametrize("keep", list(KEEPS))
@pytest.mark.parametrize("draw", list(DRAWS))
@pytest.mark.parametrize("n", [0, 3, 8])
def test_a_restored_memory_goes_on_as_the_first_would(keep: str, draw: str, n: int) -> None:
    first, second = filled(n=n, keep=keep, draw=draw), filled(n=0, keep=keep, draw=draw)
    first.draw(2, Plain())
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    histories: list[list[Replay]] = [[], []]
    for memory, history in zip((first, second), histories, strict=True):
        for step in range(6):
            replay = memory.draw(4, Plain())
            history.append(replay)
            memory.refresh(replay, statistics(replay.ids.float().sin()))
            images, ids = torch.zeros(5, 3, 2, 2, dtype=torch.uint8), torch.arange(5) + 50 * step
            memory.insert(images, ids, statistics(torch.linspace(-1, 1, 5) * step), Plain())
    assert all(torch.equal(a.slots, b.slots) and torch.equal(a.born, b.born) for a, b in zip(*histories, strict=True))
    assert all(torch.equal(first.store[name], second.store[name]) for name in first.store)
    assert first.seen == second.seen
