"""The Overlap term against the literal double sum, its edge cases, and gradients that reach the batch only."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl.memory import DRAWS, KEEPS, Memory, Replay, Store
from ocssl.objectives import NoObjective, Output
from ocssl.objectives.sample_statistics import SampleStatistics
from ocssl.terms import Overlap, Penalty, Step
from ocssl.terms.overlap import overlap_matrix


def stored(features: Tensor, angles: Tensor, losses: Tensor) -> Memory:
    n, d = features.shape
    store = Store(max(n, 1), (3, 1, 1), {"feature": d})
    memory = Memory(store, KEEPS.build("fifo"), DRAWS.build("uniform"), torch.Generator().manual_seed(0))
    if n:
        rows = {"feature": features, "angle": angles, "loss": losses}
        memory.insert(torch.zeros(n, 3, 1, 1, dtype=torch.uint8), torch.arange(n), rows)
    return memory


def replayed(slots: list[int]) -> Replay:
    index = torch.tensor(slots, dtype=torch.int64)
    return Replay(index, index, index, torch.zeros(len(slots), 3, 1, 1, dtype=torch.uint8), torch.ones(len(slots)))


def measured(features: Tensor, angles: Tensor) -> SampleStatistics:
    return SampleStatistics(torch.zeros(len(features)), features, angles, features)


def overlap(
    batch: SampleStatistics, replay: Replay, memory: Memory, kind: type[Overlap] = Overlap, **options: Any
) -> Penalty:
    objective = NoObjective(nn.Identity(), batch.feature.shape[1], 1)
    out = Output(batch.loss, batch.feature[None], batch.feature[None])
    fresh = len(batch.loss) - len(replay)
    step = Step(0, fresh, torch.zeros(1, len(batch.loss), 3, 1, 1), replay, out, batch, objective, memory)
    penalty: Penalty = kind(objective, **options)(step)
    return penalty


def literal(features: Tensor, angles: Tensor, memory: Memory, outside: list[int], k: int) -> float:
    """Section 4.2 of the paper in float64: the top K by stored loss that are not in the batch."""
    candidates = [slot for slot in range(len(memory)) if slot not in outside]
    top = sorted(candidates, key=lambda slot: -float(memory.store["loss"][slot]))[:k]
    total = 0.0
    for f, a in zip(features.double(), angles.double(), strict=True):
        for slot in top:
            g = memory.store["feature"][slot].double()
            centre = math.acos(max(-1.0, min(1.0, float(f @ g / (f.norm() * g.norm())))))
            total += max(0.0, float(a) + float(memory.store["angle"][slot]) - centre)
    return total / (len(features) * len(top))


def random_case(seed: int, batch: int = 9, slots: int = 40, d: int = 6) -> tuple[Tensor, Tensor, Memory]:
    generator = torch.Generator().manual_seed(seed)
    memory = stored(
        torch.randn(slots, d, generator=generator),
        torch.rand(slots, generator=generator),
        torch.randn(slots, generator=generator),
    )
    return torch.randn(batch, d, generator=generator), torch.rand(batch, generator=generator), memory


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 7, 500])
def test_the_term_is_the_literal_double_sum(seed: int, k: int) -> None:
    features, angles, memory = random_case(seed)
    outside = [3, 11, 12, 39]
    penalty = overlap(measured(features, angles), replayed(outside), memory, k=k)
    assert float(penalty.loss) == pytest.approx(literal(features, angles, memory, outside, k), abs=1e-5)


def test_the_oracle_catches_targets_taken_from_the_batch_itself() -> None:
    features, angles, memory = random_case(0)
    top = memory.top(5, "loss", outside=torch.tensor([], dtype=torch.int64)).tolist()
    right = literal(features, angles, memory, top, 5)
    wrong = float(overlap(measured(features, angles), replayed([]), memory, k=5).loss)
    assert abs(right - wrong) > 1e-3


def test_share_of_active_pairs_is_counted() -> None:
    features, angles, memory = random_case(1)
    penalty = overlap(measured(features, angles), replayed([]), memory, k=500)
    matrix = overlap_matrix(features, angles, memory.store["feature"], memory.store["angle"])
    assert float(penalty.signals["active"]) == pytest.approx(float((matrix > 0).float().mean()))
    assert 0 < float(penalty.signals["active"]) < 1


def test_orthogonal_centres_with_small_angles_cost_nothing() -> None:
    memory = stored(torch.eye(4)[:3], torch.full((3,), 0.1), torch.zeros(3))
    assert float(overlap(measured(torch.eye(4)[3:], torch.tensor([0.1])), replayed([]), memory).loss) == 0


def test_coinciding_centres_cost_the_sum_of_the_angles() -> None:
    centre = torch.tensor([[1.0, 2.0, 3.0]])
    memory = stored(5 * centre, torch.tensor([0.3]), torch.zeros(1))
    penalty = overlap(measured(centre, torch.tensor([0.4])), replayed([]), memory)
    assert float(penalty.loss) == pytest.approx(0.7, abs=2e-3)


@pytest.mark.parametrize("short", ["min", "skip"])
def test_fewer_than_k_slots_outside_the_batch(short: str) -> None:
    features, angles, memory = random_case(2)
    penalty = overlap(measured(features, angles), replayed([0, 1]), memory, k=100, short=short)
    expected = literal(features, angles, memory, [0, 1], 100) if short == "min" else 0.0
    assert float(penalty.loss) == pytest.approx(expected, abs=1e-5)


def test_an_empty_memory_costs_nothing() -> None:
    memory = stored(torch.zeros(0, 3), torch.zeros(0), torch.zeros(0))
    penalty = overlap(measured(torch.randn(4, 3), torch.rand(4)), replayed([]), memory)
    assert float(penalty.loss) == 0


def require_constants(memory: Memory) -> None:
    for name in memory.store:
        assert not memory.store[name].requires_grad
        assert memory.store._columns[name].grad is None


def compare_gradients(kind: type[Overlap], detach: bool) -> None:
    features, angles, memory = random_case(3)
    features.requires_grad_()
    angles.requires_grad_()
    overlap(measured(features, angles), replayed([]), memory, kind, detach_angle=detach).loss.backward()
    assert features.grad is not None
    assert float(features.grad.abs().sum()) > 0
    assert (angles.grad is None) == detach
    require_constants(memory)


@pytest.mark.parametrize("detach", [False, True])
def test_gradients_reach_the_batch_and_never_the_memory(detach: bool) -> None:
    compare_gradients(Overlap, detach)


class TrainsCentres(Overlap):
    """Broken: stored centres are moved as well."""

    def forward(self, step: Step) -> Penalty:
        step.memory.store._columns["feature"].requires_grad_()
        return super().forward(step)


class RemembersGraph(Overlap):
    """Broken: the batch's own features are put into the memory with the graph that made them."""

    def forward(self, step: Step) -> Penalty:
        penalty = super().forward(step)
        step.memory.store._columns["feature"][:2] = step.measured.feature[:2]
        return penalty


@pytest.mark.parametrize("broken", [TrainsCentres, RemembersGraph])
def test_gradients_that_reach_the_memory_are_caught(broken: type[Overlap]) -> None:
    with pytest.raises(AssertionError):
        compare_gradients(broken, detach=False)


def require_constants_in_a_learner() -> None:
    learner = small_learner("solar", schedule__passes=1)
    learner.partial_fit(random_images(10))
    require_constants(learner.memory)


def test_a_learners_memory_holds_constants_only(monkeypatch: pytest.MonkeyPatch) -> None:
    require_constants_in_a_learner()
    columns = ("loss", "feature", "angle", "projected")
    monkeypatch.setattr(
        SampleStatistics, "rows", lambda self, part: {name: getattr(self, name)[part] for name in columns}
    )
    with pytest.raises(AssertionError):  # rows that are not detached
        require_constants_in_a_learner()


def test_gradients_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(4)
    f = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    a = torch.rand(3, generator=generator, dtype=torch.float64, requires_grad=True)
    g, b = torch.randn(5, 4, generator=generator, dtype=torch.float64), torch.rand(5, generator=generator).double()
    assert torch.autograd.gradcheck(lambda x, y: overlap_matrix(x, y, g, b).clamp_min(0), (f, a))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_are_finite_at_equal_and_opposite_centres(sign: float) -> None:
    centre = torch.randn(3, 8, generator=torch.Generator().manual_seed(5))
    memory = stored(sign * centre, torch.ones(3), torch.zeros(3))
    features = centre.clone().requires_grad_()
    overlap(measured(features, torch.full((3,), 3.0)), replayed([]), memory).loss.backward()
    assert features.grad is not None
    assert bool(torch.isfinite(features.grad).all())


def test_the_term_is_float32_under_autocast() -> None:
    features, angles, memory = random_case(6)
    expected = float(overlap(measured(features, angles), replayed([]), memory).loss)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = overlap(measured(features, angles), replayed([]), memory).loss
    assert got.dtype == torch.float32
    assert float(got) == expected
