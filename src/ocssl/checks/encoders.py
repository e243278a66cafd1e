"""The contract of encoders."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ocssl._core.random import evaluating
from ocssl.checks.contract import global_randomness_untouched, maker, require, seeded
from ocssl.encoders import ENCODERS, feature_dimension
from ocssl.encoders.randomness import own_randomness


def check_encoder(part: Any, image_size: int = 32) -> None:
    """Float32 features [n, D], of each image alone in eval mode; gradients; copies and the state give the same bits."""
    make = maker(part, ENCODERS, image_size)

    def made() -> nn.Module:
        with seeded():
            encoder = make()
        own_randomness(encoder, 0, image_size)
        return encoder

    encoder = made()
    dimension = feature_dimension(encoder, image_size)
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(6, 3, image_size, image_size, generator=generator)
    kept, state = images.clone(), deepcopy(encoder.state_dict())
    with torch.no_grad(), evaluating(encoder), global_randomness_untouched("the encoder in eval mode"):
        features = encoder(images)
        rows = torch.cat([encoder(image[None]) for image in images])
        again = encoder(images)
    require(features.shape == (6, dimension), f"features must be [6, {dimension}], not {list(features.shape)}")
    require(features.dtype == torch.float32, f"features must be float32, not {features.dtype}")
    require(bool(features.isfinite().all()), "features are not finite")
    require(torch.equal(features, again), "the same images give other features in eval mode")
    require(
        torch.allclose(features, rows, atol=1e-4, rtol=1e-3), "features of an image depend on its batch in eval mode"
    )
    require(torch.equal(images, kept), "the encoder changes its input")
    after = encoder.state_dict()
    same = state.keys() == after.keys() and all(torch.equal(state[name], after[name]) for name in state)
    require(same, "a pass in eval mode changes the encoder")
    _check_training(encoder.train(), images)
    _check_copies(encoder, made(), images)


def _check_training(encoder: nn.Module, images: Tensor) -> None:
    with global_randomness_untouched("the encoder in train mode"):
        features = encoder(images)
    features.square().sum().backward()
    gradients = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}
    require(any(bool(gradient.any()) for gradient in gradients.values()), "no gradient reaches the encoder")
    for name, gradient in gradients.items():
        require(bool(gradient.isfinite().all()), f"the gradient of {name} is not finite")


def _check_copies(encoder: nn.Module, other: nn.Module, images: Tensor) -> None:
    """Copies are what momentum networks are, and the state is what a checkpoint has."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(0.9)
        copy = deepcopy(encoder)
        other.train().load_state_dict(encoder.state_dict())
        for _ in range(2):  # in train mode: also dropout, and the statistics of batch norm
            features = encoder(images)
            require(torch.equal(features, copy(images)), "a copy gives other features")
            require(torch.equal(features, other(images)), "state_dict does not hold the whole state")
