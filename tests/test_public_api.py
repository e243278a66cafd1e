"""The public API: what `dir(ocssl)` and completion show can be imported, and showing it does not import torch."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import ocssl


@pytest.mark.process
def test_dir_shows_the_public_names_without_importing_torch() -> None:
    code = (
        "import sys, ocssl; assert dir(ocssl) == sorted(ocssl.__all__); "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; "
        "from ocssl import evaluate; assert ocssl.evaluate is evaluate and ocssl.evaluate.deviation"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_every_public_name_can_be_imported() -> None:
    assert {"Learner", "__version__", "evaluate"} <= set(ocssl.__all__)
    assert [name for name in ocssl.__all__ if name.startswith("_")] == ["__version__"]
    for name in set(ocssl.__all__) - {"Index", "Learner", "__version__", "images", "load_encoder"}:
        assert getattr(ocssl, name) is importlib.import_module(f"ocssl.{name}")
    assert ocssl.load_encoder.__module__ == "ocssl.embed.image_encoder"
    assert ocssl.Learner.__module__ == "ocssl.learner"


def test_public_modules_export_what_they_say() -> None:
    for name in ocssl.__all__:
        module = getattr(ocssl, name)
        for exported in getattr(module, "__all__", []):
            assert hasattr(module, exported), f"ocssl.{name}.{exported}"


def test_the_names_of_the_contract_are_there() -> None:
    from ocssl.evaluate import (  # noqa: F401 - that this works is the test
        deviation,
        knn_probe,
        linear_probe,
        overlap,
        overlap_count,
        ridge_probe,
        spectrum,
        uniformity,
    )

    for method in ("partial_fit", "transform", "save", "load"):
        assert callable(getattr(ocssl.Learner, method))


def test_another_name_is_an_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'ocssl' has no attribute 'learn'"):
        _ = ocssl.learn
