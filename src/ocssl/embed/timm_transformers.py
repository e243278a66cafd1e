"""Export to timm and transformers: config and weights under the names that these libraries use.

Only what they compute exactly is translated. Both start a ResNet with a 7x7 convolution of stride 2 and a pooling, so
the stem for small images cannot be expressed.
"""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor, nn

from ocssl.embed.image_encoder import WEIGHTS, ImageEncoder, weights_of
from ocssl.encoders.resnet import BasicBlock, ResNet
from ocssl.encoders.vit import ViT
from ocssl.encoders.weights import packed
from ocssl.errors import SettingError

Weights = dict[str, Tensor]
PYTORCH = {"format": "pt"}  # as both libraries write it
OTHERS = "use --format onnx or safetensors"
SMALL = f"has the stem for small images, which neither timm nor transformers has: {OTHERS}, or train one with"


def to_timm(encoder: ImageEncoder) -> dict[str, bytes]:
    """The files of a folder that `timm.create_model("local-dir:FOLDER", pretrained=True)` loads."""
    network, name = encoder.network, str(encoder.architecture.get("name"))
    args: dict[str, Any] = {}
    if name.startswith("timm:"):
        _require_whole(encoder)
        model, architecture = network.model, name.partition(":")[2]
        assert isinstance(model, nn.Module)
        weights = weights_of(model)
        if hasattr(model, "set_input_size"):
            args["img_size"] = encoder.image_size
    elif isinstance(network, ResNet):
        _require_large(network)
        width = _width(network)
        if width != 64:
            raise SettingError(f"timm's ResNet starts with 64 channels, and encoder.width is {width}: use --format hf.")
        architecture, args["layers"] = "resnet18", _depths(network)
        weights = _renamed(network, "conv1", "bn1", _timm_block)
    else:
        hint = ", or --format hf" if isinstance(network, ViT) else ""
        raise SettingError(f"encoder {name} is not one of timm's: {OTHERS}{hint}.")
    size, means = encoder.image_size, encoder.preprocessing
    shown = {
        "input_size": [3, size, size],
        "interpolation": "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "squash" if encoder.fit == "squash" else "center",
        "mean": means["mean"],
        "std": means["std"],
        "num_classes": 0,
    }
    table = {
        "architecture": architecture,
        "num_classes": 0,
        "num_features": encoder.dimension,
        "model_args": args,
        "pretrained_cfg": shown,
    }
    return {"config.json": _json(table), WEIGHTS: packed(weights, PYTORCH)}


def to_transformers(encoder: ImageEncoder) -> dict[str, bytes]:
    """The files of a folder that `transformers.AutoModel.from_pretrained(FOLDER)` loads."""
    network, name = encoder.network, str(encoder.architecture.get("name"))
    if name.startswith("hf:"):
        _require_whole(encoder)
        model = network.model
        assert isinstance(model, nn.Module)
        table, weights = model.config.to_dict(), weights_of(model)  # type: ignore[operator,union-attr]
        table["architectures"] = [type(model).__name__]
    elif isinstance(network, ResNet):
        _require_large(network)
        width = _width(network)
        table = {
            "model_type": "resnet",
            "architectures": ["ResNetModel"],
            "embedding_size": width,
            "hidden_sizes": [width, 2 * width, 4 * width, 8 * width],
            "depths": _depths(network),
            "layer_type": "basic",
            "hidden_act": "relu",
            "downsample_in_first_stage": False,
        }
        stem = "embedder.embedder"
        weights = _renamed(network, f"{stem}.convolution", f"{stem}.normalization", _transformers_block)
    elif isinstance(network, ViT):
        _require_whole(encoder)
        table, weights = _vit(network)
    else:
        raise SettingError(f"encoder {name} is not one of transformers': {OTHERS}.")
    means, size = encoder.preprocessing, encoder.image_size
    square = {"height": size, "width": size}
    shape: dict[str, Any] = {"image_processor_type": "ViTImageProcessor", "size": square}
    if encoder.fit == "crop":  # the short side is resized, then the centre cut out
        shape = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": size}}
        shape |= {"do_center_crop": True, "crop_size": square}
    processor = {
        **shape,
        "do_resize": True,
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": means["mean"],
        "image_std": means["std"],
    }
    return {
        "config.json": _json(table),
        "preprocessor_config.json": _json(processor),
        WEIGHTS: packed(weights, PYTORCH),
    }


def _require_large(network: ResNet) -> None:
    if len(network.stem) < 4:
        raise SettingError(f"this encoder {SMALL} --set encoder.stem=large.")


def _require_whole(encoder: ImageEncoder) -> None:
    if getattr(encoder.network, "padding", 0):
        why = f"pads its images of {encoder.image_size} px to whole patches, which others do not"
        raise SettingError(f"this encoder {why}: {OTHERS}.")


def _width(network: ResNet) -> int:
    first = network.stem[0]
    assert isinstance(first, nn.Conv2d)
    return first.out_channels


def _depths(network: ResNet) -> list[int]:
    """Blocks of each stage: a new one starts where the stride is 2."""
    depths = [0]
    for block in network.stages:
        assert isinstance(block, BasicBlock)
        if block.stride == 2:
            depths.append(0)
        depths[-1] += 1
    return depths


def _timm_block(stage: int, place: int, part: str) -> str:
    return f"layer{stage + 1}.{place}.{part.replace('shortcut', 'downsample')}"


def _transformers_block(stage: int, place: int, part: str) -> str:
    names = {
        "conv1": "layer.0.convolution",
        "bn1": "layer.0.normalization",
        "conv2": "layer.1.convolution",
        "bn2": "layer.1.normalization",
        "shortcut.0": "shortcut.convolution",
        "shortcut.1": "shortcut.normalization",
    }
    first, _, last = part.rpartition(".")
    return f"encoder.stages.{stage}.layers.{place}.{names[first]}.{last}"


def _renamed(network: ResNet, conv: str, norm: str, block: Any) -> Weights:
    places = [(stage, place) for stage, depth in enumerate(_depths(network)) for place in range(depth)]
    found: Weights = {}
    for name, tensor in weights_of(network).items():
        part = name.split(".", 2)
        if part[0] == "stem":
            found[f"{conv if part[1] == '0' else norm}.{part[2]}"] = tensor
        else:
            found[block(*places[int(part[1])], part[2])] = tensor
    return found


def _vit(network: ViT) -> tuple[dict[str, Any], Weights]:
    own = weights_of(network)
    dim, patch = network.patches.out_channels, network.patches.kernel_size[0]
    first: Any = network.blocks[0]
    table = {
        "model_type": "vit",
        "architectures": ["ViTModel"],
        "hidden_size": dim,
        "num_hidden_layers": len(network.blocks),
        "num_attention_heads": first.heads,
        "intermediate_size": first.expand.out_features,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": network.norm.eps,
        "image_size": network.image_size,
        "patch_size": patch,
        "num_channels": 3,
        "qkv_bias": True,
    }
    found = {
        "embeddings.cls_token": own["token"],
        "embeddings.position_embeddings": own["position"],
        "embeddings.patch_embeddings.projection.weight": own["patches.weight"],
        "embeddings.patch_embeddings.projection.bias": own["patches.bias"],
        "layernorm.weight": own["norm.weight"],
        "layernorm.bias": own["norm.bias"],
    }
    names = {
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
        "out": "attention.output.dense",
        "expand": "intermediate.dense",
        "shrink": "output.dense",
    }
    for number in range(len(network.blocks)):
        for kind in ("weight", "bias"):
            at = f"encoder.layer.{number}"
            for ours, theirs in names.items():
                found[f"{at}.{theirs}.{kind}"] = own[f"blocks.{number}.{ours}.{kind}"]
            parts = own[f"blocks.{number}.qkv.{kind}"].chunk(3)
            for role, part in zip(("query", "key", "value"), parts, strict=True):
                found[f"{at}.attention.attention.{role}.{kind}"] = part
    return table, found


def _json(table: Any) -> bytes:
    return json.dumps(table, indent=1, default=str).encode()
