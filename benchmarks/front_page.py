"""The table and the curves of the README, from the kept runs of the mini protocol.

    python benchmarks/front_page.py

It writes docs/images/front-page.svg, and puts the table in the place of the README's first one. Runs are added with
`ocssl reproduce evidence --scale mini --data DIR` and `benchmarks/keep_runs.py`. A test compares both with the runs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from statistics import fmean, stdev

from ocssl._core.measures import MEASURES
from ocssl._files.atomic import write_out
from ocssl.results.chart import Level, Line, evaluation_chart
from ocssl.results.compare import LEAST_PAIRS
from ocssl.results.draw_page import Scale, span, spread_out, ticks
from ocssl.results.figures import accuracy_levels
from ocssl.results.paper import read_plan
from ocssl.results.paper.paper_tables import paper_number
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import by_series, find_runs

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "docs" / "results" / "evidence-cifar100"
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "images" / "front-page.svg"
BENCHMARK, OURS = "cifar100", {"SOLAR-C": "solar-c"}
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
WIDTH, HEIGHT = 330, 250
LEFT, RIGHT, TOP, BOTTOM = 26, 96, 28, 34  # around the plot
INK, QUIET, GRID = "#1b1e22", "#535961", "#e6e9ed"


def row_of(run: Run) -> str:
    """The row of the plan that a run belongs to: of those with its method, the one that sets most of what it has."""
    fits = [
        row
        for row in read_plan("evidence").rows
        if row.method == run.method and all(run.settings.get(key) == value for key, value in row.set.items())
    ]
    return max(fits, key=lambda row: len(row.set)).name


def rows(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Finished runs by row, the best average first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.finished:
            found.setdefault(row_of(run), []).append(run)
    return dict(sorted(found.items(), key=lambda item: -fmean(run.average or 0.0 for run in item[1])))


def complete(runs: Sequence[Run]) -> list[Run]:
    """The runs of rows with seeds enough to compare, if there are such rows: others wait in docs/results.md."""
    enough = [run for own in rows(runs).values() if len(own) >= LEAST_PAIRS for run in own]
    return enough or list(runs)


def shown(name: str) -> str:
    """A row's name in the table: this project's own recipe is called as on the command line."""
    return f"`{OURS[name]}` (ours)" if name in OURS else name


def cell(values: Sequence[float | None]) -> str:
    """Mean and standard deviation; of too few seeds, the mean with their number."""
    known = [value for value in values if value is not None]
    if len(known) < LEAST_PAIRS:
        return f"{fmean(known):.1f} ({len(known)})"
    return f"{fmean(known):.1f} ± {stdev(known):.1f}"


def table(runs: Sequence[Run]) -> str:
    """Ours beside the paper's, in Markdown."""
    lines = ["| | Final | Average | paper |", "| --- | ---: | ---: | ---: |"]
    for name, own in rows(complete(runs)).items():
        paper = [paper_number("evidence", name, BENCHMARK, measure)[0] for measure in ("final", "average")]
        beside = " / ".join(f"{value:.1f}" for value in paper if value is not None) or "new"
        lines.append(
            f"| {shown(name)} | {cell([r.final for r in own])} | {cell([r.average for r in own])} | {beside} |"
        )
    return "\n".join(lines) + "\n"


def curves(runs: Sequence[Run]) -> tuple[list[Line], list[Level]]:
    """Accuracy over the stream, a line a row with its name; and the level of the untrained encoder."""
    runs = complete(runs)
    chart = evaluation_chart(MEASURES["accuracy"], [run for run in runs if run.finished])
    if chart is None:
        raise SystemExit("no finished run with accuracies")
    names = {series: row_of(own[0]) for series, own in by_series(runs).items()}
    found = [replace(item, name=names[item.series]) for item in chart.panels[0].items if isinstance(item, Line)]
    order, few = list(rows(runs)), {name for name, own in rows(runs).items() if len(own) < LEAST_PAIRS}
    found = [replace(line, deviation=()) if line.name in few else line for line in found]
    levels = [level for level in accuracy_levels(runs) if level.words.startswith("untrained")]
    return sorted(found, key=lambda line: order.index(line.name)), levels


def picture(runs: Sequence[Run]) -> str:
    """The curves as SVG, their names beside them."""
    lines, levels = curves(runs)
    ys = [y for line in lines for y in line.y if y is not None] + [level.y for level in levels]
    ys += [end for line in lines for _, *ends in line.edges() for end in ends]
    across, up = Scale(0.0, 100.0), Scale(*span(ys))

    def x(share: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * across(share)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up(value)

    def words(at: float, height: float, text: str, anchor: str = "start", colour: str = QUIET, size: int = 11) -> str:
        place = f'x="{at:.1f}" y="{height:.1f}" font-size="{size}" text-anchor="{anchor}"'
        return f'<text {place} fill="{colour}">{escape(text)}</text>'

    def path(points: Sequence[tuple[float, float]], look: str) -> str:
        return f'<path d="M{"L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)}" {look}/>'

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    parts += [words(6, 15, "accuracy over the stream, %", colour=INK, size=12)]
    for value in ticks(up.low, up.high):
        parts += [path([(0, value), (100, value)], f'stroke="{GRID}" fill="none"')]
        parts += [words(LEFT - 5, y(value) + 4, f"{value:g}", "end")]
    parts += [words(x(share), HEIGHT - BOTTOM + 15, f"{share}", "middle") for share in (0, 50, 100)]
    parts += [words(x(50), HEIGHT - 6, "share of the stream, %", "middle")]
    for level in levels:
        parts += [path([(0, level.y), (100, level.y)], f'stroke="{QUIET}" stroke-dasharray="5 4" fill="none"')]
        parts += [words(x(100), y(level.y) - 4, level.words, "end")]
    for line in lines:
        colour = line.style.colour if line.style else INK
        edges = line.edges()
        if any(high > low for _, low, high in edges):
            around = [(a, high) for a, _, high in edges] + [(a, low) for a, low, _ in reversed(edges)]
            parts += [path(around, f'fill="{colour}" fill-opacity="0.15"')]
        points = [(a, b) for a, b in zip(line.x, line.y, strict=True) if a is not None and b is not None]
        dash = "" if not line.style or line.style.dash == "solid" else ' stroke-dasharray="6 3"'
        parts += [path(points, f'stroke="{colour}" stroke-width="2" stroke-linejoin="round" fill="none"{dash}')]
    ends = [100 * (1 - up(next(b for b in reversed(line.y) if b is not None))) for line in lines]
    room = HEIGHT - TOP - BOTTOM
    for line, top in zip(lines, spread_out(ends, 100 * 15 / room), strict=True):
        colour = line.style.colour if line.style else INK
        height = TOP + room * top / 100
        parts += [f'<path d="M{x(100) + 4:.1f} {height:.1f}h10" stroke="{colour}" stroke-width="3"/>']
        parts += [words(x(100) + 18, height + 4, OURS.get(line.name, line.name), colour=INK)]
    head = f'viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif"'
    return f"<svg {head}>\n" + "\n".join(parts) + "\n</svg>\n"


def with_table(readme: str, made: str) -> str:
    """The README with this table in the place of its first."""
    return TABLE.sub(lambda _: made, readme, count=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", default=RUNS, help="a folder of run folders")
    runs = find_runs([parser.parse_args().runs])
    write_out(PICTURE, picture(runs).encode())
    write_out(README, with_table(README.read_text(), table(runs)).encode())
    print(table(runs), end="")


if __name__ == "__main__":
    main()
