"""SimCLR against its literal float64 formula: every sample has the losses of both its views."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.objectives import SimCLR
from ocssl.objectives.contrastive import contrastive_distance, simclr_loss


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def literal(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """NT-Xent anchor by anchor, then the mean of a sample's two anchors."""
    rows, batch = torch.cat([z1, z2]).double().tolist(), len(z1)
    anchors = []
    for i in range(2 * batch):
        positive = (i + batch) % (2 * batch)
        shares = {j: math.exp(cosine(rows[i], rows[j]) / temperature) for j in range(2 * batch) if j != i}
        anchors.append(-math.log(shares[positive] / sum(shares.values())))
    return torch.tensor([(anchors[i] + anchors[i + batch]) / 2 for i in range(batch)], dtype=torch.float64)


def literal_distance(prediction: Tensor, target: Tensor) -> float:
    ours, theirs = prediction.double().tolist(), target.double().tolist()
    total = 0.0
    for anchors, candidates in ((ours, theirs), (theirs, ours)):
        for i, anchor in enumerate(anchors):
            shares = [math.exp(cosine(anchor, candidate) / 0.2) for candidate in candidates]
            total -= math.log(shares[i] / sum(shares)) / (2 * len(anchors))
    return total


def two(batch: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 9, generator=generator), torch.randn(batch, 9, generator=generator)


def small() -> SimCLR:
    torch.manual_seed(0)
    return SimCLR(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()), 5, 16)


@pytest.mark.parametrize("temperature", [0.5, 0.1])
@pytest.mark.parametrize("batch", [1, 2, 6])
def test_the_loss_is_the_literal_formula_for_every_sample(batch: int, temperature: float) -> None:
    z1, z2 = two(batch)
    torch.testing.assert_close(
        simclr_loss(z1, z2, temperature), literal(z1, z2, temperature).float(), atol=1e-5, rtol=1e-5
    )


def test_the_oracle_catches_a_view_that_is_left_out_and_a_row_that_is_its_own_negative() -> None:
    z1, z2 = two()
    expected = literal(z1, z2, 0.5).float()
    rows = F.normalize(torch.cat([z1, z2]))
    logits = rows @ rows.T / 0.5
    positive = torch.arange(12).roll(6)
    with_itself = F.cross_entropy(logits, positive, reduction="none").view(2, 6).mean(0)
    first_view_only = F.cross_entropy(logits.fill_diagonal_(-torch.inf), positive, reduction="none")[:6]
    for wrong in (with_itself, first_view_only):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(wrong, expected, atol=1e-5, rtol=1e-5)


def test_the_mean_over_samples_is_nt_xent_of_all_rows() -> None:
    z1, z2 = two()
    rows = F.normalize(torch.cat([z1, z2]))
    logits = (rows @ rows.T / 0.5).fill_diagonal_(-torch.inf)
    reference = F.cross_entropy(logits, torch.arange(12).roll(6))
    torch.testing.assert_close(simclr_loss(z1, z2, 0.5).mean(), reference)


def test_losses_follow_the_samples_and_do_not_depend_on_which_view_is_first() -> None:
    z1, z2 = two()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    loss = simclr_loss(z1, z2, 0.5)
    torch.testing.assert_close(simclr_loss(z1[order], z2[order], 0.5), loss[order])
    torch.testing.assert_close(simclr_loss(z2, z1, 0.5), loss)


def test_low_temperatures_do_not_overflow() -> None:
    z1, z2 = (z.requires_grad_() for z in two())
    loss = simclr_loss(z1, z2, 1e-3)
    loss.mean().backward()
    assert loss.isfinite().all()
    assert z1.grad is not None
    assert z1.grad.isfinite().all()


def test_gradients_equal_finite_differences() -> None:
    z1, z2 = two()
    z1.requires_grad_()
    simclr_loss(z1, z2, 0.5).sum().backward()
    direction = torch.randn(6, 9, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    at = z1.detach().double()
    up, down = (float(literal(at + s * direction, z2.double(), 0.5).sum()) for s in (1e-3, -1e-3))
    assert z1.grad is not None
    assert float((z1.grad * direction).sum()) == pytest.approx((up - down) / 2e-3, rel=1e-3)


def test_the_distance_is_the_literal_symmetric_contrast_to_constant_targets() -> None:
    prediction, target = (x.requires_grad_() for x in two())
    distance = small().distance(prediction[None], target[None])
    assert distance.item() == pytest.approx(literal_distance(prediction, target), rel=1e-5)
    distance.backward()
    assert prediction.grad is not None
    assert prediction.grad.abs().sum() > 0
    assert target.grad is None


def test_the_oracle_catches_a_distance_that_is_not_symmetric() -> None:
    prediction, target = two()
    one_way = F.cross_entropy(F.normalize(prediction) @ F.normalize(target).T / 0.2, torch.arange(6))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(one_way, torch.tensor(literal_distance(prediction, target)).float())


def test_the_distance_to_itself_is_smaller_than_to_shuffled_rows() -> None:
    prediction, _ = two()
    assert contrastive_distance(prediction, prediction) < contrastive_distance(prediction, prediction.roll(1, 0))


def test_the_objective_trains_the_loss_of_its_projections() -> None:
    views = torch.randn(2, 6, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    out = small()(views)
    torch.testing.assert_close(out.loss, simclr_loss(*out.projected, 0.5))
    torch.testing.assert_close(out.total(torch.ones(6)), out.loss.mean())


def test_the_loss_is_exact_under_autocast() -> None:
    z1, z2 = two()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, distance = simclr_loss(z1, z2, 0.5), contrastive_distance(z1, z2)
    torch.testing.assert_close(loss, simclr_loss(z1, z2, 0.5))
    torch.testing.assert_close(distance, contrastive_distance(z1, z2))
