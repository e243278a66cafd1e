"""The peer of the views: one image at a time."""

from __future__ import annotations

import math

import pytest
import torch
from kornia.enhance import adjust_hue

from ocssl.bench import views
from ocssl.bench.views import Drawn, drawn, hue, one_at_a_time, view
from ocssl.cost.layers import noise
from ocssl.settings import ViewSettings
from ocssl.views import Parameters, Views

SETTINGS = ViewSettings()
STEP = 4 / 255 / 0.25  # four roundings to bytes, normalised


def rows(all_drawn: list[Drawn]) -> Parameters:
    neutral = (1.0, 1.0, 1.0, 0.0)
    return Parameters(
        box=torch.tensor([d.box for d in all_drawn]),
        flip=torch.tensor([d.flip for d in all_drawn]),
        factors=torch.tensor([d.factors or neutral for d in all_drawn]),
        order=torch.tensor([d.order for d in all_drawn]),
        gray=torch.tensor([d.gray for d in all_drawn]),
    )


def test_the_peer_makes_the_same_views_where_hue_and_clamps_play_no_part() -> None:
    generator = torch.Generator().manual_seed(0)
    images = noise(40, 16, generator) // 6 + 100
    settings = SETTINGS.model_copy(update={"hue": 0.0, "brightness": 0.2, "contrast": 0.2})
    all_drawn = [drawn(image, settings, generator) for image in images]
    single = torch.stack([view(i, d, settings, 16) for i, d in zip(images, all_drawn, strict=True)])
    torch.testing.assert_close(single, Views(settings, 16).apply(images, rows(all_drawn)), atol=STEP, rtol=0)


def test_hue_is_that_of_kornia() -> None:
    image = noise(1, 8, torch.Generator().manual_seed(1))
    expected = adjust_hue(image / 255, 2 * math.pi * 0.07)[0]
    torch.testing.assert_close(hue(image[0], 0.07) / 255, expected, atol=0.51 / 255, rtol=0)


def test_views_have_their_shape_and_their_own_numbers() -> None:
    made = one_at_a_time(noise(3, 8, torch.Generator().manual_seed(0)), SETTINGS, 8, torch.Generator(), views=2)
    assert made.shape == (2, 3, 3, 8, 8)
    assert not torch.equal(made[0], made[1])


def test_the_part_gives_figures() -> None:
    told = list(views.compared(8, rounds=2, batch=4))
    assert all(row.value.middle > 0 for row in told)
    assert len(told) == 3


@pytest.mark.parametrize("size", [8, 16])
def test_boxes_of_the_peer_lie_in_the_image(size: int) -> None:
    generator, image = torch.Generator().manual_seed(0), torch.zeros(3, size, size, dtype=torch.uint8)
    for _ in range(200):
        left, top, width, height = drawn(image, SETTINGS, generator).box
        assert min(left, top) >= 0
        assert min(width, height) >= 1
        assert left + width <= size
        assert top + height <= size
