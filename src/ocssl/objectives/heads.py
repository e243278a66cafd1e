"""The heads that objectives and terms share."""

from __future__ import annotations

from torch import nn


def projector(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Three layers with batch norm; the last norm has no affine part, so the bias before it has no effect: frozen."""
    last = nn.Linear(hidden, outputs)
    last.bias.requires_grad_(False)
    return nn.Sequential(
        nn.Linear(inputs, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        last,
        nn.BatchNorm1d(outputs, affine=False),
    )


def predictor(width: int, hidden: int | None = None) -> nn.Sequential:
    """Two layers with a bottleneck (None: a quarter of the width), no norm at the end."""
    hidden = hidden or max(1, width // 4)
    return nn.Sequential(
        nn.Linear(width, hidden, bias=False),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, width),
    )
