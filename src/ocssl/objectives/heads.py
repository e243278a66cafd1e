"""The heads that objectives and terms share."""

from __future__ import annotations

from torch import nn


def projector(inputs: int, hidden: int, outputs: int, *, norm: bool = True) -> nn.Sequential:
    """Three layers with batch norm; the last norm has no affine part, so the bias before it has no effect: frozen.

    Without the last norm there is no last bias either: it is for losses that centre their input.
    """
    last = nn.Linear(hidden, outputs, bias=norm)
    if norm:
        last.bias.requires_grad_(False)
    layers = [
        nn.Linear(inputs, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        last,
    ]
    return nn.Sequential(*layers, nn.BatchNorm1d(outputs, affine=False)) if norm else nn.Sequential(*layers)


def predictor(width: int, hidden: int | None = None) -> nn.Sequential:
    """Two layers with a bottleneck (None: a quarter of the width), no norm at the end."""
    hidden = hidden or max(1, width // 4)
    return nn.Sequential(
        nn.Linear(width, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, width),
    )
