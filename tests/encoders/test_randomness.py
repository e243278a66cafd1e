"""Encoders with dropout: numbers of their own, another set in every pass, the same in a repeated or continued run."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ocssl
from conftest import random_images, small_settings
from ocssl.encoders import randomness
from ocssl.encoders.randomness import draws_random, own_randomness


class Dropping(nn.Sequential):
    """A linear encoder that drops half of its features in training."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__(nn.Flatten(), nn.Linear(192, 12, bias=False), nn.Dropout(rate))
        with torch.no_grad():
            self[1].weight.copy_(torch.linspace(-1, 1, 192 * 12).view(12, 192))


def images() -> Tensor:
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def made(seed: int = 0) -> Dropping:
    encoder = Dropping()
    own_randomness(encoder, seed)
    return encoder


def test_what_draws_is_found() -> None:
    assert draws_random(Dropping())
    assert not draws_random(Dropping(0.0))
    assert not draws_random(nn.Linear(3, 3))


def test_every_pass_drops_others_and_the_same_seed_the_same() -> None:
    one, two, other = made(1), made(1), made(2)
    first, second = one(images()), one(images())
    assert not torch.equal(first == 0, second == 0)
    assert torch.equal(two(images()), first)
    assert torch.equal(two(images()), second)
    assert not torch.equal(other(images()), first)


def test_the_callers_generator_neither_changes_nor_matters() -> None:
    one, two = made(), made()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = one(images())
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert torch.equal(two(images()), first)


def test_evaluation_draws_nothing_and_a_copy_continues_like_the_original() -> None:
    encoder = made()
    encoder(images())
    copy = deepcopy(encoder)
    encoder.eval()
    encoder(images())
    encoder.train()
    assert torch.equal(encoder(images()), copy(images()))
    restored = made()
    restored.load_state_dict(encoder.state_dict())
    assert torch.equal(restored(images()), encoder(images()))


def test_a_pass_that_fails_gives_the_callers_generator_back() -> None:
    encoder = made()
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        encoder(torch.zeros(2, 3, 4, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.isfinite(encoder(images())).all()


def learner(**more: Any) -> ocssl.Learner:
    settings = small_settings("er-fifo", **more)
    return ocssl.Learner("er-fifo", image_size=8, settings=settings, encoder=Dropping())


def fit(trained: ocssl.Learner, start: int, stop: int) -> list[Any]:
    return [trained.partial_fit(random_images(5, seed=seed)) for seed in range(start, stop)]


def run(folder: Path) -> None:
    """A learner that is saved and loaded on the way equals one that is not."""
    torch.manual_seed(1)
    whole = learner()
    expected = fit(whole, 0, 4)
    torch.manual_seed(2)
    first = learner()
    done = fit(first, 0, 2)
    first.save(folder)
    second = ocssl.Learner.load(folder, encoder=Dropping())
    assert done + fit(second, 2, 4) == expected


def test_a_learner_with_dropout_repeats_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    run(tmp_path)


def test_the_test_would_see_numbers_of_the_global_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness.RandomPasses, "enter", lambda *_: None)
    with pytest.raises(AssertionError):
        run(tmp_path)


def test_the_test_would_see_a_count_that_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness.RandomPasses, "set_extra_state", lambda *_: None)
    with pytest.raises(AssertionError):
        run(tmp_path)
