"""Encoders with dropout: numbers of their own, another set in every pass, the same in a repeated or continued run."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ocssl
from conftest import random_images, small_settings
from ocssl.cost.work import minibatch_load
from ocssl.encoders import ENCODERS, randomness
from ocssl.encoders.randomness import draws_random, own_randomness
from ocssl.errors import SettingError
from small_encoders import small_encoder


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


@pytest.mark.parametrize("label", ["hf:FOLDER", "timm:NAME"])  # both with dropout
@pytest.mark.parametrize("objective", ["byol", "dino", "moco"])
def test_dropout_beside_a_momentum_network_is_estimated_and_continued(
    label: str, objective: str, tmp_path: Path
) -> None:
    """A momentum network takes the state of an encoder that is built on the meta device."""
    own = {f"encoder__{key}": value for key, value in small_encoder(label).items()}
    settings = small_settings("er-fifo", **own, objective__name=objective)
    first = ocssl.Learner("er-fifo", image_size=8, settings=settings)
    assert draws_random(first.encoder)
    assert minibatch_load(first.settings, 8).flops > 0
    fit(first, 0, 2)
    first.save(tmp_path)
    second = ocssl.Learner.load(tmp_path)
    assert fit(first, 2, 4) == fit(second, 2, 4)


class Drawing(nn.Module):
    """Draws in training, and says so nowhere: no layer of it is a dropout."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.layer, self.norm, self.always = nn.Linear(192, 12), nn.BatchNorm1d(12), always

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.layer(x.flatten(1)))
        return out + torch.rand(out.shape) if self.training or self.always else out


def test_an_encoder_that_does_not_say_that_it_draws_is_seen_to_and_left_as_it_was() -> None:
    encoder = Drawing()
    state, numbers = deepcopy(encoder.state_dict()), torch.get_rng_state()
    own_randomness(encoder, 0, 8)
    assert hasattr(encoder, randomness.NAME)
    assert all(torch.equal(encoder.state_dict()[name], tensor) for name, tensor in state.items())
    assert torch.equal(torch.get_rng_state(), numbers)
    other = Drawing()
    other.load_state_dict(state)
    own_randomness(other, 0, 8)
    numbers = torch.get_rng_state()
    assert torch.equal(encoder(images()), other(images()))
    assert torch.equal(torch.get_rng_state(), numbers)


def test_an_encoder_that_does_not_draw_gets_no_numbers() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 12), nn.BatchNorm1d(12))
    own_randomness(encoder, 0, 8)
    assert not hasattr(encoder, randomness.NAME)


def test_an_encoder_that_draws_in_eval_mode_is_refused() -> None:
    with pytest.raises(SettingError, match="draws random numbers in eval mode"):
        ocssl.Learner("er-fifo", image_size=8, settings=small_settings("er-fifo"), encoder=Drawing(always=True))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_attention_without_dropout_draws_nothing(device: str) -> None:
    class Attention(nn.Module):
        def __init__(self, rate: float) -> None:
            super().__init__()
            self.layer, self.rate = nn.Linear(192, 12), rate

        def forward(self, x: Tensor) -> Tensor:
            key = self.layer(x.flatten(1))[None, None]
            return nn.functional.scaled_dot_product_attention(key, key, key, dropout_p=self.rate)[0, 0]

    with torch.device(device):
        assert not draws_random(Attention(0.0), 8)
        assert draws_random(Attention(0.1), 8)


def folder_of(model_type: str, folder: Path) -> str:
    """A small vision transformer of transformers, without a dropout rate."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ocssl[hf]'")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    table = {"model_type": model_type, "image_size": 8, "patch_size": 4, **sizes}
    (folder / "config.json").write_text(json.dumps(table))
    return f"hf:{folder}"


def test_the_position_augmentation_of_dinov3_draws_from_the_encoder(tmp_path: Path) -> None:
    name = folder_of("dinov3_vit", tmp_path)
    settings = small_settings("er-fifo", encoder__name=name, encoder__pretrained=False)
    torch.manual_seed(1)
    first = ocssl.Learner("er-fifo", image_size=8, settings=settings)
    numbers = torch.get_rng_state()
    told = fit(first, 0, 3)
    assert torch.equal(torch.get_rng_state(), numbers)
    torch.manual_seed(2)
    assert fit(ocssl.Learner("er-fifo", image_size=8, settings=settings), 0, 3) == told
    first.save(tmp_path / "saved")
    assert fit(ocssl.Learner.load(tmp_path / "saved"), 3, 5) == fit(first, 3, 5)


def test_a_masked_autoencoder_sees_the_whole_image_and_draws_nothing(tmp_path: Path) -> None:
    encoder = ENCODERS.build(folder_of("vit_mae", tmp_path), {"pretrained": False}, 8)
    assert not draws_random(encoder, 8)
    batch = images()
    with torch.no_grad():
        features = encoder(batch)
        changed = batch.clone()
        changed[:, :, 4:, 4:] += 1  # each patch counts
        assert torch.equal(encoder(batch), features)
        assert (encoder(changed) - features).abs().amax(1).gt(1e-6).all()
