"""The documentation site: it builds strictly and offline, its links and pictures are right, its notebooks run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT
from ocssl.cli import app
from ocssl.recipes import methods

pytest.importorskip("mkdocs", reason="the site needs the extra docs")
DOCS = ROOT / "docs"
GENERATE = DOCS / "_generate"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
)


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, GENERATE / f"{name}.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


notebooks = module("notebooks")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning, such as a link that leads nowhere, ends the build."""
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", out]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*map(str, words)], env=env, capture_output=True, text=True, timeout=300, cwd=out)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


@pytest.mark.process
def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} | {"commands", "settings", "names", "api", "contributing"}
    assert pages <= {path.stem for path in site.glob("*.html")}
    home = (site / "index.html").read_text()
    assert [page for page in pages - {"index"} if f'href="{page}.html"' not in home] == []


@pytest.mark.process
def test_pages_fetch_nothing_from_the_network(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not FETCHED.search(path.read_text()), path.name
    assert not re.search(r"url\(\s*[\"']?https?:", (site / "assets" / "site.css").read_text())
    assert FETCHED.search('<script src="https://unpkg.com/x"></script>')  # the search would see one


@pytest.mark.process
def test_formulas_and_pictures_are_part_of_the_page(site: Path) -> None:
    page = (site / "concepts.html").read_text()
    assert page.count("<math ") == (DOCS / "concepts.md").read_text().count("```math") > 5
    assert "\\" not in "".join(re.findall(r"<math .*?</math>", page, re.DOTALL))  # as of a command that is not known
    assert page.count('<figure class="drawn"><svg role="img" aria-label="') == 6
    assert "```" not in re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)


@pytest.mark.process
def test_the_reference_has_every_command_setting_name_and_docstring(site: Path) -> None:
    commands, names = (site / "commands.html").read_text(), (site / "names.html").read_text()
    assert [name for name in app if not name.startswith("-") and f'id="{name}"' not in commands] == []
    assert [name for name in methods() if f"<code>{name}</code>" not in names] == []
    settings = (site / "settings.html").read_text()
    for key in ("memory.capacity", "terms.overlap.k", "memory.rules.per.alpha", "stream.fraction", "checkpoint.every"):
        assert f"<code>{key}</code>" in settings
    api = (site / "api.html").read_text()
    for name in ("learner.Learner.partial_fit", "evaluate.latent_metrics.deviation", "checks.rules.check_keep"):
        assert f'id="ocssl.{name}"' in api
    assert "<blockquote>" not in api  # as an example would be that is not shown as code
    assert api.count('class="gp"') > 10  # prompts of examples


@pytest.mark.process
def test_the_search_works_on_pages_that_are_opened_as_files(site: Path) -> None:
    sync = pytest.importorskip("playwright.sync_api", reason="the search is tried in a browser")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no chromium here")
    with sync.sync_playwright() as play:
        window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = window.new_page(viewport={"width": 1280, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.locator(".md-search__input").click()
        page.locator(".md-search__input").press_sequentially("reservoir")
        page.wait_for_selector(".md-search-result__link", timeout=60_000)
        assert "eservoir" in page.locator(".md-search-result__list").inner_text()
        window.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


@pytest.mark.process
@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_runs_as_a_script(page: str, tmp_path: Path) -> None:
    text = notebooks.notebook((DOCS / page).read_text())
    cells = json.loads(text)["cells"]
    assert {cell["cell_type"] for cell in cells} == {"markdown", "code"}
    assert len({cell["id"] for cell in cells}) == len(cells)
    (tmp_path / "script.py").write_text(notebooks.script(text))
    words = [sys.executable, "script.py"]
    done = subprocess.run(words, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_notebook_has_the_code_of_its_page_in_order() -> None:
    text = "# Title\n\n```python\na = 1\n```\n\nWords.\n\n```sh\nls\n```\n\n```python\nb = a\n```\n"
    found: dict[str, Any] = json.loads(notebooks.notebook(text))
    assert [cell["cell_type"] for cell in found["cells"]] == ["markdown", "code", "markdown", "code"]
    assert notebooks.script(notebooks.notebook(text)) == "a = 1\n\nb = a"


def test_the_pictures_are_those_that_the_code_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = module("pictures")
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    pictures.main()
    kept = {path.name: path.read_text() for path in (DOCS / "images" / "concepts").iterdir()}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == kept


def slug(title: str) -> str:
    words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]|\]\([^)]*\)", "", title).lower())
    return re.sub(r"\s", "-", words.strip())


def anchors(text: str) -> set[str]:
    return {slug(line.lstrip("#")) for line in text.splitlines() if line.startswith("#")}


@pytest.mark.parametrize(
    "path", [*(ROOT / name for name in TOP), *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name
)
def test_links_in_the_sources_lead_somewhere(path: Path) -> None:
    """As on a code host; the build of the site checks them once more."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        place, _, anchor = target.partition("#")
        file = path.parent / place if place else path
        if file.name in ("commands.md", "settings.md", "names.md", "api.md", "contributing.md", "changelog.md"):
            continue  # written when the site is built
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            wrong.append(target)
    assert wrong == []
