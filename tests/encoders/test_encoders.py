"""Encoders: shapes, stems, parameter counts, layout and initial weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ocssl
from ocssl._core.random import evaluating, generator_for, initialise, single_sample
from ocssl.encoders import ENCODERS, feature_dimension
from ocssl.errors import SettingError


def make(name: str, size: int, width: int, **more: str) -> nn.Module:
    encoder = ENCODERS.build(name, {"width": width, **more}, size)
    initialise(encoder, generator_for(0, "weights"))
    return encoder


@pytest.mark.parametrize("name", [name for name in ENCODERS if "width" in ENCODERS.options(name)])
@pytest.mark.parametrize(("size", "width"), [(8, 1), (16, 4), (32, 8), (96, 4)])
def test_features_have_eight_times_the_width(name: str, size: int, width: int) -> None:
    assert feature_dimension(make(name, size, width), size) == 8 * width


def test_resnet18_at_width_64_has_the_known_number_of_parameters() -> None:
    large = sum(p.numel() for p in make("resnet18", 224, 64).parameters())
    small = sum(p.numel() for p in make("resnet18", 32, 64).parameters())
    assert large == 11_689_512 - 513_000  # the usual network without its classifier
    assert small == large - 64 * 3 * (49 - 9)


@pytest.mark.parametrize(
    ("stem", "size", "side"), [("auto", 32, 32), ("auto", 96, 24), ("large", 32, 8), ("small", 96, 96)]
)
def test_the_stem_decides_the_resolution(stem: str, size: int, side: int) -> None:
    encoder = make("resnet18", size, 4, stem=stem)
    first = encoder.get_submodule("stem")(torch.zeros(1, 3, size, size))
    assert first.shape[-2:] == (side, side)


def test_the_full_encoder_of_the_paper_trains_a_step() -> None:
    learner = ocssl.Learner("solar", image_size=32, settings={"schedule.passes": 1, "schedule.batch": 4})
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    learner.partial_fit(images)
    assert learner.transform(images).shape == (4, 512)


def test_blocks_start_as_identity() -> None:
    encoder = make("resnet18", 16, 4)
    zeros = [m.weight for n, m in encoder.named_modules() if n.endswith("bn2") and isinstance(m, nn.BatchNorm2d)]
    assert len(zeros) == 8
    assert all(bool((weight == 0).all()) for weight in zeros)


def test_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(1)
    first = ocssl.Learner("solar", image_size=16, seed=3, settings={"encoder.width": 2})
    before = torch.get_rng_state()
    torch.manual_seed(2)
    second = ocssl.Learner("solar", image_size=16, seed=3, settings={"encoder.width": 2})
    other = ocssl.Learner("solar", image_size=16, seed=4, settings={"encoder.width": 2})
    assert torch.equal(before, torch.manual_seed(1).get_state())
    pairs = zip(first.objective.parameters(), second.objective.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not all(
        torch.equal(a, b) for a, b in zip(first.objective.parameters(), other.objective.parameters(), strict=True)
    )


def test_convolutions_are_kaiming_normal_by_fan_out() -> None:
    layer = nn.Conv2d(16, 64, 3)
    initialise(layer, generator_for(0, "weights"))
    assert float(layer.weight.detach().std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)


def test_networks_run_channels_last() -> None:
    learner = ocssl.Learner("solar", image_size=16, settings={"encoder.width": 4})
    weights = [m.weight for m in learner.objective.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7])
def test_narrow_encoders_train_in_channels_last_without_corrupting_memory(width: int) -> None:
    learner = ocssl.Learner("er-fifo", image_size=16, settings={"encoder.width": width, "schedule.passes": 1})
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        learner.partial_fit(torch.randint(0, 256, (24, 3, 16, 16), dtype=torch.uint8, generator=generator))
    assert all(bool(torch.isfinite(p).all()) for p in learner.objective.parameters())


class Pixels(nn.Module):
    """An encoder of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.linear(x.flatten(1))
        return features


def test_any_module_that_makes_features_is_accepted_with_its_weights() -> None:
    encoder = Pixels()
    weight = encoder.linear.weight.clone()
    learner = ocssl.Learner("solar", image_size=4, encoder=encoder, settings={"schedule.passes": 1})
    assert torch.equal(encoder.linear.weight, weight)
    images = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    learner.partial_fit(images)
    assert learner.transform(images).shape == (6, 5)
    assert not torch.equal(encoder.linear.weight, weight)


def test_a_module_that_makes_maps_is_refused_with_what_it_gave() -> None:
    with pytest.raises(SettingError, match=r"\(2, 3, 16, 16\)"):
        ocssl.Learner("solar", image_size=16, encoder=nn.Identity())


def test_evaluating_restores_every_layers_own_mode() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    network[0].eval()
    with evaluating(network):
        assert not any(layer.training for layer in network.modules())
    assert [layer.training for layer in network.modules()] == [True, False, True]


def test_single_sample_uses_running_statistics_and_leaves_them_alone() -> None:
    norm = nn.BatchNorm1d(2)
    with single_sample(norm):
        torch.testing.assert_close(norm(torch.tensor([[3.0, -1.0]])), torch.tensor([[3.0, -1.0]]), atol=1e-4, rtol=1e-4)
    assert norm.training
    assert norm.running_mean is not None
    assert norm.running_mean.tolist() == [0, 0]
