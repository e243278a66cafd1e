"""Facts that only a browser can tell: every plot of a 12-run report draws, nothing is fetched, nothing fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from report_folders import make_sweep

from ocssl.results import write_report

pytestmark = pytest.mark.process

LARGEST = 8_000_000  # bytes
EMPTY_PLOTS = """() => [...document.querySelectorAll(".chart")].filter((chart) => {
  const shapes = [...chart.querySelectorAll(":is(.area path.line, .area img, .dot, .stack i)")];
  return !shapes.some((shape) => { const box = shape.getBoundingClientRect(); return box.width + box.height > 8; });
}).map((chart) => chart.id)"""
AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
WIDTHS = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@dataclass
class Seen:
    """What a browser noticed while it opened a page."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    plots: int = 0
    widths: tuple[int, int] = (0, 0)


def look(browser: Any, path: Path, width: int = 1200, scheme: str = "light") -> Seen:
    """Open a page from disk, and tell what went wrong."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    try:
        page, seen = context.new_page(), Seen()
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_function("() => performance.getEntriesByName('ocssl-chart').length")
        seen.plots = page.evaluate("() => document.querySelectorAll('.chart').length")
        seen.empty = page.evaluate(EMPTY_PLOTS)
        seen.widths = tuple(page.evaluate(WIDTHS))
        seen.requests = [
            url for url in seen.requests if not url.startswith(("data:", "blob:")) and url != path.as_uri()
        ]
        return seen
    finally:
        context.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        pytest.skip("needs chromium or google-chrome")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on 4 methods with 3 seeds, 20 experiences, 100 classes, and pictures that pack badly."""
    place = tmp_path_factory.mktemp("sweep")
    output = place / "a report.html"
    size = write_report([make_sweep(place / "runs", experiences=20, each=45, classes=100)], output)
    assert size == output.stat().st_size
    return output


def test_the_report_of_twelve_runs_is_small(report: Path) -> None:
    assert report.stat().st_size < LARGEST


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_every_plot_draws_and_nothing_is_fetched(browser: Any, report: Path, width: int, scheme: str) -> None:
    seen = look(browser, report, width, scheme)
    assert (seen.requests, seen.errors, seen.empty) == ([], [], [])
    assert seen.plots == 17
    assert seen.widths[0] <= seen.widths[1] == width  # nothing to scroll sideways


def test_a_name_hides_its_lines_in_every_chart_and_a_tooltip_says_the_rest(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(report.as_uri())
    page.locator("#chart-accuracy button", has_text="minred").click()
    lines = "() => [...document.querySelectorAll('path.line[data-series=minred]')]"
    assert page.evaluate(lines + ".filter((line) => line.checkVisibility()).length") == 0
    page.locator("#chart-accuracy .area").hover()
    said = page.locator(".tip").inner_text()
    page.locator("#chart-overlap button", has_text="minred").click()  # the same name, in another chart
    assert page.evaluate(lines + ".every((line) => line.checkVisibility())")
    page.close()
    assert "solar, mean of 3 seeds: " in said
    assert "minred" not in said


def test_a_page_that_follows_runs_reads_itself_again_until_it_is_paused(browser: Any, tmp_path: Path) -> None:
    output = tmp_path / "followed.html"
    runs = make_sweep(tmp_path / "runs", ("solar",), 1)
    (runs / "solar-0" / "metrics.json").unlink()  # it goes on
    write_report([runs], output, follow=60)
    page = browser.new_page()
    page.clock.install()
    page.goto(output.as_uri())
    with page.expect_event("load"):
        page.clock.fast_forward(61_000)
    page.locator(".follow button").click()
    assert page.locator(".follow button").inner_text() == "Continue"
    page.evaluate("() => { window.same = true; }")
    page.clock.fast_forward(200_000)
    assert page.evaluate("() => window.same")
    page.close()


# ---- readable by everyone: axe-core finds nothing to mend ------------------------------------------------------------

STANDARD = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(browser: Any, path: Path, width: int = 1440, scheme: str = "light") -> dict[str, list[str]]:
    """What axe-core finds wrong, by rule, with the places."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    try:
        page.goto(path.as_uri())
        page.evaluate("() => document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        page.add_script_tag(path=str(AXE))
        found = page.evaluate("(tags) => axe.run({ runOnly: tags })", STANDARD)
        return {rule["id"]: [str(node["target"]) for node in rule["nodes"]] for rule in found["violations"]}
    finally:
        page.close()


needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: make browser, or npm install axe-core")


@needs_axe
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_the_report_has_no_violation_of_accessibility(browser: Any, report: Path, width: int, scheme: str) -> None:
    assert violations(browser, report, width, scheme) == {}


@needs_axe
def test_faint_words_and_a_picture_without_words_are_found(browser: Any, report: Path) -> None:
    page = report.read_text(encoding="utf-8").replace("--quiet: #535961", "--quiet: #9aa0a6")
    page = page.replace('alt="Contact sheet', 'data-alt="Contact sheet', 1)
    broken = report.with_name("faint.html")
    broken.write_text(page, encoding="utf-8")
    assert {"color-contrast", "image-alt"} <= violations(browser, broken).keys()


FAULTS = [
    ("</body>", '<img src="https://example.com/a.png"></body>'),
    ('"use strict";', '"use strict"; setTimeout(() => nothing.here, 0);'),
    ('id="chart-overlap"', 'id="chart-overlap" style="display: none"'),
    ("</main>", '<div style="width: 3000px">wide</div></main>'),
]


def test_a_fetch_an_error_an_empty_plot_and_a_wide_page_are_noticed(browser: Any, report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    head, _, rest = page.partition('<meta http-equiv="Content-Security-Policy"')
    page = head + rest.partition(">")[2]  # without the policy, which alone would stop them
    for right, wrong in FAULTS:
        before, found, after = page.rpartition(right)
        assert found
        page = before + wrong + after
    broken = report.with_name("broken.html")
    broken.write_text(page, encoding="utf-8")
    seen = look(browser, broken)
    assert seen.requests == ["https://example.com/a.png"]
    assert any("nothing is not defined" in error for error in seen.errors)
    assert seen.empty == ["chart-overlap"]
    assert seen.widths[0] > seen.widths[1]
