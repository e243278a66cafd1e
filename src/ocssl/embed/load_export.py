"""Read an export of safetensors: bounded, checked against its fingerprint, never executed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ocssl._core.checkpoint import read_shapes
from ocssl._files.untrusted import open_file, read_json, reading
from ocssl.data.decode.decoder import VERSION
from ocssl.embed.image_encoder import ENCODER, FORMAT, FORMAT_VERSION, MOST_JSON, WEIGHTS, ImageEncoder, weights_of
from ocssl.encoders import ENCODERS
from ocssl.encoders.weights import read_tensors
from ocssl.errors import CheckpointError, OcsslError


def load_exported(folder: Path, network: nn.Module | None = None) -> ImageEncoder:
    """The encoder of an export. `network`: the module, where it is a custom one."""
    with reading(folder / ENCODER, CheckpointError):
        facts = read_json(folder / ENCODER, MOST_JSON)
    if not isinstance(facts, Mapping) or facts.get("format") != FORMAT:
        raise CheckpointError(f"{folder / ENCODER} is damaged: it describes no encoder of ocssl.")
    if facts.get("export") != "safetensors":
        raise CheckpointError(
            f"{folder} is an export of format {facts.get('export')!r}, which ocssl does not load: see its README.md or "
            "export with --format safetensors."
        )
    if facts.get("version") != FORMAT_VERSION:
        raise CheckpointError(f"{folder} has format version {facts.get('version')!r}: update ocssl.")
    try:
        architecture, seen = dict(facts["architecture"]), dict(facts["preprocessing"])
        size, fit = seen["image_size"], seen["fit"]
        if type(size) is not int or not 4 <= size <= 1024 or fit not in ("squash", "crop"):
            raise ValueError(f"image_size {size!r}, fit {fit!r}")
        means = {name: [float(value) for value in seen[name]] for name in ("mean", "std")}
        if not all(len(v) == 3 and all(map(math.isfinite, v)) for v in means.values()) or min(means["std"]) <= 0:
            raise ValueError("mean and std must be three numbers")
        if seen.get("decoder") != VERSION:
            raise CheckpointError(f"{folder} was made by an ocssl that reads images otherwise: export it again.")
        found = _build(folder, architecture, size) if network is None else network
        own, given = weights_of(found), read_tensors(folder / WEIGHTS, found)
        found.load_state_dict({**found.state_dict(), **{name: given[name] for name in own}})
        encoder = ImageEncoder(found, size, fit, means["mean"], means["std"], architecture, {"folder": str(folder)})
        encoder.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        name = encoder.fingerprint
    except OcsslError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise CheckpointError(f"{folder} is damaged, or no encoder of this version: {reason}.") from None
    if name != facts.get("fingerprint"):
        raise CheckpointError(f"{folder} is damaged: its encoder does not have the fingerprint that it says.")
    return encoder


def _build(folder: Path, architecture: Mapping[str, Any], size: int) -> nn.Module:
    """The network with any weights, once the file of weights is known to have tensors of its shapes."""
    name, options = str(architecture["name"]), {k: v for k, v in architecture.items() if k != "name"}
    if name == "custom":
        raise CheckpointError(f"{folder} has a custom encoder: pass encoder= to load it.")
    if name.startswith("hf:"):
        name = f"hf:{folder}"
    if "pretrained" in ENCODERS.options(name):
        options["pretrained"] = False
    with reading(folder / WEIGHTS, CheckpointError), open_file(folder / WEIGHTS) as file:
        shapes = read_shapes(file)
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            blank = ENCODERS.build(name, options, size)
        wanted = {key: tuple(tensor.shape) for key, tensor in weights_of(blank).items()}
        if wanted != shapes:
            raise CheckpointError(f"{folder} is damaged: its weights do not fit its architecture.")
        return ENCODERS.build(name, options, size)
