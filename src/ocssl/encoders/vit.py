"""A vision transformer (Dosovitskiy et al. 2021), small by default, for images of any size; without dropout."""

import math
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ocssl.encoders.encoder import ENCODERS, pad_to_patches
from ocssl.errors import SettingError

Count = Annotated[int, Field(ge=1, le=4096)]


class Block(nn.Module):
    """Self-attention, then two linear layers, each after a layer norm and around a shortcut."""

    def __init__(self, dim: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.expand, self.shrink = nn.Linear(dim, ratio * dim), nn.Linear(ratio * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # [B, heads, T, D / heads] each
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, dim))
        out: Tensor = x + self.shrink(F.gelu(self.expand(self.norm2(x))))
        return out


@ENCODERS.add("vit")
class ViT(nn.Module):
    """Vision transformer: `patch` px patches, `depth` blocks of `heads` heads; features have `dim` dimensions.

    An image that the patch does not divide is padded with zeros at the right and at the bottom. `pool` is what features
    are: the class token (`cls`), or the mean of all patches (`mean`). ViT-Tiny at 32 px by default; ViT-S/16 is
    `patch=16 dim=384 depth=12 heads=6`.
    """

    draws_weights = True
    draws_random = False

    def __init__(
        self,
        image_size: int,
        *,
        patch: Count = 4,
        dim: Count = 192,
        depth: Count = 12,
        heads: Count = 3,
        ratio: Count = 4,
        pool: Literal["cls", "mean"] = "cls",
    ) -> None:
        super().__init__()
        if dim % heads:
            raise SettingError(f"encoder.dim is {dim}: encoder.heads, {heads}, must divide it.")
        side = -(-image_size // patch)
        self.image_size, self.padding, self.pool = image_size, side * patch - image_size, pool
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.position = nn.Parameter(torch.zeros(1, side * side + 1, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, ratio) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        for tensor in (self.token, self.position, *(m.weight for m in self.modules() if isinstance(m, nn.Linear))):
            nn.init.trunc_normal_(tensor, std=0.02)
        nn.init.normal_(self.patches.weight, std=(3 * patch * patch) ** -0.5)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = pad_to_patches(x, self.patches.kernel_size[0])
        grid = self.patches(x)  # [B, D, rows, columns]
        tokens = grid.flatten(2).transpose(1, 2)  # [B, T, D]
        position = self._position(grid.shape[2], grid.shape[3])
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], dim=1) + position
        out: Tensor = self.norm(self.blocks(tokens))
        return out[:, 0] if self.pool == "cls" else out[:, 1:].mean(dim=1)

    def _position(self, rows: int, columns: int) -> Tensor:
        """The position embedding; resampled where the images have another size, such as local views (as in DINO)."""
        side = math.isqrt(self.position.shape[1] - 1)
        if rows == columns == side:
            return self.position
        patches = self.position[:, 1:].transpose(1, 2).unflatten(2, (side, side))  # [1, D, side, side]
        patches = F.interpolate(patches, size=(rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self.position[:, :1], patches.flatten(2).transpose(1, 2)], dim=1)
