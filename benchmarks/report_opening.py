"""How long a browser takes to open a report: a new browser each time, the page from disk.

    ocssl sweep SPEC.toml && python benchmarks/report_opening.py runs/SPEC

Prints the page's size and medians over the openings, in milliseconds from the start of navigation: first paint, the
load event, and the first chart. Nothing is attached to the browser until the first chart must be there.
Needs chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from ocssl.results import write_report

TIMES = """() => {
  const at = (name) => performance.getEntriesByName(name)[0]?.startTime ?? NaN;
  const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
  return { "first paint": at("first-contentful-paint"), "load event": load, "first chart": at("ocssl-chart") };
}"""


def opened(playwright: Any, chromium: str, path: Path, wait: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        own = [
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "--window-size=1200,900",
            "--no-sandbox",
            "--disable-gpu",
        ]
        command = [chromium, "--headless", "--disable-background-networking", *own, path.as_uri()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(wait)
                port = (Path(profile) / "DevToolsActivePort").read_text(encoding="utf-8").split()[0]
                browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
                page = browser.contexts[0].pages[0]
                return dict(page.evaluate(TIMES))
            finally:
                process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of them")
    parser.add_argument("--openings", type=int, default=9)
    parser.add_argument("--wait", type=float, default=4.0, help="seconds after which the first chart must be there")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        parser.error("needs chromium or google-chrome")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        path = Path(place) / "report.html"
        print(f"{write_report(options.runs, path) / 1e6:.1f} MB")
        found = [opened(playwright, chromium, path, options.wait) for _ in range(options.openings)]
    for name in found[0]:
        values = sorted(one[name] for one in found)
        print(f"{name:<12} {statistics.median(values):6.0f} ms  ({values[0]:.0f} to {values[-1]:.0f})")


if __name__ == "__main__":
    main()
