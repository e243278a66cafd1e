"""The benchmark of resident memory: its arithmetic, its processes, and that it would see a leak."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from ocssl.bench import Effort, resident
from ocssl.bench.learners import noise, ready
from ocssl.bench.start import python
from ocssl.learner import Learner

pytestmark = pytest.mark.process

linux = pytest.mark.skipif(not resident.STATM.exists(), reason="needs /proc, which this system does not have")
SMALL = {"encoder.width": 2, "memory.capacity": 10, "objective.projection": 8}
LEAKY = """
import torch
from ocssl.bench.resident import Learner, walk
fit, kept = Learner.partial_fit, []
def leak(self, images, ids=None):
    kept.append(torch.ones(2**20))  # 4 MB
    return fit(self, images, ids)
Learner.partial_fit = leak
"""


@pytest.mark.parametrize(("width", "capacity"), [(1, 30), (4, 200)])
def test_the_arithmetic_is_that_of_the_tensors(width: int, capacity: int) -> None:
    learner = ready("solar", width, 8, **{"memory.capacity": capacity, "objective.projection": 16})
    learner.partial_fit(noise(10, 8, torch.Generator().manual_seed(0)))
    tensors = learner.tensors()
    accounts = resident.accounts(learner)

    def under(prefix: str) -> int:
        return sum(tensor.nbytes for name, tensor in tensors.items() if name.startswith(prefix))

    assert accounts["weights"] == under("network.")
    assert accounts["momentum"] == under("momentum.")
    assert accounts["gradients"] == sum(p.grad.nbytes for p in learner.network.parameters() if p.grad is not None)
    assert accounts["memory"] == under("memory.column.") + learner.memory.store._scratch.nbytes


@linux
def test_a_learner_is_weighed_beside_its_arithmetic() -> None:
    rows = list(resident.held(8, 8, threads=1, capacity=20_000))
    assert len({row.key for row in rows}) == len(rows) == 3
    counted, held, whole = (row.value.middle for row in rows)
    assert all(math.isfinite(value) and value > 0 for value in (counted, held, whole))
    assert {(row.part, row.unit) for row in rows} == {("resident", "MB")}
    assert 0.9 * counted < held < whole  # what is counted is there, and the process has more


@linux
def test_a_learner_that_keeps_something_of_every_minibatch_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "child", lambda work, *words: json.loads(python("-c", f"{LEAKY}{work}{words!r}")))
    (row,) = resident.growth(200, 8, ["live"], shorter=False)
    assert row.name == "stream of files decoded on the way, grown from the first to the last tenth"
    assert row.unit == "MB"
    minibatches = 140 // resident.BATCH  # of 200 images a fifth is held out to test on, a tenth of the rest to validate
    assert row.value.middle > 3 * (minibatches - 2)


@pytest.mark.parametrize("shorter", [False, True])
def test_growth_is_told_of_each_way_to_read(monkeypatch: pytest.MonkeyPatch, shorter: bool) -> None:
    asked = []

    def child(work: str, folder: str, *more: object) -> list[float]:
        assert len(list(Path(folder).iterdir())) == (20 if folder.endswith("long") else 2)
        asked.append((work, Path(folder).name, more[1]))
        return [100.0, 103.0] if folder.endswith("long") else [100.0, 101.0]

    monkeypatch.setattr(resident, "child", child)
    rows = list(resident.growth(20, 8, ["cache", "live"], shorter))
    assert [row.value.middle for row in rows] == ([3.0, 2.0] * 2 if shorter else [3.0] * 2)
    assert len({row.key for row in rows}) == len(rows)
    lengths = ["long", "short"] if shorter else ["long"]
    assert asked == [("walk", length, way) for way in ("cache", "live") for length in lengths]


def test_elsewhere_only_the_arithmetic_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resident, "STATM", tmp_path / "absent")
    monkeypatch.setattr(
        resident, "Learner", lambda method, **options: Learner(method, **{**options, "settings": SMALL})
    )
    names = [row.name for row in resident.rows(Effort(quick=True))]
    assert names == ["solar, width 16, 32 px, 2,000 slots, by arithmetic"]
