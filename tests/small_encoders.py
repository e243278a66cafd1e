"""Every registered encoder made small, with random weights; those of a library are models of that library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ocssl.encoders import ENCODERS
from torchvision_standin import require_timm

MODELS = Path(__file__).parent / "encoders" / "models"
SMALL: dict[str, dict[str, Any]] = {
    "hf:FOLDER": {"name": f"hf:{MODELS / 'vit'}", "pretrained": False},
    "timm:NAME": {"name": "timm:test_vit", "pretrained": False, "drop_path": 0.1},
    "vit": {"name": "vit", "dim": 12, "depth": 2, "heads": 2, "ratio": 2},
}


def small_encoder(label: str) -> dict[str, Any]:
    """The settings `encoder.*` of a small encoder, by the name that the registry lists it under."""
    if label.startswith("timm:"):
        require_timm()
    if label.startswith("hf:"):
        pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ocssl[hf]'")
    narrow = {"name": label} | ({"width": 2} if ":" not in label and "width" in ENCODERS.options(label) else {})
    return SMALL.get(label, narrow)
