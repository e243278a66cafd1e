"""The scripts of examples/ run as they are, at a size that takes a moment."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from made import photos, saved

from conftest import ROOT

pytestmark = pytest.mark.slow


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_script_is_tested_and_short() -> None:
    text = Path(__file__).read_text()
    scripts = sorted((ROOT / "examples").glob("*.py"))
    assert len(scripts) >= 5
    for path in scripts:
        assert f'script("{path.stem}")' in text
        assert len(path.read_text().splitlines()) <= 60


def test_own_folder(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", 12)
    nearest = script("own_folder").main(str(folder), size=8, width=2)
    assert len(nearest) == 6
    assert all(Path(path).is_file() for path in nearest)


@pytest.mark.process
def test_search(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", encoder__name="resnet10")
    folder = photos(tmp_path / "photos", 8)
    image = str(folder / "even" / "000.png")
    found = script("search").main(str(run), str(folder), image)
    assert found[0] == image
    assert len(found) == 5
    assert "data:image/jpeg" in Path("page.html").read_text()


def test_a_probe_before_and_after() -> None:
    accuracies = script("probe_before_and_after").main(width=2, images=10, batches=2)
    assert len(accuracies) == 2
    assert all(0 <= accuracy <= 100 for accuracy in accuracies)


def test_own_rule() -> None:
    from ocssl.memory import KEEPS

    try:
        learner = script("own_rule").main(batches=8, width=2)
        assert len(learner.memory) == 60
        assert learner.memory.table()["draws"].max() >= 1
    finally:
        KEEPS._parts.pop("drawn-out", None)
        KEEPS._names.discard("drawn-out")


def test_sklearn_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    run, folder = saved(tmp_path / "run"), photos(tmp_path / "photos", 20)
    assert 0 <= script("sklearn_pipeline").main(str(run), str(folder), folds=2) <= 1
