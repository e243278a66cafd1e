"""What is found of a source before a run is what the run will meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from ocssl.cost import Machine
from ocssl.cost.data_survey import Check, check
from ocssl.runs.config import resolve_run


def survey(root: Path) -> Check:
    settings = resolve_run("er-fifo", f"folder:{root}", 0, {"stream.image_size": 8, "encoder.width": 4})
    return check({"none": settings}, lambda: Machine("known", 8e10, 5e10, 6e9, 2e-4))


@pytest.mark.parametrize("levels", ["", "train/"])
def test_classes_count_images_that_can_be_used(levels: str, tmp_path: Path) -> None:
    for name in ("cat/1", "cat/2", "dog/1", "dog/2", "dog/3", "owl/1"):
        (tmp_path / levels / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9)).save(tmp_path / levels / f"{name}.png")
    (tmp_path / levels / "dog" / "damaged.png").write_bytes(b"no image")
    (tmp_path / levels / "owl" / "1.png").write_bytes(b"no image")
    found = survey(tmp_path)
    assert found.classes == {"cat": 2, "dog": 3, "owl": 0}
    assert sum(found.classes.values()) == found.used == 5
    assert found.reasons() == {"damaged": 2}
