"""How long a browser takes to open a report: a new browser context each time, the page from disk, no network.

    ocssl sweep SPEC.toml && python benchmarks/report_opening.py runs/SPEC

Prints the page's size and medians over the openings, in milliseconds from the start of navigation: first paint, the
load event, the first chart, and how much longer all charts take when they are asked for at once. Needs chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from ocssl.report import write_report

FIRST_CHART = "() => window.ocsslDrawn > 0 && performance.now()"
TIMES = """() => [performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
                   performance.getEntriesByType("navigation")[0].loadEventEnd]"""
ALL_CHARTS = (
    "async () => { const start = performance.now(); await window.ocsslDrawAll(); return performance.now() - start; }"
)


def opened(browser: Any, path: Path) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        first = page.wait_for_function(FIRST_CHART, polling=10).json_value()
        paint, load = page.evaluate(TIMES)
        return {"first paint": paint, "load event": load, "first chart": first, "all charts": page.evaluate(ALL_CHARTS)}
    finally:
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of them")
    parser.add_argument("--openings", type=int, default=9)
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        parser.error("needs chromium or google-chrome")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        path = Path(place) / "report.html"
        print(f"{write_report(options.runs, path) / 1e6:.1f} MB")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = [opened(browser, path) for _ in range(options.openings)]
        browser.close()
    for name in found[0]:
        values = sorted(one[name] for one in found)
        print(f"{name:<12} {statistics.median(values):6.0f} ms  ({values[0]:.0f} to {values[-1]:.0f})")


if __name__ == "__main__":
    main()
