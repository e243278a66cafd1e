"""The smallest numbers of a column: the same whether it is looked at in runs or as a whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.memory.store import RUN, smallest_slots, up_to_nth

IN_RUNS = 0  # as `one_pass`: no column is too short

lengths, seeds = st.integers(1, 12 * RUN), st.integers(0, 99)


def not_above_nth(values: Tensor, n: int) -> list[int]:
    numbers = values.tolist()
    threshold = sorted(numbers)[n - 1]
    return [place for place, number in enumerate(numbers) if number <= threshold]


def column(m: int, levels: int, seed: int) -> Tensor:
    """Random numbers, with ties where there are levels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, levels, (m,), generator=generator).float() if levels else torch.rand(m, generator=generator)


@given(m=lengths, share=st.floats(0, 1), levels=st.sampled_from([0, 1, 3, 100]), seed=seeds)
@settings(max_examples=200, deadline=None)
@pytest.mark.slow
def test_runs_name_all_values_up_to_the_nth_smallest(m: int, share: float, levels: int, seed: int) -> None:
    values, n = column(m, levels, seed), max(1, int(share * m / RUN))  # often few enough for runs
    assert up_to_nth(values, n, one_pass=IN_RUNS).tolist() == not_above_nth(values, n)
    assert up_to_nth(values, n).tolist() == not_above_nth(values, n)


@given(m=lengths, share=st.floats(0, 1), seed=seeds)
@settings(max_examples=100, deadline=None)
def test_the_smallest_come_in_order(m: int, share: float, seed: int) -> None:
    values = column(m, 0, seed).double()
    for n in {0, int(share * m / RUN), int(share * m)}:
        assert (
            smallest_slots(values, n, one_pass=IN_RUNS).tolist()
            == sorted(range(m), key=values.tolist().__getitem__)[:n]
        )


@pytest.mark.parametrize("where", [0, 5, RUN, 9 * RUN, 10 * RUN + 3])
def test_a_nan_hides_no_small_value_of_its_run(where: int) -> None:
    values = column(10 * RUN + 7, 0, 0)
    values[where] = torch.nan
    values[0 if where == 5 else 5] = -1.0
    assert smallest_slots(values, 3, one_pass=IN_RUNS).tolist() == values.topk(3, largest=False).indices.tolist()


def test_a_strided_column_is_read_where_it_lies() -> None:
    table = column(40 * RUN, 0, 1).view(-1, 4)
    assert up_to_nth(table[:, 2], 2, one_pass=IN_RUNS).tolist() == not_above_nth(table[:, 2], 2)


def without_the_end(values: Tensor, n: int) -> Tensor:
    return up_to_nth(values[: len(values) // RUN * RUN], n, one_pass=IN_RUNS)


def one_of_each_run(values: Tensor, n: int) -> Tensor:
    lowest = values[: len(values) // RUN * RUN].view(-1, RUN).min(1)
    chosen = lowest.values.topk(n, largest=False).indices
    return (chosen * RUN + lowest.indices[chosen]).sort().values


@pytest.mark.parametrize("broken", [without_the_end, one_of_each_run])
def test_the_oracle_catches_a_search_that_looks_too_little(broken: Callable[[Tensor, int], Tensor]) -> None:
    columns = [column(20 * RUN + 30, 0, seed) for seed in range(10)]
    assert any(broken(values, 8).tolist() != not_above_nth(values, 8) for values in columns)
