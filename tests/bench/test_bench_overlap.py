"""The benchmark of Overlap: its rows, its peer, and what it says of memory."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.bench import Bar, Row, overlap, timing
from ocssl.bench.overlap import arccos_per_pair
from ocssl.errors import OcsslError
from ocssl.evaluate import overlap_count_from

pytestmark = pytest.mark.slow

PARTS: dict[str, Callable[[], list[Row]]] = {
    "beside the product": lambda: list(overlap.beside_product(50, 8, 2)),
    "beside arccos": lambda: list(overlap.beside_arccos(50, 8, 2)),
    "of views": lambda: list(overlap.of_views(30, 3, 8, 2)),
    "beside reading": lambda: list(overlap.beside_reading(30, 3, 8, 2)),
}


def check(rows: list[Row]) -> None:
    assert len({row.key for row in rows}) == len(rows) > 0
    for row in rows:
        assert row.part == "overlap"
        assert row.value.low <= row.value.middle <= row.value.high
        assert math.isfinite(row.value.middle)
        assert row.value.middle > 0


@pytest.mark.parametrize("part", PARTS)
def test_every_row_has_a_positive_figure(part: str) -> None:
    check(PARTS[part]())


def test_a_process_of_its_own_tells_time_and_memory() -> None:
    rows = list(overlap.alone(1500, 8, 1, threads=1, bar=Bar(1.5)))
    check(rows)
    assert [row.unit for row in rows] == (["x", "ms", "MB"] if timing.STATUS.exists() else ["x", "ms"])
    assert rows[0].bar == Bar(1.5)


def test_a_process_that_fails_is_an_error_that_says_why() -> None:
    with pytest.raises(OcsslError, match=r"ended with 1: .*negative"):
        list(overlap.alone(-1, 8, 1, threads=1))


def test_the_product_of_some_blocks_counts_for_all() -> None:
    n = 4 * overlap.BLOCK + 100
    times = {"overlap": [3.0], "product": [1.0]}
    (whole, _), (part, _) = (list(overlap.product_rows(n, 8, times, every)) for every in (1, 3))
    assert whole.value.middle == 3.0
    assert part.value.middle == pytest.approx(3.0 * 2 * overlap.BLOCK / n)  # blocks 0 and 3
    assert f"{2 * overlap.BLOCK:,} rows" in part.note


@pytest.mark.parametrize("every", [1, 3])
def test_the_bare_product_multiplies_the_rows_that_it_says(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "BLOCK", 4)
    multiplied = []
    real = torch.mm

    def seen(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        multiplied.append(a.shape[0] * b.shape[1])
        return real(a, b, out=out)

    monkeypatch.setattr(torch, "mm", seen)
    overlap.product(torch.ones(18, 2), every)
    assert sum(multiplied) == 18 * (18 if every == 1 else 8)


@given(n=st.integers(2, 60), d=st.integers(2, 12), seed=st.integers(0, 999), most=st.sampled_from([0.2, 0.9, 2.5]))
@settings(max_examples=60, deadline=None)
def test_an_arccos_for_every_pair_counts_the_same(n: int, d: int, seed: int, most: float) -> None:
    generator = np.random.default_rng(seed)
    means = torch.from_numpy(generator.normal(size=(n, d)))
    angles = torch.from_numpy(generator.uniform(0, most, n))
    assert arccos_per_pair(means, angles) == pytest.approx(overlap_count_from(means, angles), abs=1e-12)


def test_a_peer_that_counts_other_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "arccos_per_pair", lambda means, angles: arccos_per_pair(means, angles / 2))
    with pytest.raises(OcsslError, match="not count the same pairs"):
        list(overlap.beside_arccos(50, 2, 1))


@pytest.mark.skipif(not timing.STATUS.exists(), reason="needs /proc, which this system does not have")
def test_memory_that_is_taken_is_seen() -> None:
    before = timing.resident_mb()
    taken = mmap.mmap(-1, 2**26)  # 64 MB of new pages, where an allocator may have old ones left
    np.frombuffer(taken, np.uint8)[:] = 1
    now, peak = timing.resident_mb(), timing.resident_mb("VmHWM")
    assert before is not None
    assert now is not None
    assert peak is not None
    assert now - before > 50
    assert peak >= now - 1
    assert len(taken) == 2**26
    assert timing.resident_mb("VmNothing") is None
