"""The contrastive loss against literal loops, rows without positives or candidates, and cosines."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ocssl.objectives.contrastive import contrast, cosine, cosines, mean, other_view, others


def literal(logits: Tensor, positive: Tensor, candidates: Tensor) -> list[float]:
    rows = []
    for scores, good, allowed in zip(logits.double().tolist(), positive.tolist(), candidates.tolist(), strict=True):
        total = sum(math.exp(s) for s, g, a in zip(scores, good, allowed, strict=True) if g or a)
        losses = [-math.log(math.exp(s) / total) for s, g in zip(scores, good, strict=True) if g]
        rows.append(sum(losses) / len(losses) if losses else 0.0)
    return rows


def case(seed: int, n: int = 6, m: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, m, generator=generator, dtype=torch.float64)
    return logits, torch.rand(n, m, generator=generator) < 0.3, torch.rand(n, m, generator=generator) < 0.6


@pytest.mark.parametrize("seed", range(10))
def test_the_loss_is_the_literal_formula(seed: int) -> None:
    torch.testing.assert_close(contrast(*case(seed)), torch.tensor(literal(*case(seed))), atol=1e-5, rtol=1e-5)


def test_the_oracle_catches_a_denominator_without_the_positives() -> None:
    logits, positive, candidates = case(0)
    without = logits.masked_fill(~(candidates & ~positive), -torch.inf).logsumexp(1)
    wrong = ((without[:, None] - logits).masked_fill(~positive, 0).sum(1) / positive.sum(1).clamp_min(1)).float()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(wrong, torch.tensor(literal(*case(0))), atol=1e-5, rtol=1e-5)


def test_rows_without_positives_or_without_candidates_cost_nothing_and_pass_no_gradient() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    positive = torch.zeros(3, 4, dtype=torch.bool)
    positive[0, 1] = True
    candidates = positive.clone()
    candidates[1] = True  # row 1: no positives; row 2: neither
    losses = contrast(logits, positive, candidates)
    losses.sum().backward()
    assert losses.tolist() == [0.0, 0.0, 0.0]  # row 0: the positive is alone
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(-50, 50), st.floats(0.1, 500))
def test_a_constant_on_a_row_changes_nothing_and_large_logits_stay_finite(
    seed: int, shift: float, scale: float
) -> None:
    logits, positive, candidates = case(seed)
    torch.testing.assert_close(
        contrast(logits + shift, positive, candidates), contrast(logits, positive, candidates), atol=1e-4, rtol=1e-4
    )
    assert bool(torch.isfinite(contrast(scale * logits, positive, candidates)).all())


def test_gradients_equal_finite_differences() -> None:
    logits, positive, candidates = case(3)
    step, direction = 1e-4, torch.randn(6, 8, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    logits.requires_grad_()
    contrast(logits, positive, candidates).sum().backward()
    up, down = (sum(literal(logits.detach() + s * direction, positive, candidates)) for s in (step, -step))
    assert logits.grad is not None
    assert float((logits.grad * direction).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-3)


def test_masks_name_the_pairs_that_they_say() -> None:
    assert (~others(4, torch.device("cpu"))).nonzero().tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert other_view(4, torch.device("cpu")).nonzero().tolist() == [[0, 2], [1, 3], [2, 0], [3, 1]]


def test_cosines_are_those_of_torch_and_zero_for_zero_vectors() -> None:
    a, b = torch.randn(5, 7), torch.randn(5, 7)
    torch.testing.assert_close(cosine(a, b), torch.cosine_similarity(a, b))
    torch.testing.assert_close(cosines(a, b), torch.cosine_similarity(a[:, None], b[None], dim=-1))
    zero = torch.zeros(5, 7, requires_grad=True)
    (cosine(zero, b).sum() + cosines(zero, b).sum()).backward()
    assert zero.grad is not None
    assert float(zero.grad.abs().sum()) == 0


def test_cosines_are_float32_under_autocast() -> None:
    a = torch.randn(5, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = cosines(a, a)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, cosines(a, a))


def test_the_mean_of_no_rows_is_zero_and_still_has_a_gradient() -> None:
    rows = torch.zeros(0, requires_grad=True)
    mean(rows).backward()
    assert float(mean(rows).detach()) == 0
    assert float(mean(torch.tensor([1.0, 2.0]))) == 1.5
