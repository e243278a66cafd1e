"""Views against kornia, against a literal float64 loop, and by statistics."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from kornia.color import rgb_to_grayscale
from kornia.enhance import (
    adjust_brightness_accumulative,
    adjust_contrast_with_mean_subtraction,
    adjust_hue,
    adjust_saturation_with_gray_subtraction,
    solarize,
)
from kornia.filters import gaussian_blur2d
from scipy.stats import chisquare, kstest
from sklearn.datasets import load_sample_images
from torch import Tensor

from ocssl.errors import DataError
from ocssl.settings import ViewSettings
from ocssl.views import Parameters, Views

SETTINGS = ViewSettings(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
COLOURS = ViewSettings(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))  # views in [0, 1]
EXACT = {"atol": 1e-5, "rtol": 0.0}
LEVEL = 1e-3  # p-value below which a statistical test fails; the seeds are fixed, so that it fails always or never


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(n: int, height: int, width: int, low: int = 0, high: int = 256) -> Tensor:
    return torch.randint(low, high, (n, 3, height, width), generator=generator(9), dtype=torch.uint8)


def tame(n: int, size: int) -> Tensor:
    """Images so close to the middle that no operation used here reaches 0 or 1."""
    return noise(n, size, size, low=100, high=150)


def identity(n: int, height: int, width: int) -> Parameters:
    return Parameters(
        box=torch.tensor([[0, 0, width, height]]).repeat(n, 1),
        flip=torch.zeros(n, dtype=torch.bool),
        factors=torch.tensor([[1.0, 1.0, 1.0, 0.0]]).repeat(n, 1),
        order=torch.arange(4).repeat(n, 1),
        gray=torch.zeros(n, dtype=torch.bool),
    )


def jittered(images: Tensor, factors: Tensor, order: Tensor | None = None) -> Tensor:
    """Colours of whole images after the given jitter, by the code under test."""
    still = identity(len(images), *images.shape[-2:])
    order = still.order if order is None else order
    return Views(COLOURS, images.shape[-1]).apply(images, replace(still, factors=factors, order=order))


def strengths(n: int) -> Tensor:
    """Mild factors of all four operations, different in every row."""
    return torch.tensor([1.0, 1.0, 1.0, 0.0]) + 0.2 * (torch.rand(n, 4, generator=generator(3)) - 0.5)


def only(column: int, n: int) -> Tensor:
    factors = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).repeat(n, 1)
    factors[:, column] = strengths(n)[:, column]
    return factors


def axis_turn(colours: Tensor, turn: float) -> Tensor:
    """Hue by the definition: chroma, seen along the grey axis as a complex number, is turned; float64, [3, H, W]."""
    r, g, b = colours.double().numpy().reshape(3, -1)
    third = np.exp(2j * np.pi / 3)
    chroma = (r + g * third + b * third**2) * np.exp(2j * np.pi * turn)
    turned = [(r + g + b) / 3 + 2 / 3 * (chroma * third**-k).real for k in range(3)]
    return torch.from_numpy(np.stack(turned)).view(colours.shape)


def one_by_one(image: Tensor, factors: list[float], order: list[int], hue: str) -> Tensor:
    """The reference: kornia's operations one after another on one image [1, 3, H, W], with a clamp after each."""
    for k in order:
        if k == 0:
            image = adjust_brightness_accumulative(image, factors[0])
        elif k == 1:
            image = adjust_contrast_with_mean_subtraction(image, factors[1])
        elif k == 2:
            image = adjust_saturation_with_gray_subtraction(image, factors[2])
        elif hue == "hsv":
            image = adjust_hue(image, 2 * math.pi * factors[3])
        else:
            image = axis_turn(image[0], factors[3])[None].to(image.dtype).clamp(0, 1)
    return image


def photographs(size: int = 32) -> Tensor:
    """Overlapping patches of two photographs, reduced so that a patch shows about a fifth of the picture's height."""
    photos = torch.from_numpy(np.stack(load_sample_images().images)).permute(0, 3, 1, 2).float()
    small = F.interpolate(photos, scale_factor=0.25, mode="bilinear", antialias=True).round().byte()
    patches = small.unfold(2, size, size // 2).unfold(3, size, size // 2)  # [2, 3, rows, columns, size, size]
    return patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, size, size)


def oracle(images: Tensor, parameters: Parameters, settings: ViewSettings, size: int) -> Tensor:
    """Everything written out in float64, one image, one pixel at a time."""
    luma = np.array([0.299, 0.587, 0.114])
    views = []
    for row, image in enumerate(images.double().numpy() / 255):
        left, top, width, height = parameters.box[row].tolist()
        view = np.empty((3, size, size))
        for r, c in itertools.product(range(size), range(size)):
            y = min(max((r + 0.5) * height / size - 0.5, 0), height - 1)
            x = min(max((c + 0.5) * width / size - 0.5, 0), width - 1)
            y0, x0 = int(y), int(x)
            y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
            upper = (1 - (x - x0)) * image[:, top + y0, left + x0] + (x - x0) * image[:, top + y0, left + x1]
            lower = (1 - (x - x0)) * image[:, top + y1, left + x0] + (x - x0) * image[:, top + y1, left + x1]
            view[:, r, size - 1 - c if parameters.flip[row] else c] = (1 - (y - y0)) * upper + (y - y0) * lower
        brightness, contrast, saturation, turn = parameters.factors[row].double().tolist()
        for k in parameters.order[row].tolist():
            gray = np.tensordot(luma, view, 1)
            if k == 0:
                view = view * brightness
            elif k == 1:
                view = view * contrast + (1 - contrast) * gray.mean()
            elif k == 2:
                view = view * saturation + (1 - saturation) * gray
            else:
                view = axis_turn(torch.from_numpy(view), turn).numpy()
        if parameters.gray[row]:
            view = np.tensordot(luma, view, 1)[None].repeat(3, 0)
        view = view.clip(0, 1)
        if parameters.sigma is not None and parameters.sigma[row] > 0:
            view = literal_blur(view, float(parameters.sigma[row]), max(1, size // 20))
        if parameters.solarize is not None and parameters.solarize[row]:
            view = np.where(view >= 0.5, 1 - view, view)
        mean, std = (np.array(v)[:, None, None] for v in (settings.mean, settings.std))
        views.append(torch.from_numpy((view - mean) / std))
    return torch.stack(views)


def literal_blur(view: np.ndarray, sigma: float, reach: int) -> np.ndarray:
    """The two-dimensional sum over a normalised Gaussian window, mirrored at the border: [3, S, S]."""
    offsets = range(-reach, reach + 1)
    weight = {(i, j): math.exp(-(i * i + j * j) / (2 * sigma**2)) for i in offsets for j in offsets}
    size, total = view.shape[-1], sum(weight.values())

    def mirrored(at: int) -> int:
        return -at if at < 0 else 2 * (size - 1) - at if at >= size else at

    blurred = np.zeros_like(view)
    for r, c in itertools.product(range(size), range(size)):
        for (i, j), w in weight.items():
            blurred[:, r, c] += w / total * view[:, mirrored(r + i), mirrored(c + j)]
    return blurred


def reference_boxes(n: int, height: int, width: int, seed: int) -> np.ndarray:
    """RandomResizedCrop.get_params of torchvision, literally, with its defaults for views: [n, 4]."""
    draw, boxes = random.Random(seed), []
    for _ in range(n):
        for _ in range(10):
            target = height * width * draw.uniform(0.2, 1.0)
            aspect = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < w <= width and 0 < h <= height:
                top, left = draw.randint(0, height - h), draw.randint(0, width - w)
                break
        else:
            w, h = width, height
            if width / height < 3 / 4:
                h = round(width / (3 / 4))
            elif width / height > 4 / 3:
                w = round(height * (4 / 3))
            top, left = (height - h) // 2, (width - w) // 2
        boxes.append((left, top, w, h))
    return np.array(boxes)


# exact, parameters fixed


BOXES = [(0, 0, 32, 32), (3, 5, 20, 24), (31, 0, 1, 1), (0, 31, 32, 1), (12, 12, 19, 20), (16, 8, 16, 16)]


@pytest.mark.parametrize("box", BOXES)
def test_a_view_is_the_crop_followed_by_bilinear_interpolate(box: tuple[int, int, int, int]) -> None:
    images, (left, top, width, height) = noise(3, 32, 32), box
    parameters = replace(identity(3, 32, 32), box=torch.tensor([box]).repeat(3, 1))
    crop = images[:, :, top : top + height, left : left + width].float() / 255
    expected = F.interpolate(crop, size=(32, 32), mode="bilinear", align_corners=False)
    torch.testing.assert_close(Views(COLOURS, 32).apply(images, parameters), expected, **EXACT)


def test_a_crop_is_enlarged_so_that_antialiasing_has_no_effect() -> None:
    crop = noise(3, 20, 24).float() / 255
    plain, filtered = (F.interpolate(crop, (32, 32), mode="bilinear", antialias=flag) for flag in (False, True))
    torch.testing.assert_close(plain, filtered, **EXACT)


def test_larger_images_give_crops_interpolated_without_antialiasing() -> None:
    images = noise(2, 40, 33)
    parameters = replace(identity(2, 40, 33), box=torch.tensor([[1, 2, 30, 37], [0, 0, 33, 40]]))
    got = Views(COLOURS, 16).apply(images, parameters)
    for row, (left, top, width, height) in enumerate(parameters.box.tolist()):
        crop = images[row : row + 1, :, top : top + height, left : left + width].float() / 255
        torch.testing.assert_close(got[row : row + 1], F.interpolate(crop, (16, 16), mode="bilinear"), **EXACT)


def test_the_crop_test_would_catch_aligned_corners() -> None:
    images, box = noise(3, 32, 32), (3, 5, 20, 24)
    got = Views(COLOURS, 32).apply(images, replace(identity(3, 32, 32), box=torch.tensor([box]).repeat(3, 1)))
    wrong = F.interpolate(images[:, :, 5:29, 3:23].float() / 255, (32, 32), mode="bilinear", align_corners=True)
    assert (got - wrong).abs().mean() > 0.01


def test_a_view_does_not_see_pixels_outside_its_box() -> None:
    images = noise(1, 32, 32)
    outside = torch.ones(32, 32, dtype=torch.bool)
    outside[5:29, 3:23] = False
    changed = images.masked_fill(outside, 255)
    parameters = replace(identity(1, 32, 32), box=torch.tensor([[3, 5, 20, 24]]))
    torch.testing.assert_close(*(Views(COLOURS, 32).apply(x, parameters) for x in (images, changed)), **EXACT)


def test_a_flipped_view_is_the_mirrored_view() -> None:
    images, views = noise(4, 32, 32), Views(SETTINGS, 32)
    parameters = replace(identity(4, 32, 32), box=torch.tensor([[3, 5, 20, 24]]).repeat(4, 1))
    flip = torch.tensor([True, False, True, False])
    straight, flipped = views.apply(images, parameters), views.apply(images, replace(parameters, flip=flip))
    torch.testing.assert_close(flipped[flip], straight[flip].flip(3), **EXACT)
    torch.testing.assert_close(flipped[~flip], straight[~flip], **EXACT)


def test_brightness_is_that_of_kornia() -> None:
    images, factors = tame(6, 16), only(0, 6)
    expected = adjust_brightness_accumulative(images.float() / 255, factors[:, 0])
    torch.testing.assert_close(jittered(images, factors), expected, **EXACT)


def test_contrast_is_that_of_kornia() -> None:
    images, factors = tame(6, 16), only(1, 6)
    expected = adjust_contrast_with_mean_subtraction(images.float() / 255, factors[:, 1])
    torch.testing.assert_close(jittered(images, factors), expected, **EXACT)


def test_saturation_is_that_of_kornia() -> None:
    images, factors = tame(6, 16), only(2, 6)
    expected = adjust_saturation_with_gray_subtraction(images.float() / 255, factors[:, 2])
    torch.testing.assert_close(jittered(images, factors), expected, **EXACT)


def test_greyscale_is_that_of_kornia_in_all_channels() -> None:
    images = noise(6, 16, 16)
    parameters = replace(identity(6, 16, 16), gray=torch.ones(6, dtype=torch.bool))
    expected = rgb_to_grayscale(images.float() / 255).expand(-1, 3, -1, -1)
    torch.testing.assert_close(Views(COLOURS, 16).apply(images, parameters), expected, **EXACT)


def test_hue_is_the_literal_turn_about_the_grey_axis() -> None:
    images, factors = tame(6, 16), only(3, 6)
    expected = torch.stack([axis_turn(x / 255, t) for x, t in zip(images, factors[:, 3].tolist(), strict=True)])
    torch.testing.assert_close(jittered(images, factors), expected.float(), **EXACT)


def test_hue_keeps_the_sum_of_the_channels() -> None:
    images = tame(6, 16)
    torch.testing.assert_close(jittered(images, only(3, 6)).sum(1), (images.float() / 255).sum(1), **EXACT)


def test_contrast_takes_the_mean_of_the_crop_not_of_the_image() -> None:
    images = tame(1, 16)
    images[:, :, :, 8:] += 50
    parameters = replace(identity(1, 16, 16), box=torch.tensor([[0, 0, 8, 16]]), factors=only(1, 1))
    got, factor = Views(COLOURS, 16).apply(images, parameters), float(parameters.factors[0, 1])
    crop = F.interpolate(images[:, :, :, :8].float() / 255, (16, 16), mode="bilinear")
    torch.testing.assert_close(got, adjust_contrast_with_mean_subtraction(crop, factor), **EXACT)
    of_image = factor * crop + (1 - factor) * rgb_to_grayscale(images.float() / 255).mean()
    assert (got - of_image).abs().max() > 1e-3


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_jitter_in_an_order_is_kornia_one_operation_after_another(order: tuple[int, ...]) -> None:
    images, factors = tame(3, 8), strengths(3)
    got = jittered(images, factors, torch.tensor([order]).repeat(3, 1))
    for row, image in enumerate(images.double() / 255):
        expected = one_by_one(image[None], factors[row].double().tolist(), list(order), hue="axis")
        torch.testing.assert_close(got[row : row + 1], expected.float(), **EXACT)


def test_greyscale_follows_the_jitter() -> None:
    images, factors = tame(3, 8), strengths(3)
    parameters = replace(identity(3, 8, 8), factors=factors, gray=torch.ones(3, dtype=torch.bool))
    expected = rgb_to_grayscale(jittered(images, factors)).expand(-1, 3, -1, -1)
    torch.testing.assert_close(Views(COLOURS, 8).apply(images, parameters), expected, **EXACT)


@pytest.mark.parametrize(("height", "width", "size"), [(12, 12, 12), (17, 13, 9)])
def test_drawn_views_equal_the_literal_float64_loop(height: int, width: int, size: int) -> None:
    images, views = noise(16, height, width), Views(SETTINGS, size)
    parameters = views.draw(16, generator(), (height, width))
    assert parameters.gray.any()
    assert parameters.flip.any()
    torch.testing.assert_close(
        views.apply(images, parameters).double(), oracle(images, parameters, SETTINGS, size), **EXACT
    )


def test_the_identity_view_is_the_plain_image() -> None:
    images, views = noise(5, 32, 32), Views(SETTINGS, 32)
    torch.testing.assert_close(views.apply(images, identity(5, 32, 32)), views.plain(images), **EXACT)


def test_plain_is_the_normalised_image() -> None:
    images = noise(5, 20, 24)
    mean, std = (torch.tensor(v)[:, None, None] for v in (SETTINGS.mean, SETTINGS.std))
    torch.testing.assert_close(Views(SETTINGS, 32).plain(images), (images.float() / 255 - mean) / std, **EXACT)


# blur and solarization, parameters fixed


EFFECTS = ViewSettings(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), blur=0.5, solarize=0.5)


@pytest.mark.parametrize("size", [8, 32, 48, 96])
def test_blur_is_that_of_kornia_one_image_at_a_time(size: int) -> None:
    images, sigma = noise(5, size, size), torch.tensor([0.1, 0.0, 0.5, 1.3, 2.0])
    got = Views(COLOURS, size).apply(images, replace(identity(5, size, size), sigma=sigma))
    kernel = {8: 3, 32: 3, 48: 5, 96: 9}[size]
    for row, image in enumerate(images[:, None].float() / 255):
        expected = gaussian_blur2d(image, kernel, (float(sigma[row]),) * 2) if sigma[row] > 0 else image
        torch.testing.assert_close(got[row : row + 1], expected, **EXACT)


def test_the_blur_test_would_catch_the_same_sigma_for_all() -> None:
    images, sigma = noise(2, 32, 32), torch.tensor([0.4, 1.5])
    got = Views(COLOURS, 32).apply(images, replace(identity(2, 32, 32), sigma=sigma))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(got, gaussian_blur2d(images.float() / 255, 3, (1.5, 1.5)), **EXACT)


def test_solarization_is_that_of_kornia_one_image_at_a_time() -> None:
    images, chosen = noise(4, 16, 16), torch.tensor([True, False, True, False])
    got = Views(COLOURS, 16).apply(images, replace(identity(4, 16, 16), solarize=chosen))
    for row, image in enumerate(images[:, None].float() / 255):
        expected = solarize(image, thresholds=0.5) if chosen[row] else image
        torch.testing.assert_close(got[row : row + 1], expected, **EXACT)


@pytest.mark.parametrize(("height", "width", "size"), [(12, 12, 12), (43, 41, 41)])
def test_drawn_views_with_effects_equal_the_literal_float64_loop(height: int, width: int, size: int) -> None:
    images, views = noise(8, height, width), Views(EFFECTS, size)
    parameters = views.draw(8, generator(), (height, width))
    assert parameters.sigma is not None
    assert parameters.solarize is not None
    assert (parameters.solarize & (parameters.sigma > 0)).any()
    got, expected = views.apply(images, parameters).double(), oracle(images, parameters, EFFECTS, size)
    torch.testing.assert_close(got, expected, atol=5e-5, rtol=0)


def test_solarization_follows_the_blur() -> None:
    images = noise(3, 16, 16)
    parameters = replace(identity(3, 16, 16), sigma=torch.full((3,), 1.0), solarize=torch.ones(3, dtype=torch.bool))
    got = Views(COLOURS, 16).apply(images, parameters)
    blurred = gaussian_blur2d(images.float() / 255, 3, (1.0, 1.0))
    torch.testing.assert_close(got, solarize(blurred, thresholds=0.5), **EXACT)
    other_order = gaussian_blur2d(solarize(images.float() / 255, thresholds=0.5), 3, (1.0, 1.0))
    assert (got - other_order).abs().mean() > 0.01


def test_without_effects_no_further_number_is_drawn_and_no_bit_changes() -> None:
    images, plain, asked = noise(6, 32, 32), generator(5), generator(5)
    Views(SETTINGS, 32)(images, plain)
    torch.rand(12, 33, generator=asked)
    assert torch.equal(plain.get_state(), asked.get_state())
    assert Views(SETTINGS, 32).draw(3, generator()).sigma is None


def test_effects_leave_all_other_parameters_and_all_other_rows_as_they_were() -> None:
    images = noise(20, 32, 32)
    without, with_effects = Views(SETTINGS, 32), Views(EFFECTS, 32)
    before, after = without.draw(20, generator(2)), with_effects.draw(20, generator(2))
    assert after.sigma is not None
    assert after.solarize is not None
    assert torch.equal(columns(before), columns(after))
    untouched = (after.sigma == 0) & ~after.solarize
    assert 0 < untouched.sum() < 20
    same = (with_effects.apply(images, after) == without.apply(images, before)).flatten(1).all(1)
    assert torch.equal(same, untouched)


@pytest.mark.parametrize(("blur", "solarization"), [(0.1, 0.3), (0.0, 0.1), (0.7, 0.0), (1.0, 1.0)])
def test_effects_have_their_probabilities_and_sigma_is_uniform(blur: float, solarization: float) -> None:
    settings = ViewSettings(blur=blur, solarize=solarization)
    drawn = Views(settings, 8).draw(MANY, generator(1))
    assert drawn.sigma is not None
    assert drawn.solarize is not None
    for got, wanted in (((drawn.sigma > 0), blur), (drawn.solarize, solarization)):
        assert abs(float(got.double().mean()) - wanted) <= 4 * math.sqrt(wanted * (1 - wanted) / MANY)
    sigma = drawn.sigma[drawn.sigma > 0].double().numpy()
    assert not len(sigma) or kstest(sigma, "uniform", args=(0.1, 1.9)).pvalue > LEVEL
    if 0 < blur < 1 and 0 < solarization < 1:
        parts = torch.stack([(drawn.sigma > 0).double(), drawn.solarize.double(), drawn.gray.double()])
        assert (torch.corrcoef(parts) - torch.eye(3)).abs().max() < 4.5 / math.sqrt(MANY)


def test_views_with_effects_are_finite_bounded_and_channels_last() -> None:
    mean, std = (torch.tensor(v)[:, None, None] for v in (EFFECTS.mean, EFFECTS.std))
    for size, batch in itertools.product((4, 8, 33), (0, 1, 5)):
        for images in (noise(batch, size, size), torch.full((batch, 3, size, size), 255, dtype=torch.uint8)):
            out = Views(EFFECTS, size)(images, generator(size))
            assert out.shape == (2, batch, 3, size, size)
            assert out.isfinite().all()
            assert (out >= -mean / std - 1e-5).all()
            assert (out <= (1 - mean) / std + 1e-5).all()
            assert batch == 0 or all(view.is_contiguous(memory_format=torch.channels_last) for view in out)


# distance to the reference, measured on photographs


def test_hue_differs_from_hsv_by_the_documented_distance() -> None:
    images = photographs().repeat(10, 1, 1, 1)
    factors = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).repeat(len(images), 1)
    factors[:, 3] = 0.2 * torch.rand(len(images), generator=generator()) - 0.1
    before, angle = images.float() / 255, 2 * math.pi * factors[:, 3]
    got, hsv, backward = jittered(images, factors), adjust_hue(before, angle), adjust_hue(before, -angle)
    assert (got - hsv).abs().mean() == pytest.approx(0.017, abs=0.002)
    assert (before - hsv).abs().mean() == pytest.approx(0.021, abs=0.002)
    assert (got - backward).abs().mean() > 1.5 * (got - hsv).abs().mean()  # the turn has the direction of HSV


def test_one_clamp_and_the_grey_axis_differ_from_the_reference_by_the_documented_distance() -> None:
    images = photographs().repeat(3, 1, 1, 1)
    drawn = Views(COLOURS, 32).draw(len(images), generator())
    got = jittered(images, drawn.factors, drawn.order)
    before = images.float() / 255
    rows = list(zip(before[:, None], drawn.factors.tolist(), drawn.order.tolist(), strict=True))
    clamped = torch.cat([one_by_one(*row, hue="axis") for row in rows])
    reference = torch.cat([one_by_one(*row, hue="hsv") for row in rows])
    assert (got - clamped).abs().mean() == pytest.approx(0.0025, abs=0.0007)
    assert (got - reference).abs().mean() == pytest.approx(0.013, abs=0.003)
    assert (before - reference).abs().mean() == pytest.approx(0.074, abs=0.005)


def test_the_order_of_saturation_and_hue_matters() -> None:
    images = photographs()[:20]
    drawn = Views(COLOURS, 32).draw(20, generator())
    forward, reverse = (jittered(images, drawn.factors, order) for order in (drawn.order, drawn.order.flip(1)))
    assert (forward - reverse).abs().max() > 1e-3


def test_a_clamp_in_between_is_what_makes_the_order_of_brightness_and_contrast_matter() -> None:
    image, factors = torch.full((1, 3, 4, 4), 0.9), [1.4, 0.6, 1.0, 0.0]
    image[:, :, 2:] = 0.1
    first, last = (one_by_one(image, factors, order, hue="axis") for order in ([0, 1], [1, 0]))
    assert (first - last).abs().max() > 0.05
    pixels = (image * 255).round().byte()
    ours = [jittered(pixels, torch.tensor([factors]), torch.tensor([order])) for order in ([0, 1, 2, 3], [1, 0, 2, 3])]
    torch.testing.assert_close(*ours, **EXACT)


# drawn parameters, by statistics

MANY = 20_000


@pytest.fixture(scope="module")
def drawn() -> Parameters:
    return Views(SETTINGS, 32).draw(MANY, generator(1))


def test_crop_boxes_lie_inside_the_image(drawn: Parameters) -> None:
    left, top, width, height = drawn.box.T
    assert (torch.stack([left, top]) >= 0).all()
    assert (torch.stack([width, height]) >= 1).all()
    assert (torch.stack([left + width, top + height]) <= 32).all()


def test_crop_area_is_in_its_range_up_to_rounding(drawn: Parameters) -> None:
    width, height = drawn.box[:, 2:].double().T
    assert (((width + 0.5) * (height + 0.5)) >= 0.2 * 32 * 32).all()
    assert (((width - 0.5) * (height - 0.5)) <= 1.0 * 32 * 32).all()


def test_crop_aspect_is_in_its_range_up_to_rounding(drawn: Parameters) -> None:
    width, height = drawn.box[:, 2:].double().T
    assert ((width + 0.5) / (height - 0.5) >= 3 / 4).all()
    assert ((width - 0.5) / (height + 0.5) <= 4 / 3).all()


@pytest.mark.parametrize("size", [(32, 32), (20, 50), (48, 30)])
def test_crop_boxes_are_distributed_as_those_of_torchvision(size: tuple[int, int]) -> None:
    got = Views(SETTINGS, 32).draw(MANY, generator(2), size).box.double().numpy().T
    expected = reference_boxes(MANY, *size, seed=2).astype(float).T
    for ours, theirs in zip([*got, got[2] * got[3]], [*expected, expected[2] * expected[3]], strict=True):
        error = math.sqrt((ours.var() + theirs.var()) / MANY)
        assert abs(ours.mean() - theirs.mean()) < 4 * error
        assert kstest(ours, theirs).pvalue > LEVEL


def test_a_crop_that_never_fits_is_the_centre_crop_of_torchvision() -> None:
    wide = ViewSettings(crop_scale=(1.0, 1.0), crop_ratio=(2.0, 3.0))
    narrow = ViewSettings(crop_scale=(1.0, 1.0), crop_ratio=(0.25, 0.5))
    assert Views(wide, 32).draw(2, generator()).box.tolist() == [[0, 8, 32, 16]] * 2
    assert Views(narrow, 32).draw(2, generator()).box.tolist() == [[8, 0, 16, 32]] * 2


@pytest.mark.parametrize(("name", "share"), [("flip", 0.5), ("jitter", 0.8), ("gray", 0.2)])
def test_an_operation_fires_with_its_probability(drawn: Parameters, name: str, share: float) -> None:
    fired = (drawn.factors[:, 0] != 1) if name == "jitter" else getattr(drawn, name)
    assert abs(fired.double().mean() - share) < 4 * math.sqrt(share * (1 - share) / MANY)


def test_without_jitter_all_factors_are_neutral(drawn: Parameters) -> None:
    changed = drawn.factors != torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert (changed.all(dim=1) | ~changed.any(dim=1)).double().mean() > 0.999  # all but those that hit 1.0 by chance


@pytest.mark.parametrize(("column", "low", "high"), [(0, 0.6, 1.4), (1, 0.6, 1.4), (2, 0.8, 1.2), (3, -0.1, 0.1)])
def test_a_factor_is_uniform_in_its_range(drawn: Parameters, column: int, low: float, high: float) -> None:
    fired = drawn.factors[drawn.factors[:, 0] != 1, column].double().numpy()
    assert kstest(fired, "uniform", args=(low, high - low)).pvalue > LEVEL


def test_the_strongest_settings_never_make_a_factor_negative() -> None:
    strongest = ViewSettings(brightness=1.0, contrast=1.0, saturation=1.0, jitter=1.0)
    assert (Views(strongest, 32).draw(MANY, generator()).factors[:, :3] >= 0).all()


def test_the_24_orders_are_equally_frequent(drawn: Parameters) -> None:
    kinds, counts = drawn.order.unique(dim=0, return_counts=True)
    assert kinds.sort(dim=1).values.eq(torch.arange(4)).all()
    assert len(kinds) == 24
    assert chisquare(counts.numpy()).pvalue > LEVEL


def columns(parameters: Parameters) -> Tensor:
    """All that is random as numbers: [n, 14]."""
    flags = torch.stack([parameters.flip, parameters.gray, parameters.factors[:, 0] != 1], dim=1)
    return torch.cat([parameters.box, parameters.factors, parameters.order[:, :3], flags], dim=1).double()


def test_the_views_of_an_image_have_independent_parameters(drawn: Parameters) -> None:
    first, second = columns(drawn).chunk(2)  # as a call with two views splits its rows
    correlation = torch.corrcoef(torch.cat([first, second], dim=1).T)[: first.shape[1], first.shape[1] :]
    assert correlation.abs().max() < 4.5 / math.sqrt(len(first))


def test_neighbours_in_a_batch_have_independent_parameters(drawn: Parameters) -> None:
    rows = columns(drawn)
    correlation = torch.corrcoef(torch.cat([rows[:-1], rows[1:]], dim=1).T)[: rows.shape[1], rows.shape[1] :]
    assert correlation.abs().max() < 4.5 / math.sqrt(len(rows))


def test_crop_flip_jitter_and_grey_are_drawn_independently(drawn: Parameters) -> None:
    parts = [drawn.box[:, 2], drawn.flip, drawn.factors[:, 0] != 1, drawn.gray]
    correlation = torch.corrcoef(torch.stack([part.double() for part in parts])) - torch.eye(4)
    assert correlation.abs().max() < 4.5 / math.sqrt(MANY)


# calls


def test_a_call_is_draw_and_apply_view_after_view() -> None:
    images, views = noise(5, 32, 32), Views(SETTINGS, 32)
    called = views(images, generator(7), views=3)
    applied = views.apply(images.repeat(3, 1, 1, 1), views.draw(15, generator(7)))
    assert called.shape == (3, 5, 3, 32, 32)
    assert torch.equal(called.flatten(0, 1), applied)


def test_copies_of_one_image_in_a_batch_get_different_views() -> None:
    batch = Views(SETTINGS, 32)(noise(1, 32, 32).repeat(4, 1, 1, 1), generator()).flatten(0, 1).flatten(1)
    assert (torch.cdist(batch, batch) + 99 * torch.eye(8)).min() > 1


def test_the_same_generator_state_gives_the_same_bits() -> None:
    images, views = noise(5, 32, 32), Views(SETTINGS, 32)
    assert torch.equal(views(images, generator(3)), views(images, generator(3)))
    assert not torch.equal(views(images, generator(3)), views(images, generator(4)))


def test_a_call_moves_the_generator_on() -> None:
    images, views, drawing = noise(5, 32, 32), Views(SETTINGS, 32), generator(3)
    assert not torch.equal(views(images, drawing), views(images, drawing))


def test_global_random_state_is_neither_read_nor_changed() -> None:
    images, views, results = noise(5, 32, 32), Views(SETTINGS, 32), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
        results.append(views(images, generator(3)))
        assert torch.equal(torch.get_rng_state(), states[0])
        assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
        assert random.getstate() == states[2]
    assert torch.equal(*results)


def test_the_input_is_not_changed() -> None:
    images, views = noise(5, 32, 32), Views(SETTINGS, 32)
    before = images.clone()
    views(images, generator())
    views.plain(images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("value", [0, 77, 255])
def test_constant_images_give_finite_views(value: int) -> None:
    images = torch.full((20, 3, 16, 16), value, dtype=torch.uint8)
    assert Views(SETTINGS, 16)(images, generator()).isfinite().all()


@pytest.mark.parametrize("images", [noise(2, 8, 8).float(), noise(2, 8, 8)[0], noise(2, 8, 8).permute(0, 2, 3, 1)])
def test_images_of_another_type_or_layout_are_refused(images: Tensor) -> None:
    views = Views(SETTINGS, 8)
    for use in (lambda: views(images, generator()), lambda: views.plain(images)):
        with pytest.raises(DataError, match="uint8 images"):
            use()


def test_parameters_for_another_number_of_images_are_refused() -> None:
    views = Views(SETTINGS, 8)
    with pytest.raises(DataError, match="4 images do not fit 3 rows"):
        views.apply(noise(4, 8, 8), views.draw(3, generator()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cpu_and_gpu_give_the_same_views() -> None:
    images, views = noise(8, 32, 32), Views(SETTINGS, 32)
    torch.testing.assert_close(views(images.cuda(), generator()).cpu(), views(images, generator()), atol=1e-4, rtol=0)


@hypothesis_settings(max_examples=60, deadline=None, derandomize=True)
@given(
    size=st.integers(8, 40),
    more=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    batch=st.integers(0, 5),
    views=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_views_of_any_size_are_finite_bounded_and_channels_last(
    size: int, more: tuple[int, int], batch: int, views: int, seed: int
) -> None:
    images = noise(batch, size + more[0], size + more[1])
    made = Views(SETTINGS, size)
    out, plain = made(images, generator(seed), views), made.plain(images)
    assert out.shape == (views, batch, 3, size, size)
    assert plain.shape == images.shape
    mean, std = (torch.tensor(v)[:, None, None] for v in (SETTINGS.mean, SETTINGS.std))
    for part in (*out, plain):
        assert part.dtype == torch.float32
        assert part.isfinite().all()
        assert (part >= -mean / std - 1e-6).all()
        assert (part <= (1 - mean) / std + 1e-6).all()
        assert batch == 0 or part.is_contiguous(memory_format=torch.channels_last)
