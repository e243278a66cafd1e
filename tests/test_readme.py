"""The README's Python runs as written."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ocssl
from conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.slow
def test_the_api_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = BLOCKS[0].replace("range(5)", "range(2)")
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["learner"], ocssl.Learner)
    assert np.asarray(names["features"]).shape == (10, 128)
    assert capsys.readouterr().out.strip()


def test_the_example_with_own_images_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "more").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(4):
        pixels = generator.integers(0, 256, (90, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / "more" / f"{number}.jpg")
    (tmp_path / "photos" / "more" / "torn.jpg").write_bytes(b"no image")
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    code = BLOCKS[1].replace('"encoder.width": 16', '"encoder.width": 2, "schedule.passes": 1')
    exec(code, {})
    out = capsys.readouterr().out
    assert "skipped more/torn.jpg" in out
    assert "3 images" in out  # of five, one is held out to test on and one is torn
    assert (tmp_path / "my-learner" / "checkpoint.json").exists()
