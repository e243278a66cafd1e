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
EMPTY_PLOTS = """() => [...document.querySelectorAll(".plot")].filter((plot) =>
  !plot.classList.contains("js-plotly-plot") || plot.clientHeight < 100 || !plot.querySelector(
    ".main-svg :is(.scatterlayer .trace, .barlayer .trace, .heatmaplayer image)")).map((plot) => plot.id)"""
WIDTHS = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@dataclass
class Seen:
    """What a browser noticed while it opened a page and drew all of it."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    plots: int = 0
    widths: tuple[int, int] = (0, 0)


def look(browser: Any, path: Path, width: int = 1200, scheme: str = "light") -> Seen:
    """Open a page from disk, draw every plot, and tell what went wrong."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    try:
        page, seen = context.new_page(), Seen()
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.goto(path.as_uri())
        page.evaluate("() => window.ocsslDrawAll()")
        seen.plots = page.evaluate("() => window.ocsslDrawn")
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


def test_a_selector_shows_the_method_that_is_chosen(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.goto(report.as_uri())
    assert page.evaluate("() => window.ocsslDrawn < window.ocsslCharts")  # the rest waits until it comes near
    page.locator("select[data-chart=tasks]").select_option("minred")
    page.wait_for_function(
        "() => (document.getElementById('tasks').data || []).some((t) => t.visible && t.name === 'minred')"
    )
    shown = page.evaluate("() => document.getElementById('tasks').data.filter((t) => t.visible).map((t) => t.name)")
    page.close()
    assert shown == ["minred"]


FAULTS = [
    ("</body>", '<img src="https://example.com/a.png"></body>'),
    ('"use strict";', '"use strict"; setTimeout(() => nothing.here, 0);'),
    ("Plotly.newPlot(id,", '(id === "overlap" ? () => Promise.resolve() : Plotly.newPlot)(id,'),
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
    assert seen.empty == ["overlap"]
    assert seen.widths[0] > seen.widths[1]
