"""Teachers: exact copies, exact following, never trained, batch norm in the mode that they were made for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from ocssl.objectives.teachers import Teacher


def network(seed: int = 0) -> SimpleNamespace:
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.ReLU())
    found = SimpleNamespace(encoder=encoder, projector=nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False)))
    for _ in range(3):
        found.projector(found.encoder(torch.randn(6, 3, 2, 2)))  # batch norm statistics of its own
    return found


def state(source: object) -> dict[str, Tensor]:
    parts = {"encoder": source.encoder, "projector": source.projector}  # type: ignore[attr-defined]
    return {f"{name}.{key}": t.clone() for name, part in parts.items() for key, t in part.state_dict().items()}


def views() -> Tensor:
    return torch.randn(2, 6, 3, 2, 2, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("live", [True, False])
def test_take_copies_weights_and_batch_norm_statistics(live: bool) -> None:
    teacher, other = Teacher(network(0), live=live), network(1)
    teacher.take(other)
    assert all(torch.equal(a, b) for a, b in zip(state(teacher).values(), state(other).values(), strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.999, 1.0])
def test_follow_moves_parameters_by_the_formula_and_leaves_statistics_alone(momentum: float) -> None:
    teacher, other = Teacher(network(0), live=True), network(1)
    before = state(teacher)
    teacher.follow(other, momentum)
    parameters = {f"encoder.{n}" for n, _ in other.encoder.named_parameters()}
    parameters |= {f"projector.{n}" for n, _ in other.projector.named_parameters()}
    for name, now in state(teacher).items():
        wanted = momentum * before[name] + (1 - momentum) * state(other)[name] if name in parameters else before[name]
        torch.testing.assert_close(now, wanted)


def test_the_copy_shares_nothing_with_its_source() -> None:
    source = network()
    teacher = Teacher(source, live=False)
    before = state(teacher)
    with torch.no_grad():
        for parameter in source.encoder.parameters():
            parameter.add_(1)
    source.encoder(torch.randn(6, 3, 2, 2))
    assert all(torch.equal(a, b) for a, b in zip(state(teacher).values(), before.values(), strict=True))


def test_nothing_is_trained_and_no_graph_is_made() -> None:
    teacher = Teacher(network(), live=True)
    assert not any(p.requires_grad for p in teacher.parameters())
    assert not teacher(views().requires_grad_()).requires_grad
    assert not teacher.features(views().requires_grad_()).requires_grad


def test_a_frozen_teacher_stays_in_eval_mode_and_forgets_nothing() -> None:
    teacher = Teacher(network(), live=False)
    nn.ModuleDict({"teacher": teacher}).train()
    before = state(teacher)
    together, alone = teacher(views()), teacher(views()[:, :1])
    assert not any(module.training for module in teacher.modules())
    torch.testing.assert_close(together[:, :1], alone)  # rows do not depend on one another
    assert all(torch.equal(a, b) for a, b in zip(state(teacher).values(), before.values(), strict=True))


def test_a_live_teacher_uses_the_statistics_of_each_view_on_its_own() -> None:
    source = network()
    teacher = Teacher(source, live=True)
    nn.ModuleDict({"teacher": teacher}).eval().train()
    assert teacher.encoder.training
    wanted = torch.stack([source.projector(source.encoder(view)) for view in views()])
    torch.testing.assert_close(teacher(views()), wanted)
    joint = network().projector(network().encoder(views().flatten(0, 1))).unflatten(0, (2, 6))
    assert (wanted - joint).abs().max() > 0.01  # views passed together would be caught
