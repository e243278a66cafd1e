"""Pictures of a report for the documentation: the page at three widths, light and dark, and its parts that explain.

    ocssl demo --out runs/demo && python benchmarks/report_pictures.py runs/demo -o docs/images

The images in them are those of the runs, so name runs on images that may be published. Needs chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from ocssl.results import write_report

SIZES = {1440: 1000, 1024: 900, 390: 844}  # width of a window and its height
PARTS = {  # file and what it shows
    "explain-hyperballs": "#neighbours .pictures >> nth=0",
    "explain-memory": "#strips",
    "explain-deviation": "#chart-deviation",
    "explain-overlap": "#chart-overlap",
}
LARGEST = 300_000  # bytes of a picture
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def write(picture: bytes, path: Path) -> None:
    """As a small PNG."""
    packed = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").save(packed, "PNG", optimize=True)
    if packed.tell() > LARGEST:
        raise SystemExit(f"{path} would have {packed.tell():,} bytes; the most are {LARGEST:,}")
    path.write_bytes(packed.getvalue())
    print(f"{path} ({packed.tell() / 1000:.0f} KB)")


def opened(browser: Any, page: Path, width: int, scheme: str, scale: float = 1) -> Any:
    size = {"width": width, "height": SIZES[width]}
    found = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=scale)
    found.goto(page.as_uri())
    found.wait_for_function("() => performance.getEntriesByName('ocssl-chart').length")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of them")
    parser.add_argument("--output", "-o", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        parser.error("needs chromium or google-chrome")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        page = Path(place) / "report.html"
        write_report(options.runs, page)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for width in SIZES:
            for scheme in ("light", "dark"):
                shown = opened(browser, page, width, scheme)
                write(shown.screenshot(), options.output / f"report-{width}-{scheme}.png")
                shown.close()
        shown = opened(browser, page, 1024, "light")
        for name, part in PARTS.items():
            write(shown.locator(part).screenshot(), options.output / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
