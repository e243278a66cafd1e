"""Fine-tuning: frozen parts of the encoder, and learning rates of the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from difflib import get_close_matches

from torch import nn

from ocssl._core.random import batch_norms
from ocssl.encoders import STAGE, stages
from ocssl.errors import SettingError
from ocssl.settings import EncoderSettings, LearnerSettings

FEW = 4  # names in an error
FROZEN, ENCODER = "_ocssl_frozen", "_ocssl_encoder"  # marks on modules; a copy of a module has them too


def freeze(encoder: nn.Module, settings: EncoderSettings) -> None:
    """Take the wanted parts out of training; their layers stay in eval mode wherever the encoder is copied to."""
    setattr(encoder, ENCODER, True)
    frozen = _names(encoder, settings.freeze)
    for norm in batch_norms(encoder) if settings.batch_norm == "frozen" else ():
        setattr(norm, FROZEN, True)
    for name, parameter in encoder.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    for name, module in encoder.named_modules():
        prefix = f"{name}." if name else ""
        inside = [prefix + own for own, _ in module.named_parameters()]
        if inside and frozen.issuperset(inside):
            for layer in module.modules():
                setattr(layer, FROZEN, True)
    trained = [parameter.requires_grad for parameter in encoder.parameters()]
    if trained and not any(trained):
        said = "nothing of the encoder is trained: encoder.freeze or requires_grad=False takes all; only heads learn."
        warnings.warn(said, stacklevel=2)


def _names(encoder: nn.Module, wanted: int | list[str]) -> set[str]:
    """The parameters that are not trained."""
    if not wanted:
        return set()
    if isinstance(wanted, int):
        known = stages(encoder)
        most = max(known.values(), default=0) + 1
        if most == 1:
            raise SettingError(f"encoder.freeze is {wanted}: this encoder has no numbered stages; name its parts.")
        if wanted > most:
            raise SettingError(f"encoder.freeze is {wanted}: this encoder has {most} stages.")
        return {name for name, stage in known.items() if stage < wanted}
    names = [name for name, _ in encoder.named_parameters()]
    found: set[str] = set()
    for prefix in wanted:
        inside = [name for name in names if name == prefix or name.startswith(f"{prefix}.")]
        if not inside:
            parts = {".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 2)}
            close = ", ".join(get_close_matches(prefix, sorted(parts), n=FEW, cutoff=0))
            raise SettingError(f"encoder.freeze names {prefix!r}, which is no part of the encoder; nearest: {close}.")
        found.update(inside)
    return found


def keep_frozen(network: nn.Module) -> None:
    """Frozen layers in eval mode, in all copies: batch norm uses and keeps the statistics that it has."""
    for layer in network.modules():
        if getattr(layer, FROZEN, False):
            layer.training = False


def rest_encoder(network: nn.Module) -> None:
    """Leave the encoder, in all copies, as it is in this step: an optimizer moves only what has a gradient."""
    for module in network.modules():
        if getattr(module, ENCODER, False):
            for parameter in module.parameters():
                parameter.grad = None


def rate_factors(network: nn.Module, names: Iterable[str], settings: LearnerSettings) -> dict[str, float]:
    """The factor on the learning rate of each named parameter of the network that has one other than 1."""
    chosen = settings.optimizer
    found: dict[str, float] = {}
    for prefix, module in network.named_modules():
        if not getattr(module, ENCODER, False):
            continue
        known = stages(module)
        if chosen.layer_decay < 1 and max(known.values(), default=0) == 0:
            raise SettingError(f"optimizer.layer_decay is {chosen.layer_decay:g}: this encoder has no numbered stages.")
        heads = max((stage for name, stage in known.items() if STAGE.search(name)), default=0) + 1
        for name, stage in known.items():
            found[f"{prefix}.{name}"] = chosen.encoder_lr * chosen.layer_decay ** (heads - stage)
    return {name: found[name] for name in names if found.get(name, 1.0) != 1.0}
