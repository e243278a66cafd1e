"""DINO against its literal float64 formulas: loss, centre, temperatures, slow copy, local views; broken parts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ocssl
from conftest import random_images, small_learner
from ocssl.errors import SettingError
from ocssl.objectives import OBJECTIVES, dino
from ocssl.objectives.dino import DINO, dino_loss, teacher_shares

Rows = list[list[float]]


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def literal_shares(scores: list[float], center: list[float], temperature: float) -> list[float]:
    return softmax([(s - c) / temperature for s, c in zip(scores, center, strict=True)])


def literal(taught: Tensor, scores: Tensor, center: Tensor, low: float, high: float) -> Tensor:
    """For each sample the mean of -sum_k share_k log p_k over pairs of a global view and another view."""
    losses = []
    for sample in range(taught.shape[1]):
        pairs = []
        for g in range(len(taught)):
            shares = literal_shares(taught[g, sample].tolist(), center.tolist(), low)
            for v in range(len(scores)):
                if v != g:
                    student = softmax([s / high for s in scores[v, sample].tolist()])
                    pairs.append(-sum(t * math.log(p) for t, p in zip(shares, student, strict=True)))
        losses.append(sum(pairs) / len(pairs))
    return torch.tensor(losses, dtype=torch.float64)


def some(local: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the copy [2, B, K] and of the student [2 + local, B, K], cosines, and a centre [K]."""
    generator = torch.Generator().manual_seed(3)
    taught, scores = (2 * torch.rand(n, 5, 7, generator=generator, dtype=dtype) - 1 for n in (2, 2 + local))
    return taught, scores, 0.3 * torch.randn(7, generator=generator, dtype=dtype)


def fast(taught: Tensor, scores: Tensor, center: Tensor) -> Tensor:
    return dino_loss(teacher_shares(taught, center.float(), 0.05), scores, 0.2)


@pytest.mark.parametrize("local", [0, 1, 4])
def test_the_loss_is_the_literal_formula_for_every_sample(local: int) -> None:
    torch.testing.assert_close(fast(*some(local)).double(), literal(*some(local), 0.05, 0.2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("local", [0, 3])
def test_the_oracle_catches_wrong_formulas(local: int) -> None:
    taught, scores, center = some(local)
    own_views = dino_loss(teacher_shares(taught.flip(0), center.float(), 0.05), scores, 0.2)
    not_centred = fast(taught, scores, torch.zeros(7))
    wrong_sign = fast(taught, scores, -center)
    exchanged = dino_loss(teacher_shares(taught, center.float(), 0.2), scores, 0.05)
    summed = (1 + local) * 2 * fast(taught, scores, center)
    centred_first = dino_loss(torch.softmax(taught / 0.05 - center, -1).float(), scores, 0.2)
    for wrong in (own_views, not_centred, wrong_sign, exchanged, summed, centred_first):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(wrong.double(), literal(taught, scores, center, 0.05, 0.2), atol=1e-5, rtol=1e-5)


def test_gradients_equal_finite_differences_and_none_reaches_the_copys_scores() -> None:
    taught, scores, center = some(2)
    taught.requires_grad_()
    scores.requires_grad_()
    fast(taught, scores, center).sum().backward()
    direction = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        up, down = (float(literal(taught, scores + s * direction, center, 0.05, 0.2).sum()) for s in (1e-4, -1e-4))
    assert scores.grad is not None
    assert float((scores.grad * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-3)
    assert taught.grad is None


def small(**options: Any) -> DINO:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 6), nn.ReLU())
    objective = OBJECTIVES.build("dino", options, encoder, 6, 9)
    assert isinstance(objective, DINO)
    objective.begin()
    return objective


def views(n: int = 2, size: int = 4) -> Tensor:
    return torch.randn(n, 5, 3, size, size, generator=torch.Generator().manual_seed(n))


def scores_by_hand(encoder: nn.Module, projector: nn.Module, batch: Tensor) -> Tensor:
    """Cosines of the bottleneck with the prototypes, in float64."""
    projector.double()
    found = [projector.mlp(encoder.double()(view.double())) for view in batch]
    weight = projector.prototypes.weight
    return torch.stack(
        [(z / z.norm(dim=1, keepdim=True)) @ (weight / weight.norm(dim=1, keepdim=True)).T for z in found]
    )


@pytest.mark.parametrize("local", [False, True])
def test_both_networks_score_what_they_should_see(local: bool) -> None:
    """The copy scores the global views only, the student all; the centre is 0 at first."""
    crops = (views(), views(3, 2)) if local else (views(),)
    out = small()(*crops)
    hand = small()
    taught = scores_by_hand(hand.target.encoder, hand.target.projector, views())
    scores = torch.cat([scores_by_hand(hand.encoder, hand.projector, crop) for crop in crops])
    torch.testing.assert_close(
        out.loss.double(), literal(taught, scores, torch.zeros(9), 0.04, 0.1), atol=1e-4, rtol=1e-4
    )
    assert out.features.shape == (2, 5, 6)  # rules rank by global views
    assert out.projected.shape == (2, 5, 9)


def centre_by_hand(objective: DINO, batches: list[Tensor], momentum: float) -> Tensor:
    center = torch.zeros(9, dtype=torch.float64)
    for batch in batches:
        taught = [[float(x) for x in row] for view in objective.target(batch) for row in view]
        mean = [sum(column) / len(taught) for column in zip(*taught, strict=True)]
        center = momentum * center + (1 - momentum) * torch.tensor(mean, dtype=torch.float64)
    return center


def test_the_centre_is_the_literal_running_mean_of_the_copys_scores_and_moves_after_the_step() -> None:
    objective = small(center_momentum=0.7, momentum=1.0)
    batches = [views(), views() + 1, views() - 2]
    for batch in batches:
        before = objective.center.clone()
        objective(batch)
        assert torch.equal(objective.center, before)  # not within the pass
        objective.after_step()
    torch.testing.assert_close(objective.center.double(), centre_by_hand(small(), batches, 0.7), atol=1e-5, rtol=1e-5)
    with pytest.raises(AssertionError):  # another momentum
        torch.testing.assert_close(objective.center.double(), centre_by_hand(small(), batches, 0.6), atol=1e-5, rtol=0)


def test_the_copy_moves_by_the_literal_moving_average_after_each_step() -> None:
    objective = small(momentum=0.9)
    expected = [p.detach().double().clone() for p in objective.target.parameters()]
    for _ in range(3):
        with torch.no_grad():
            for p in [*objective.encoder.parameters(), *objective.projector.parameters()]:
                p.add_(1)
        objective.after_step()
        online = [*objective.encoder.parameters(), *objective.projector.parameters()]
        expected = [0.9 * old + 0.1 * new.detach().double() for old, new in zip(expected, online, strict=True)]
    for got, wanted in zip(objective.target.parameters(), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)
    assert not any(p.requires_grad for p in objective.target.parameters())


def test_the_teachers_temperature_warms_up_in_a_straight_line() -> None:
    objective = small(start_temperature=0.02, teacher_temperature=0.06, warmup=4)
    seen = []
    for _ in range(6):
        seen.append(float(objective.current_temperature()))
        objective.after_step()
    assert seen == pytest.approx([0.02, 0.03, 0.04, 0.05, 0.06, 0.06])


def test_prototypes_keep_their_directions_for_the_first_steps_and_then_learn() -> None:
    learner = small_learner("er-fifo", objective__name="dino", objective__freeze=2, schedule__passes=1)
    weight = learner.objective.projector.prototypes.weight

    def direction() -> Tensor:
        return weight.detach() / weight.detach().norm(dim=1, keepdim=True)

    start, moved = direction(), []
    for seed in range(4):
        learner.partial_fit(random_images(6, seed=seed))
        moved.append(not torch.allclose(direction(), start, atol=1e-6))
    assert moved == [False, False, True, True]


def test_centring_and_sharpening_do_what_they_are_for() -> None:
    """Without the centre one prototype wins everywhere; with a high temperature shares are nearly equal."""
    scores = torch.zeros(1, 4, 5)
    scores[..., 2] = 1.0  # what all samples agree on
    scores[0, range(4), [0, 1, 3, 4]] += 0.5  # what makes a sample differ
    center = scores.mean(dim=(0, 1))
    assert teacher_shares(scores, torch.zeros(5), 0.04).argmax(-1).tolist() == [[2, 2, 2, 2]]
    assert teacher_shares(scores, center, 0.04).argmax(-1).tolist() == [[0, 1, 3, 4]]
    assert float(teacher_shares(scores, center, 100.0).max()) < 0.21


def with_views(**more: Any) -> ocssl.Learner:
    """DINO with three local views of 4 px."""
    local = {"views__local": 3, "views__local_size": 4, "objective__name": "dino"}
    return small_learner("er-fifo", **local, **more)


def test_local_views_leave_the_running_statistics_to_the_global_ones() -> None:
    learner = with_views()
    stats = {name: b.clone() for name, b in learner.encoder.named_buffers()}
    batch, local = learner.views.crops(random_images(6), torch.Generator().manual_seed(0))
    learner.objective(batch, local)
    with_local = {name: b.clone() for name, b in learner.encoder.named_buffers()}
    for name, buffer in learner.encoder.named_buffers():
        buffer.copy_(stats[name])
    learner.objective(batch)
    assert all(torch.equal(with_local[name], b) for name, b in learner.encoder.named_buffers())
    assert any(not torch.equal(stats[name], b) for name, b in with_local.items())


def test_with_local_views_a_learner_repeats_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole, first = with_views(), with_views()
    expected = [whole.partial_fit(random_images(5, seed=i)) for i in range(5)]
    done = [first.partial_fit(random_images(5, seed=i)) for i in range(2)]
    first.save(tmp_path)
    second = ocssl.Learner.load(tmp_path)
    done += [second.partial_fit(random_images(5, seed=i)) for i in range(2, 5)]
    assert done == expected
    one, two = whole.tensors(), second.tensors()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert "network.objective.center" in one


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"objective__name": "simsiam", "views__local": 2}, "takes no local views"),
        ({"objective__name": "dino", "views__local": 2, "views__local_size": 16}, "larger than the images"),
    ],
)
def test_local_views_that_cannot_be_are_an_error(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        small_learner("er-fifo", **settings)


def test_the_loss_is_float32_under_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert small()(views()).loss.dtype == torch.float32


def test_the_oracle_catches_pairs_of_a_view_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: pairs of a view with itself count."""

    def with_itself(shares: Tensor, scores: Tensor, temperature: float) -> Tensor:
        logs = torch.log_softmax(scores.float() / temperature, dim=-1)
        return -torch.einsum("gbk,vbk->bgv", shares, logs).mean((1, 2))

    monkeypatch.setattr(dino, "dino_loss", with_itself)
    with pytest.raises(AssertionError):
        test_both_networks_score_what_they_should_see(True)
