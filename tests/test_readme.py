"""The README's Python runs as written, and its numbers are those of the runs that are kept."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ocssl
from conftest import ROOT
from ocssl import recipes
from ocssl.objectives import OBJECTIVES

README = (ROOT / "README.md").read_text()
WIDTH, SCREEN = 820, 1080
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with four images and a torn one, where the code looks for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos" / "more").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(4):
        pixels = generator.integers(0, 256, (90, 70, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / "more" / f"{number}.jpg")
    (tmp_path / "photos" / "more" / "torn.jpg").write_bytes(b"no image")


def python(text: str) -> str:
    """The Python of a page that makes a learner, at a size that takes a moment."""
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if '"encoder.width": 16' in code)
    return str(code).replace('"encoder.width": 16', '"encoder.width": 2, "schedule.passes": 1')


@pytest.mark.slow
@pytest.mark.usefixtures("photos")
def test_the_practitioners_lines_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(python(README), names)
    assert isinstance(names["learner"], ocssl.Learner)
    assert np.asarray(names["vectors"]).shape == (4, 16)  # the README says 128, at eight times the width
    assert np.array_equal(np.asarray(names["vectors"]), names["learner"].transform(names["batch"].images))  # type: ignore[attr-defined]
    assert "4 images, loss" in capsys.readouterr().out
    assert (tmp_path / "my-learner" / "checkpoint.json").exists()


@pytest.mark.usefixtures("photos")
def test_the_benchmark_in_python_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(python(BENCHMARKS), {})
    out = capsys.readouterr().out
    assert "skipped more/torn.jpg" in out
    assert "4 images" in out  # of five, one is torn; a single folder is no class, so none is held out to test on
    assert (tmp_path / "my-learner" / "checkpoint.json").exists()


def test_the_loop_of_the_live_page_runs_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "live.md").read_text(), re.DOTALL)
    code = code.replace('"encoder.width": 16', '"encoder.width": 2')
    exec(code, {})
    exec(code, {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [str(10 * n) for n in range(1, 9)]


@pytest.mark.process
def test_the_readme_takes_two_screens(tmp_path: Path) -> None:
    """At the width of a code host's page; no line of code is cut off there."""
    markdown = pytest.importorskip("markdown", reason="rendering needs the extra docs")
    sync = pytest.importorskip("playwright.sync_api", reason="rendering needs a browser")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no chromium here")
    page, style = tmp_path / "readme.html", (Path(__file__).parent / "code_host.css").read_text()
    text = README.replace('src="docs/', f'src="{(ROOT / "docs").as_uri()}/')
    body = markdown.markdown(text, extensions=["tables", "fenced_code"])
    page.write_text(f"<meta charset=utf-8><style>{style}</style>{body}")
    with sync.sync_playwright() as play:
        window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": WIDTH, "height": SCREEN})
        tab.goto(page.as_uri())
        height = tab.evaluate("document.body.scrollHeight")
        demo = tab.evaluate("document.querySelector('pre').getBoundingClientRect().bottom")
        cut_off = tab.evaluate(
            "[...document.querySelectorAll('pre')].map(block => block.scrollWidth - block.clientWidth)"
        )
        window.close()
    assert height <= 2 * SCREEN, height
    assert demo <= SCREEN, demo  # real results and how to install are on the first screen
    assert max(cut_off) == 0


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def test_the_table_of_others_can_be_checked() -> None:
    rows = [cells(row) for row in README.split("## Alternatives")[1].split("\n\n")[1].splitlines()]
    assert {len(row) for row in rows} == {6}
    others = [row for row in rows[2:] if row[0] != "**ocssl**"]
    assert len(others) == 5
    assert all("](https://github.com/" in row[0] and all(row) for row in others)


def test_the_readme_counts_what_there_is() -> None:
    assert f"[{len(set(recipes.methods()) - {'pretrain'})}](docs/methods.md)" in README
    assert f"[{len(set(OBJECTIVES) - {'none'})}](docs/methods.md#objectives)" in README


def test_the_sentence_on_the_papers_crops_is_that_of_the_kept_runs() -> None:
    found: dict[str, list[float]] = {}
    for path in (ROOT / "docs" / "results" / "mini-cifar100").glob("*/metrics.json"):
        metrics = json.loads(path.read_text())
        found.setdefault(metrics["method"], []).append(metrics["final_accuracy"])
    names = {"er-reservoir": "Reservoir", "minred": "MinRed", "er-fifo": "FIFO", "solar": "SOLAR"}
    assert found.keys() == names.keys()
    for method, finals in found.items():
        assert len(finals) == 3
        assert f"{statistics.mean(finals):.1f} ± {statistics.stdev(finals):.1f} for {names[method]}" in README
