"""Every encoder passes the contract check, and the check catches encoders that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ocssl.checks import ContractError, check_encoder
from ocssl.encoders import ENCODERS
from ocssl.errors import SettingError
from small_encoders import small_encoder


@pytest.mark.parametrize("label", list(ENCODERS))
def test_every_encoder_passes(label: str) -> None:
    options = dict(small_encoder(label))
    name = options.pop("name")
    check_encoder(lambda size: ENCODERS.build(name, options, size), image_size=16)


class Linear(nn.Module):
    """A right one, from which wrong ones are made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.linear(x.flatten(1))
        return features


class OfTheBatch(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) - super().forward(x).mean(0)


class Drifting(Linear):
    """Remembers what is not in its state."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += self.training
        return super().forward(x) * (1 + self.seen)


class Rescaling(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.div_(2))


class Counting(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return super().forward(x)


class Noisy(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.randn(x.shape))


class Detached(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return (super().forward(x).detach() + 0 * self.linear.bias.sum()).requires_grad_()


class Double(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).double()


class Infinite(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 0


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        (OfTheBatch, "depend on its batch"),
        (Drifting, "state_dict does not hold"),
        (Rescaling, "other features|changes its input"),
        (Counting, "changes the encoder"),
        (Noisy, "random|other features"),
        (Detached, "no gradient reaches"),
        (Double, "float32"),
        (Infinite, "not finite"),
    ],
)
def test_a_wrong_encoder_is_caught(part: Callable[[], nn.Module], complaint: str) -> None:
    check_encoder(lambda _: Linear(), image_size=4)
    with pytest.raises((ContractError, SettingError), match=complaint):
        check_encoder(lambda _: part(), image_size=4)
