"""Vision transformers on images of another size than their own, as DINO's local views are."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import ocssl
from conftest import ROOT, random_images, small_settings
from ocssl.cli import main
from ocssl.encoders import ENCODERS, ViT
from small_encoders import small_encoder


def made(size: int, **more: int) -> ViT:
    torch.manual_seed(0)
    return ViT(size, dim=12, depth=2, heads=2, ratio=2, **more).eval()


def images(size: int) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(size))


def literal(encoder: ViT, x: Tensor, position: Tensor) -> Tensor:
    tokens = encoder.patches(x).flatten(2).transpose(1, 2)
    tokens = torch.cat([encoder.token.expand(len(x), -1, -1), tokens], 1) + position
    out: Tensor = encoder.norm(encoder.blocks(tokens))[:, 0]
    return out


@pytest.mark.parametrize("size", [16, 18])
def test_at_its_own_size_the_position_embedding_is_used_as_it_is(size: int) -> None:
    encoder, x = made(size), images(size)
    padded = F.pad(x, (0, -size % 4, 0, -size % 4))
    assert torch.equal(encoder(x), literal(encoder, padded, encoder.position))


@pytest.mark.parametrize("size", [8, 10, 24])
def test_at_another_size_the_position_embedding_is_resampled(size: int) -> None:
    encoder, x = made(16), images(size)
    side = -(-size // 4)
    grid = encoder.position[0, 1:].reshape(4, 4, 12).permute(2, 0, 1)[None]
    grid = F.interpolate(grid, (side, side), mode="bicubic")
    patches = grid[0].permute(1, 2, 0).reshape(1, side * side, 12)
    position = torch.cat([encoder.position[:, :1], patches], 1)
    padded = F.pad(x, (0, side * 4 - size, 0, side * 4 - size))
    torch.testing.assert_close(encoder(x), literal(encoder, padded, position))


@pytest.mark.parametrize("label", ["vit", "timm:NAME", "hf:FOLDER"])
def test_the_documented_dino_trains_a_transformer_on_local_views(label: str, tmp_path: Path) -> None:
    own = {f"encoder__{key}": value for key, value in small_encoder(label).items()}
    dino = {"objective__name": "dino", "optimizer__name": "adamw", "optimizer__lr": 0.0005, "views__local": 4}
    learner = ocssl.Learner("solar", image_size=16, settings=small_settings("solar", **own, **dino))
    before = {key: tensor.detach().clone() for key, tensor in learner.encoder.named_parameters()}
    learner.partial_fit(random_images(6, size=16))
    moved = {key for key, tensor in learner.encoder.named_parameters() if not torch.equal(tensor, before[key])}
    assert any("pos" in key for key in moved)
    learner.save(tmp_path)
    assert ocssl.Learner.load(tmp_path).seen == learner.seen


@pytest.mark.parametrize("label", ["timm:NAME", "hf:FOLDER"])
def test_a_transformer_of_a_library_takes_sizes_that_its_patch_does_not_divide(label: str) -> None:
    options = {key: value for key, value in small_encoder(label).items() if key != "name"}
    encoder: nn.Module = ENCODERS.build(small_encoder(label)["name"], options, 32).eval()
    with torch.no_grad():
        assert encoder(images(18)).shape == encoder(images(32)).shape


@pytest.mark.slow
def test_the_documented_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(random_images(12, size=40).numpy()):
        Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / "photos" / f"{number}.png")
    text = (ROOT / "docs" / "encoders.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("ocssl run") and "views.local" in line)
    small = {"encoder.dim": 24, "encoder.depth": 2, "encoder.heads": 2, "stream.image_size": 32}
    small |= {"schedule.passes": 1, "schedule.batch": 12, "memory.capacity": 20}
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(line)[1:], *(word for key, value in small.items() for word in ("--set", f"{key}={value}"))])
    assert ended.value.code == 0
