"""Work of layers by their shapes, against arithmetic written out by hand and against PyTorch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ocssl import Learner
from ocssl.cost.layers import Layer, shape_of
from ocssl.encoders import ENCODERS
from ocssl.settings import LearnerSettings, merge, nest, validate

SMALL = {"encoder.width": 4, "objective.projection": 24, "memory.capacity": 50}


def settings(**changes: object) -> LearnerSettings:
    return validate(LearnerSettings, nest({**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}}))


def resnet_by_hand(width: int, pixels: int, blocks: int) -> int:
    """Multiply-adds of one image through a ResNet with the small stem, stage by stage."""
    total = 9 * 3 * width * pixels**2
    inputs, side = width, pixels
    for stage in range(4):
        outputs = width * 2**stage
        for block in range(blocks):
            if stage and not block:
                side = -(-side // 2)
            total += 9 * inputs * outputs * side**2 + 9 * outputs * outputs * side**2
            if inputs != outputs:
                total += inputs * outputs * side**2
            inputs = outputs
    return total


@pytest.mark.parametrize(
    ("name", "width", "pixels", "blocks"), [("resnet18", 4, 16, 2), ("resnet10", 6, 20, 1), ("resnet18", 64, 32, 2)]
)
def test_encoder_is_the_hand_count(name: str, width: int, pixels: int, blocks: int) -> None:
    shape = shape_of(settings(encoder__name=name, encoder__width=width), pixels)
    assert sum(layer.flops for layer in shape.part("encoder").values()) == 2 * resnet_by_hand(width, pixels, blocks)


def test_resnet18_of_the_books() -> None:
    """1,814,073,344 multiply-adds at 224 px are published for ResNet-18, 512,000 of them its classifier's."""
    shape = shape_of(settings(encoder__width=64), 224)
    assert sum(layer.flops for layer in shape.part("encoder").values()) == 2 * (1_814_073_344 - 512_000)


@pytest.mark.parametrize("stem", ["small", "large"])
def test_encoder_is_what_pytorch_counts(stem: str) -> None:
    encoder = ENCODERS.build("resnet18", {"width": 4, "stem": stem}, 24)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(torch.zeros(3, 3, 24, 24))
    shape = shape_of(settings(encoder__stem=stem), 24)
    assert 3 * sum(layer.flops for layer in shape.part("encoder").values()) == counter.get_total_flops()


def test_a_wrong_side_is_caught() -> None:
    """The hand count is not so loose that forgetting a stride would pass."""
    shape = shape_of(settings(), 16)
    forgetful = {name: Layer(layer.flops * (4 if "stages.2" in name else 1), 0) for name, layer in shape.layers.items()}
    assert sum(forgetful[name].flops for name in shape.part("encoder")) != 2 * resnet_by_hand(4, 16, 2)


def test_heads_by_hand() -> None:
    layers = shape_of(settings(), 16).layers
    heads = {name: layer for name, layer in layers.items() if "encoder" not in name}
    d, p, q = 32, 24, 6
    assert sum(layer.flops for layer in heads.values()) == 2 * (d * d + d * d + d * p + p * q + q * p)
    assert sum(layer.bytes for layer in heads.values()) == 4 * (d + d + p + q + p)


@pytest.mark.parametrize(
    ("term", "keep"),
    [({}, "fifo"), ({"terms.overlap.weight": 1.0}, "psa"), ({"terms.cla-e.weight": 0.1}, "minred")],
)
def test_sizes_are_those_of_a_real_learner(term: dict[str, float], keep: str) -> None:
    chosen = validate(LearnerSettings, merge(nest({**SMALL, "memory.keep": keep}), nest(term)))
    shape, learner = shape_of(chosen, 16), Learner(image_size=16, settings=chosen)
    assert shape.weights == sum(t.numel() * t.element_size() for t in learner.network.state_dict().values())
    assert shape.trained == sum(4 * p.numel() for p in learner.network.parameters() if p.requires_grad)
    store = learner.memory.store
    store.filled = store.capacity
    columns = sum(store[name].numel() * store[name].element_size() for name in store)
    scratch = sum(store.scratch(row).numel() * store.scratch(row).element_size() for row in range(2))
    assert shape.slots * shape.slot == columns + scratch
    assert shape.features == ("feature" in store)
    assert shape.dimension == 32
