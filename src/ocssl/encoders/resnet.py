"""Encoders: ResNet-18 and a slimmer sibling, with the stems for small and for large images."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ocssl.encoders.encoder import ENCODERS

SMALL_IMAGE = 64  # pixels up to which the `auto` stem keeps the resolution


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut; the last batch norm starts at 0, so the block starts as identity."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.bn2.weight)
        self.stride = stride
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        # Striding by slicing: torch 2.13 on CPU corrupts memory in the backward pass of a channels_last 1x1 convolution
        # with stride 2 and fewer than 8 input channels.
        return torch.relu(self.bn2(self.conv2(out)) + self.shortcut(x[:, :, :: self.stride, :: self.stride]))


class ResNet(nn.Module):
    """Four stages of basic blocks, then the global average: [B, 3, H, W] -> [B, 8 x width]."""

    def __init__(self, image_size: int, blocks: tuple[int, int, int, int], width: int, stem: str) -> None:
        super().__init__()
        if stem == "auto":
            stem = "small" if image_size <= SMALL_IMAGE else "large"
        small = stem == "small"
        first = nn.Conv2d(3, width, 3, 1, 1, bias=False) if small else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        pool = () if small else (nn.MaxPool2d(3, 2, 1),)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(inplace=True), *pool)
        stages: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate(blocks):
            outputs = width * 2**stage
            for block in range(depth):
                stages.append(BasicBlock(inputs, outputs, stride=2 if stage and not block else 1))
                inputs = outputs
        self.stages = nn.Sequential(*stages)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.stages(self.stem(x))
        return out.mean(dim=(2, 3))


Width = Annotated[int, Field(ge=1, le=4096)]
Stem = Literal["auto", "small", "large"]


@ENCODERS.add("resnet18")
class ResNet18(ResNet):
    """ResNet-18, two blocks per stage: the paper's encoder at width 64.

    `width` is the number of channels of the first stage; features have 8 x width dimensions. The stem `small` is a 3x3
    convolution without pooling, `large` a 7x7 one of stride 2 with pooling, `auto` is small up to 64 px.
    """

    def __init__(self, image_size: int, *, width: Width = 64, stem: Stem = "auto") -> None:
        super().__init__(image_size, (2, 2, 2, 2), width, stem)


@ENCODERS.add("resnet10")
class ResNet10(ResNet):
    """ResNet-10, one block per stage: half the computation of ResNet-18, with the same options."""

    def __init__(self, image_size: int, *, width: Width = 64, stem: Stem = "auto") -> None:
        super().__init__(image_size, (1, 1, 1, 1), width, stem)
