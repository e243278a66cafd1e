"""The benchmark of probes: its rows, its peers, and the data that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.bench import Row, probes
from ocssl.bench.probes import autograd_probe, encoded_for_each
from ocssl.errors import OcsslError
from ocssl.evaluate import Task, linear_probe


def small(seed: int = 0, classes: int = 3, sizes: probes.Sizes = (780, 60, 90)) -> Task:
    """Several batches, as the first step of Adam alone, which only knows signs, leaves classes tied."""
    return probes.overlapping(classes, sizes, noise=1.0, seed=seed, width=8)


PARTS: dict[str, Callable[[], list[Row]]] = {
    "to the end": lambda: list(probes.to_the_end(small(), [small(1), small(2)], 2, bars=True)),
    "against autograd": lambda: list(probes.against_autograd(small(), 3, 2)),
    "side by side": lambda: list(probes.side_by_side([small(1), small(2)], 3, 2)),
    "closed form": lambda: list(probes.closed_form(small(), 2)),
    "shared": lambda: list(probes.shared(*probes.encoding(5, 2, width=1, size=8), 2)),
}


@pytest.mark.slow
def test_every_part_tells_figures_under_names_of_their_own() -> None:
    rows = [row for part in PARTS.values() for row in part()]
    assert len({row.key for row in rows}) == len(rows) == 8
    for row in rows:
        assert row.part == "probes"
        assert all(math.isfinite(v) and v > 0 for v in (row.value.low, row.value.middle, row.value.high)), row
        assert row.faster == (row.unit == "x")
    assert [row.bar.limit for row in rows if row.bar] == [60, 30]


def test_bars_are_for_the_full_size_only() -> None:
    assert not any(row.bar for row in probes.to_the_end(small(), [small(1)], 1, bars=False))


@given(seed=st.integers(0, 1000), classes=st.integers(2, 5))
@settings(deadline=None, max_examples=5, derandomize=True)
@pytest.mark.slow
def test_autograd_comes_to_the_same_answers(seed: int, classes: int) -> None:
    task = small(seed, classes, (200, 60, 100))
    data = task.train_x, task.train_y, task.test_x, task.test_y
    ours = linear_probe(*data, val_x=task.val_x, val_y=task.val_y, epochs=30, batch=16).predictions
    theirs = autograd_probe(task, epochs=30, batch=16).numpy()
    assert (ours == theirs).mean() >= probes.ALIKE


def test_a_peer_with_another_rate_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "RATE", 1e-4)
    with pytest.raises(OcsslError, match="share only"):
        list(probes.against_autograd(small(classes=5), 2, 1))


def test_a_peer_leaves_the_threads_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(torch, "set_num_threads", calls.append)
    autograd_probe(small(), epochs=1)
    assert calls == [1, 7]


def test_probes_that_encode_for_themselves_answer_the_same() -> None:
    learner, benchmark = probes.encoding(5, 2, width=1, size=8)
    ours = probes.encoded_once(learner, benchmark)
    theirs = encoded_for_each(learner, benchmark)
    assert [a.predictions.tolist() for a in ours] == [b.predictions.tolist() for b in theirs]
    assert len(ours) == 3


def test_one_other_answer_is_seen() -> None:
    given = torch.arange(100)
    other = given.clone()
    other[3] += 1
    probes.require_same(given, given.clone())
    with pytest.raises(OcsslError, match="do not answer the same"):
        probes.require_same(given, other)
    probes.require_alike(given, other)
    with pytest.raises(OcsslError, match="share only"):
        probes.require_alike(given, given.flip(0))


def test_the_data_are_balanced_and_a_function_of_the_seed() -> None:
    task, again, other = small(), small(), small(1)
    for x, y, n in ((task.train_x, task.train_y, 780), (task.val_x, task.val_y, 60), (task.test_x, task.test_y, 90)):
        assert x.shape == (n, 8)
        assert torch.bincount(y).tolist() == [n // 3] * 3
        assert x.min() == 0
    assert torch.equal(task.train_x, again.train_x)
    assert not torch.equal(task.train_x, other.train_x)


def test_a_quick_run_has_a_fifth_of_everything() -> None:
    assert probes.fifth(probes.JOINT) == (9_000, 1_000, 2_000)
