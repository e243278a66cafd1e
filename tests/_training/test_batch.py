"""Joining stream and replay: side by side, or mixed as in LUMP."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from conftest import random_images, small_learner
from ocssl._training.batch import Join
from ocssl.memory import Replay
from ocssl.settings import ScheduleSettings


def replay(n: int) -> Replay:
    index = torch.arange(n)
    return Replay(index, index, index, torch.zeros(n, 3, 4, 4, dtype=torch.uint8), torch.ones(n))


def join(mix: float, batch: int = 12, seed: int = 0) -> Join:
    return Join(ScheduleSettings(mix=mix, batch=batch), torch.Generator().manual_seed(seed))


def views(rows: int) -> Tensor:
    return torch.randn(2, rows, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def test_side_by_side_leaves_every_row_alone() -> None:
    given = views(9)
    (joined,), rest = join(0.0)((given,), 4, replay(5))
    assert torch.equal(joined, given)
    assert len(rest) == 5


def literal_mix(given: Tensor, share: float) -> Tensor:
    n = given.shape[1] // 2
    rows = [[share * given[v, i] + (1 - share) * given[v, n + i] for i in range(n)] for v in range(len(given))]
    return torch.stack([torch.stack(view) for view in rows])


def test_mixing_has_one_share_a_step_and_keeps_the_pairing_of_both_views() -> None:
    given = views(8)
    small = given[:1, :, :, :2, :2]
    (joined, local), rest = join(0.4)((given, small), 4, replay(4))
    assert joined.shape == (2, 4, 3, 4, 4)
    assert len(rest) == 0  # nothing of a mixed image is written back
    share = join(0.4)._beta()
    torch.testing.assert_close(joined, literal_mix(given, share))
    torch.testing.assert_close(local, literal_mix(small, share))
    with pytest.raises(AssertionError):  # the shares exchanged
        torch.testing.assert_close(joined, literal_mix(given, 1 - share))


def test_shares_follow_the_beta_distribution() -> None:
    mixer = join(0.4)
    shares = np.array([mixer._beta() for _ in range(4000)])
    assert stats.kstest(shares, stats.beta(0.4, 0.4).cdf).pvalue > 0.001
    assert stats.kstest(shares, stats.beta(1.0, 1.0).cdf).pvalue < 1e-6  # a wrong parameter is seen


def test_a_tiny_parameter_gives_a_share_all_the_same() -> None:
    mixer = join(1e-6)
    assert all(0 <= mixer._beta() <= 1 for _ in range(100))


@pytest.mark.parametrize(("fresh", "stored", "wanted"), [(4, 100, 4), (4, 4, 4), (4, 3, 0), (0, 50, 0)])
def test_mixing_draws_one_sample_for_each_stream_row_or_none(fresh: int, stored: int, wanted: int) -> None:
    assert join(0.4).wanted(fresh, stored) == wanted


def test_side_by_side_fills_the_batch_up() -> None:
    assert join(0.0).wanted(4, 100) == 8
    assert join(0.0).wanted(0, 100) == 12


def test_lump_trains_on_as_many_rows_as_the_stream_has_and_refreshes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner("lump", schedule__stream_batch=5)
    rows: list[int] = []
    forward = learner.objective.forward

    def spy(views: Tensor) -> object:
        rows.append(views.shape[1])
        return forward(views)

    monkeypatch.setattr(learner.objective, "forward", spy)
    learner.partial_fit(random_images(5))
    before = learner.memory.table()
    learner.partial_fit(random_images(5, seed=1))
    after = learner.memory.table()
    assert rows == [5, 5, 5, 5]
    assert (after["draws"][:5] == 2).all()
    assert np.array_equal(before["loss"], after["loss"][:5])
