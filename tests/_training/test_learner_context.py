"""The learner's answers to rules: one virtual step, gradients one image at a time, and nothing changed by asking."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from conftest import random_images, small_learner
from ocssl._core.random import frozen_statistics
from ocssl._training.learner_context import LearnerContext, last_layers
from ocssl.objectives import Objective, Output, SimSiam
from ocssl.settings import ViewSettings
from ocssl.views import Views

LR = 0.5


class Encoder(nn.Module):
    """Convolutions with batch norm, of which one layer is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.twice = nn.Conv2d(6, 6, 3, padding=1)
        self.again = self.twice
        self.last = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(torch.relu(self.twice(self.first(x))))
        return torch.relu(self.last(x)).mean((2, 3))


def objective(kind: type[SimSiam] = SimSiam) -> SimSiam:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = kind(Encoder(), 6, 12)
    made(torch.randn(2, 32, 3, 8, 8, generator=torch.Generator().manual_seed(1)))  # statistics of its own
    return made.double().train()


class DoubleViews(Views):
    def __call__(self, images: Tensor, generator: torch.Generator, views: int = 2) -> Tensor:
        return super().__call__(images, generator, views).double()


def views() -> DoubleViews:
    return DoubleViews(ViewSettings(), 8)


def context(network: Objective, stream: Tensor) -> LearnerContext:
    return LearnerContext(network, views(), torch.Generator().manual_seed(3), stream, LR)


def increase_of_a_real_step(network: Objective, stream: Tensor, images: Tensor, momentum: float = 0.0) -> Tensor:
    """A copy of the network takes the step with PyTorch's own SGD; momentum above 0 is wrong."""
    copy, generator = deepcopy(network), torch.Generator().manual_seed(3)
    seen, asked = views()(stream, generator), views()(images, generator)
    optimizer = torch.optim.SGD(copy.parameters(), LR, momentum)
    with frozen_statistics(copy):
        before = copy(asked).loss.detach()
        for _ in range(2 if momentum else 1):
            optimizer.zero_grad()
            copy(seen).loss.mean().backward()
            optimizer.step()
        return copy(asked).loss.detach() - before


def test_the_loss_increase_is_that_of_a_plain_sgd_step_on_the_stream() -> None:
    network, stream, images = objective(), random_images(5), random_images(9, seed=1)
    increase = context(network, stream).loss_increase(images)
    assert increase.shape == (9,)
    assert increase.abs().max() > 1e-3
    torch.testing.assert_close(increase, increase_of_a_real_step(network, stream, images))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(increase, increase_of_a_real_step(network, stream, images, momentum=0.9))


def test_the_virtual_step_follows_what_is_trained_where_that_is_a_batch_loss() -> None:
    class Twice(SimSiam):
        def forward(self, views: Tensor) -> Output:
            out = super().forward(views)
            return Output(out.loss, out.features, out.projected, 2 * out.loss.mean())

    stream, images = random_images(5), random_images(9, seed=1)
    once, double = objective(), objective(Twice)
    half = LearnerContext(double, views(), torch.Generator().manual_seed(3), stream, LR / 2)
    torch.testing.assert_close(half.loss_increase(images), context(once, stream).loss_increase(images))


@pytest.mark.parametrize(("b", "n"), [(1, 1), (1, 6), (4, 1)])
def test_one_sample_alone_gives_finite_answers(b: int, n: int) -> None:
    for stream in (random_images(b), torch.zeros(b, 3, 8, 8, dtype=torch.uint8)):
        asked = context(objective(), stream)
        assert bool(torch.isfinite(asked.loss_increase(random_images(n))).all())
        assert bool(torch.isfinite(asked.gradients([random_images(n)])).all())


def one_at_a_time(network: Objective, batches: list[Tensor]) -> Tensor:
    """Autograd for each image alone, in eval mode, then the mean over each batch."""
    copy = deepcopy(network).eval()
    pictures = views()(torch.cat(batches), torch.Generator().manual_seed(3))
    rows = []
    for i in range(pictures.shape[1]):
        copy.zero_grad()
        copy(pictures[:, i : i + 1]).loss.sum().backward()
        rows.append(
            torch.cat(
                [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in last_layers(copy)]
            )
        )
    return torch.stack([part.mean(0) for part in torch.stack(rows).split([len(b) for b in batches])])


def in_train_mode(network: Objective, batches: list[Tensor]) -> Tensor:
    """Broken: batch statistics make each image's gradient depend on the others."""
    pictures = views()(torch.cat(batches), torch.Generator().manual_seed(3))
    rows = []
    for part in pictures.split([len(b) for b in batches], dim=1):
        copy = deepcopy(network).train()
        with frozen_statistics(copy):
            copy(part).loss.mean().backward()
        rows.append(torch.cat([p.grad.flatten() for p in last_layers(copy) if p.grad is not None]))
    return torch.stack(rows)


BATCHES = [random_images(4), random_images(3, seed=1), *random_images(3, seed=2).split(1)]


def test_gradients_are_means_of_those_of_one_image_at_a_time() -> None:
    network = objective()
    rows = context(network, random_images(2)).gradients(BATCHES)
    torch.testing.assert_close(rows, one_at_a_time(network, BATCHES))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(rows[:2], in_train_mode(network, BATCHES[:2]))


def test_gradients_equal_finite_differences() -> None:
    network = objective()
    rows = context(network, random_images(2)).gradients(BATCHES)
    generator, step = torch.Generator().manual_seed(5), 1e-6
    weights = last_layers(network)
    directions = [torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in weights]
    losses = []
    for sign in (1, -1):
        copy = deepcopy(network).eval()
        pictures = views()(torch.cat(BATCHES), torch.Generator().manual_seed(3))
        with torch.no_grad():
            # targets are stopped: only the prediction's side moves, so they come from the unmoved copy
            fixed = [copy.projector(copy.encoder(view)) for view in pictures]
            for weight, direction in zip(last_layers(copy), directions, strict=True):
                weight += sign * step * direction
            moved = [copy.predictor(copy.projector(copy.encoder(view))) for view in pictures]
            sides = [torch.cosine_similarity(moved[v], fixed[1 - v]) for v in (0, 1)]
        losses.append(
            torch.stack([part.mean() for part in (-(sides[0] + sides[1]) / 2).split([len(b) for b in BATCHES])])
        )
    slopes = (losses[0] - losses[1]) / (2 * step)
    along = rows @ torch.cat([d.flatten() for d in directions])
    torch.testing.assert_close(along, slopes, rtol=1e-3, atol=1e-6)


class Contrasts(SimSiam):
    """A loss in which the other samples of the batch matter."""

    contrastive: ClassVar[bool] = True

    def forward(self, views: Tensor) -> Output:
        out = super().forward(views)
        return Output(out.loss - out.loss.mean(), out.features, out.projected)


def test_contrastive_gradients_have_the_other_samples_as_negatives() -> None:
    network = objective(Contrasts)
    rows = context(network, random_images(2)).gradients(BATCHES)
    alone = one_at_a_time(objective(), BATCHES)
    sizes = torch.tensor([len(b) for b in BATCHES], dtype=torch.float64)
    overall = (alone * sizes[:, None]).sum(0) / sizes.sum()
    torch.testing.assert_close(rows, alone - overall)


def everything(network: Objective) -> dict[str, Tensor]:
    found = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return found | {f"grad.{name}": p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


ASKS: list[Callable[[LearnerContext], Tensor]] = [
    lambda asked: asked.loss_increase(random_images(6, seed=4)),
    lambda asked: asked.loss_increase(random_images(1, seed=4)),
    lambda asked: asked.gradients(BATCHES),
]


@pytest.mark.parametrize("ask", ASKS)
def test_asking_changes_no_weight_gradient_or_statistic(ask: Callable[[LearnerContext], Tensor]) -> None:
    network = objective()
    network(torch.randn(2, 8, 3, 8, 8, dtype=torch.float64)).loss.mean().backward()
    network.encoder.first.eval()
    before, modes = everything(network), [m.training for m in network.modules()]
    answer = ask(context(network, random_images(4)))
    after = everything(network)
    assert not answer.requires_grad
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert modes == [m.training for m in network.modules()]
    assert all(m.track_running_stats for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))


@pytest.mark.parametrize("rule", ["memory.draw=mir", "memory.keep=gss"])
def test_a_learner_asks_without_touching_its_optimizer(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part, name = rule.split("=")
    learner = small_learner("er-reservoir", **{part.replace(".", "__"): name})
    asked = []

    def watch(method: str) -> None:
        original = getattr(LearnerContext, method)

        def watched(self: LearnerContext, images: Tensor) -> Tensor:
            before = {key: tensor.clone() for key, tensor in learner.tensors().items() if "generator" not in key}
            answer: Tensor = original(self, images)
            after = learner.tensors()
            assert all(torch.equal(before[key], after[key]) for key in before)
            asked.append(method)
            return answer

        monkeypatch.setattr(LearnerContext, method, watched)

    watch("loss_increase")
    watch("gradients")
    for number in range(6):
        learner.partial_fit(random_images(10, seed=number))
    assert set(asked) == {"loss_increase" if name == "mir" else "gradients"}


def test_the_last_layers_are_those_of_the_last_block_and_the_projector() -> None:
    learner = small_learner(encoder__name="resnet10")
    network = learner.objective
    block = list(network.encoder.stages)[-1]
    expected = [*block.parameters(), *(p for p in network.projector.parameters() if p.requires_grad)]
    found = last_layers(network)
    assert len(found) == len(expected)
    assert all(a is b for a, b in zip(found, expected, strict=True))


def test_the_last_layers_of_a_frozen_encoder_are_the_projectors() -> None:
    network = objective()
    network.encoder.requires_grad_(False)
    assert all(
        a is b
        for a, b in zip(
            last_layers(network), (p for p in network.projector.parameters() if p.requires_grad), strict=True
        )
    )
