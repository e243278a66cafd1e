"""Facts about the images of the embedded benchmark: they depend on nothing but (label, key, size, seed)."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch

from ocssl.data.sources.shapes import CLASSES, render

PLAIN_SQUARE = 4


def _every_class(images: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(images) * 7 % CLASSES, torch.arange(images) * 1_000_003


def _grey(images: torch.Tensor) -> torch.Tensor:
    return images.float().mean(1)


def test_an_image_has_the_same_bits_alone_and_in_any_batch() -> None:
    labels, keys = _every_class(40)
    together = render(labels, keys, 32, seed=3)
    alone = torch.cat([render(labels[i : i + 1], keys[i : i + 1], 32, seed=3) for i in range(len(labels))])
    assert torch.equal(together, alone)


def test_an_image_has_the_same_bits_in_any_order() -> None:
    labels, keys = _every_class(300)  # more than one internal chunk at 16 px
    order = torch.from_numpy(np.random.default_rng(0).permutation(300))
    assert torch.equal(render(labels, keys, 16, seed=3)[order], render(labels[order], keys[order], 16, seed=3))


def test_the_images_are_those_of_the_published_results() -> None:
    labels, keys = _every_class(CLASSES)
    assert zlib.crc32(render(labels, keys, 16, seed=0).numpy().tobytes()) == 0x59C48D02


def test_no_global_generator_is_read_or_moved() -> None:
    labels, keys = _every_class(8)
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr, index] # noqa: NPY002
    first = render(labels, keys, 16, seed=0)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # type: ignore[index] # noqa: NPY002
    torch.rand(5)
    assert torch.equal(render(labels, keys, 16, seed=0), first)


def test_arrays_and_tensors_give_the_same_images() -> None:
    labels, keys = _every_class(20)
    assert torch.equal(render(labels, keys, 16, seed=1), render(labels.numpy(), keys.numpy(), 16, seed=1))


@pytest.mark.parametrize("size", [8, 9, 16, 31, 32, 64, 96])
def test_any_size_gives_uint8_images_that_are_not_blank(size: int) -> None:
    labels, keys = _every_class(CLASSES)
    images = render(labels, keys, size, seed=0)
    assert images.shape == (CLASSES, 3, size, size)
    assert images.dtype == torch.uint8
    assert _grey(images).flatten(1).std(1).min() > 5


def test_no_labels_give_no_images() -> None:
    assert render(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), 16, seed=0).shape == (
        0,
        3,
        16,
        16,
    )


def test_size_changes_the_resolution_and_not_the_scene() -> None:
    labels, keys = _every_class(CLASSES)
    shrunk = torch.nn.functional.avg_pool2d(render(labels, keys, 64, seed=0).float(), 2)
    assert (shrunk - render(labels, keys, 32, seed=0).float()).abs().mean() < 10


def test_every_class_key_and_seed_gives_another_image() -> None:
    one = torch.zeros(CLASSES, dtype=torch.int64)
    every = torch.arange(CLASSES)
    by_class, by_key = render(every, one, 32, seed=0), render(one, every, 32, seed=0)
    by_seed = torch.cat([render(one[:1], one[:1], 32, seed) for seed in range(-10, 30)])
    for images in (by_class, by_key, by_seed):
        assert len(torch.unique(images, dim=0)) == len(images)


def test_values_use_the_full_range() -> None:
    images = render(*_every_class(500), 16, seed=0)
    counts = torch.bincount(images.flatten().long(), minlength=256)
    assert (counts > 0).all()
    assert 100 < images.float().mean() < 155


def test_mean_colour_does_not_tell_the_class() -> None:
    labels = torch.arange(20).repeat_interleave(300)
    colour = render(labels, torch.arange(len(labels)), 16, seed=0).float().mean((2, 3)).reshape(20, 300, 3)
    centroids, held_out = colour[:, :200].mean(1), colour[:, 200:].reshape(-1, 3)
    guess = torch.cdist(held_out, centroids).argmin(1)
    assert (guess == torch.arange(20).repeat_interleave(100)).float().mean() < 0.07  # chance is 0.05 +- 0.005


def test_what_lies_behind_the_shape_does_not_depend_on_the_class() -> None:
    keys = torch.arange(200)
    one, other = (render(torch.full((200,), label), keys, 32, seed=0) for label in (PLAIN_SQUARE, CLASSES - 1))
    assert (one == other).all(1).float().mean() > 0.2


def test_a_shape_stands_out_from_its_background_in_grey() -> None:
    grey = _grey(render(torch.full((400,), PLAIN_SQUARE), torch.arange(400), 32, seed=0))
    border = torch.cat([grey[:, 0], grey[:, -1], grey[:, :, 0], grey[:, :, -1]], 1).median(1).values
    contrast = (grey[:, 15:17, 15:17].mean((1, 2)) - border).abs()
    assert (contrast > 25).float().mean() > 0.97


def test_every_class_differs_visibly_from_every_other() -> None:
    images = render(torch.arange(CLASSES), torch.zeros(CLASSES, dtype=torch.int64), 32, seed=1).float().flatten(1)
    distance = torch.cdist(images, images, p=1) / images.shape[1] + 100 * torch.eye(CLASSES)
    assert distance.min() > 2


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_a_label_out_of_range_is_refused_by_name(label: int) -> None:
    with pytest.raises(ValueError, match=rf"label {label} .* 0 to {CLASSES - 1}"):
        render(torch.tensor([0, label]), torch.tensor([0, 1]), 16, seed=0)


def test_a_size_too_small_is_refused_with_the_smallest_allowed() -> None:
    with pytest.raises(ValueError, match=r"size is 7, .* at least 8"):
        render(torch.tensor([0]), torch.tensor([0]), 7, seed=0)


def test_labels_and_keys_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels .*\(2,\).* keys .*\(3,\)"):
        render(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), 16, seed=0)


def test_labels_that_are_not_integers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels must be integers, .*float32"):
        render(torch.tensor([0.5]), torch.tensor([0]), 16, seed=0)
