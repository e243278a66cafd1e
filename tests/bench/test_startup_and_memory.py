"""What is measured in other processes: start-up and its imports; resident memory, and that a leak would be seen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ocssl.bench import Effort, timing
from ocssl.bench import startup_and_memory as processes
from ocssl.bench.steps import ready
from ocssl.bench.timing import python
from ocssl.cost.layers import noise
from ocssl.errors import OcsslError
from ocssl.learner import Learner

pytestmark = pytest.mark.process

linux = pytest.mark.skipif(not timing.STATUS.exists(), reason="needs /proc, which this system does not have")
SMALL = {"encoder.width": 2, "memory.capacity": 10, "objective.projection": 8}
LEAKY = """
import torch
from ocssl.bench.startup_and_memory import Learner, measure_stream
fit, kept = Learner.partial_fit, []
def leak(self, images, ids=None):
    kept.append(torch.ones(2**20))  # 4 MB
    return fit(self, images, ids)
Learner.partial_fit = leak
"""


def test_both_waits_are_told_with_their_sum_and_a_bar() -> None:
    rows = {row.name: row for row in processes.waits(1)}
    assert list(rows) == ["import ocssl and ocssl --help", "python alone", "import ocssl", "ocssl --help"]
    middle = {name: row.value.middle for name, row in rows.items()}
    assert all(math.isfinite(value) and value > 0 for value in middle.values())
    assert middle["import ocssl and ocssl --help"] == middle["import ocssl"] + middle["ocssl --help"]
    assert [name for name, row in rows.items() if row.bar] == ["import ocssl and ocssl --help"]


def test_neither_imports_torch_and_the_help_is_really_made() -> None:
    assert processes.imported(processes.IMPORT, "torch") == 0
    assert processes.imported(processes.HELP, "torch") == 0
    assert processes.imported(processes.HELP, "cyclopts") > 0
    assert processes.imported(processes.HELP, "rich") > 0


@pytest.mark.parametrize(("name", "count"), [("torch", 1), ("torch.nn", 1), ("torchvision", 1), ("mytorch", 0)])
def test_a_module_of_torch_would_be_counted(name: str, count: int) -> None:
    code = f"{processes.IMPORT}\nimport sys, types; sys.modules[{name!r}] = types.ModuleType('fake')"
    assert processes.imported(code, "torch") == count


def test_a_process_that_fails_is_not_timed() -> None:
    with pytest.raises(OcsslError, match=r"ended with 1: ValueError: no such thing\.$"):
        python("-c", "raise ValueError('no such thing')")


@pytest.mark.parametrize(("width", "capacity"), [(1, 30), (4, 200)])
def test_the_arithmetic_is_that_of_the_tensors(width: int, capacity: int) -> None:
    learner = ready("solar", width, 8, **{"memory.capacity": capacity, "objective.projection": 16})
    learner.partial_fit(noise(10, 8, torch.Generator().manual_seed(0)))
    tensors = learner.tensors()
    needed = processes.needed_bytes(learner)

    def under(prefix: str) -> int:
        return sum(tensor.nbytes for name, tensor in tensors.items() if name.startswith(prefix))

    assert needed["weights"] == under("network.")
    assert needed["momentum"] == under("momentum.")
    assert needed["gradients"] == sum(p.grad.nbytes for p in learner.network.parameters() if p.grad is not None)
    assert needed["memory"] == under("memory.column.") + learner.memory.store._scratch.nbytes


@linux
def test_a_learner_is_weighed_beside_its_arithmetic() -> None:
    rows = list(processes.held(8, 8, threads=1, capacity=20_000))
    assert len({row.key for row in rows}) == len(rows) == 3
    counted, held, whole = (row.value.middle for row in rows)
    assert all(math.isfinite(value) and value > 0 for value in (counted, held, whole))
    assert {(row.part, row.unit) for row in rows} == {("resident", "MB")}
    assert 0.9 * counted < held < whole  # what is counted is there, and the process has more


@linux
def test_a_learner_that_keeps_something_of_every_minibatch_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaky(work: Callable[..., None], *words: str | int) -> list[float]:
        return json.loads(python("-c", f"{LEAKY}{work.__name__}{words!r}"))

    monkeypatch.setattr(processes, "in_process", leaky)
    (row,) = processes.growth(200, 8, ["live"], shorter=False)
    assert row.name == "stream of files decoded on the way, grown from the first to the last tenth"
    assert row.unit == "MB"
    minibatches = (
        140 // processes.BATCH
    )  # of 200 images a fifth is held out to test on, a tenth of the rest to validate
    assert row.value.middle > 3 * (minibatches - 2)


@pytest.mark.parametrize("shorter", [False, True])
def test_growth_is_told_of_each_way_to_read(monkeypatch: pytest.MonkeyPatch, shorter: bool) -> None:
    asked = []

    def child(work: Callable[..., None], folder: str, *more: object) -> list[float]:
        assert len(list(Path(folder).iterdir())) == (20 if folder.endswith("long") else 2)
        asked.append((work.__name__, Path(folder).name, more[1]))
        return [100.0, 103.0] if folder.endswith("long") else [100.0, 101.0]

    monkeypatch.setattr(processes, "in_process", child)
    rows = list(processes.growth(20, 8, ["cache", "live"], shorter))
    assert [row.value.middle for row in rows] == ([3.0, 2.0] * 2 if shorter else [3.0] * 2)
    assert len({row.key for row in rows}) == len(rows)
    lengths = ["long", "short"] if shorter else ["long"]
    assert asked == [("measure_stream", length, way) for way in ("cache", "live") for length in lengths]


def test_elsewhere_only_the_arithmetic_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timing, "STATUS", tmp_path / "absent")
    monkeypatch.setattr(
        processes, "Learner", lambda method, **options: Learner(method, **{**options, "settings": SMALL})
    )
    names = [row.name for row in processes.resident_rows(Effort(quick=True))]
    assert names == ["solar, width 16, 32 px, 2,000 slots, by arithmetic"]
