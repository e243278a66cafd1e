"""Draws the pictures of the concepts page: `python docs/_generate/pictures.py` writes docs/images/concepts/*.svg.

Colours are variables with a value for where there is no style sheet: the site sets them for light and dark pages.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "images" / "concepts"
INK, FAINT, PAPER = "var(--ink,#2b2f36)", "var(--faint,#d8dbe2)", "var(--paper,#fff)"
BLUE, ORANGE, GREEN, PURPLE, RED = "#3b6fd4", "#d9822b", "#2f9e6e", "#8a5bd0", "#cc4a5a"
CLASSES = (BLUE, ORANGE, GREEN, PURPLE, RED)


def text(x: float, y: float, words: str, *, size: int = 15, anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight} fill="{INK}">{words}</text>'


def box(x: float, y: float, w: float, h: float, fill: str = "none", *, edge: str = INK, width: float = 1.5) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="4" fill="{fill}" '
        f'stroke="{edge}" stroke-width="{width:g}"/>'
    )


def named(x: float, y: float, w: float, h: float, words: str, note: str = "") -> str:
    """A box with its name, and a line below the name."""
    middle = y + h / 2 + 5
    if not note:
        return box(x, y, w, h) + text(x + w / 2, middle, words, bold=True)
    return box(x, y, w, h) + text(x + w / 2, middle - 9, words, bold=True) + text(x + w / 2, middle + 11, note, size=13)


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    angle = math.atan2(y2 - y1, x2 - x1)
    tips = [(x2 - 10 * math.cos(angle + turn), y2 - 10 * math.sin(angle + turn)) for turn in (0.45, -0.45)]
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*tips, (x2, y2)])
    line = f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{INK}" stroke-width="1.8"/>'
    return f'{line}<polygon points="{head}" fill="{INK}"/>'


def image(x: float, y: float, colour: str, side: float = 22) -> str:
    return box(x, y, side, side, colour, edge="none")


def picture(name: str, height: int, parts: Iterable[str]) -> None:
    body = "\n".join(parts)
    head = f'viewBox="0 0 880 {height}" xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif"'
    background = f'<rect width="880" height="{height}" fill="{PAPER}"/>'
    (FOLDER / f"{name}.svg").write_text(f"<svg {head}>\n{background}\n{body}\n</svg>\n")


def stream() -> None:
    """Five experiences of two classes each, one minibatch marked, and the arrow of time."""
    parts, draw = [], random.Random(0)
    for experience in range(5):
        left = 24 + experience * 168
        parts.append(text(left + 76, 34, f"experience {experience + 1}", bold=True))
        for column in range(6):
            for row in range(2):
                lighter = draw.random() < 0.5
                tile = image(left + 26 * column, 52 + 26 * row, CLASSES[experience])
                parts.append(f'<g opacity="{0.5 if lighter else 1}">{tile}</g>')
    parts += [box(190, 48, 56, 56, width=2.5), text(218, 126, "a minibatch", size=13)]
    parts += [
        arrow(24, 150, 852, 150),
        text(838, 138, "time", size=13),
        text(24, 172, "each image is seen once", size=13, anchor="start"),
    ]
    picture("stream", 184, parts)


def memory() -> None:
    """New images pass the keep rule into slots; the draw rule takes some of them into the batch."""
    draw = random.Random(3)
    parts = [text(90, 30, "stream", bold=True), text(90, 152, "10 new images", size=13)]
    parts += [image(38 + 26 * (n % 4), 48 + 26 * (n // 4), RED) for n in range(10)]
    parts += [arrow(160, 82, 206, 82), named(210, 50, 120, 64, "keep rule", "who stays"), arrow(330, 82, 376, 82)]
    parts += [text(478, 30, "memory: M slots", bold=True), box(380, 42, 196, 92)]
    parts += [image(389 + 26 * (n % 7), 50 + 26 * (n // 7), draw.choice(CLASSES)) for n in range(21)]
    parts += [
        arrow(576, 82, 620, 82),
        named(624, 50, 120, 64, "draw rule", "who is replayed"),
        arrow(684, 114, 684, 184),
    ]
    parts += [text(478, 178, "batch: 10 new + 128 replayed", bold=True), box(330, 190, 414, 40)]
    parts += [image(340 + 26 * n, 199, RED if n < 3 else draw.choice(CLASSES)) for n in range(15)]
    parts += [f'<path d="M90 162 V210 H322" fill="none" stroke="{INK}" stroke-width="1.8"/>', arrow(312, 210, 328, 210)]
    picture("memory", 246, parts)


def terms() -> None:
    """A batch gives two views, features, and a loss that is a sum."""
    parts = [box(20, 60, 70, 70), image(30, 70, BLUE, 50), text(55, 152, "image", size=13)]
    for row, name in ((20, "view 1"), (110, "view 2")):
        parts += [
            arrow(92, 95, 140, row + 30),
            box(144, row, 60, 60),
            image(156, row + 12, BLUE, 36),
            text(174, row + 78, name, size=13),
        ]
        parts += [arrow(206, row + 30, 262, 95)]
    parts += [named(266, 62, 118, 66, "encoder", "features"), arrow(384, 95, 436, 48), arrow(384, 95, 436, 142)]
    parts += [
        named(440, 16, 190, 64, "objective", "loss of each image"),
        named(440, 110, 190, 64, "term", "an extra loss"),
    ]
    parts += [
        arrow(630, 48, 700, 88),
        arrow(630, 142, 700, 102),
        text(664, 148, "&#215; weight", size=13, anchor="start"),
    ]
    parts += [named(704, 62, 60, 66, "+"), arrow(764, 95, 800, 95), text(838, 100, "step", bold=True)]
    picture("terms", 200, parts)


def probe() -> None:
    """Labels meet the features only in the classifier; nothing flows back to the encoder."""
    parts = [text(76, 36, "labelled images", bold=True)]
    parts += [image(24 + 26 * (n % 4), 54 + 26 * (n // 4), CLASSES[n % 5]) for n in range(12)]
    parts += [arrow(136, 92, 186, 92), named(190, 56, 130, 72, "encoder", "frozen"), arrow(320, 92, 366, 92)]
    draw = random.Random(5)
    parts += [text(450, 36, "features", bold=True), box(370, 48, 160, 92)]
    for index, (x, y) in enumerate(((405, 72), (490, 78), (440, 116), (508, 120), (395, 122))):
        for _ in range(7):
            dx, dy = draw.gauss(0, 8), draw.gauss(0, 6)
            parts.append(f'<circle cx="{x + dx:.1f}" cy="{y + dy:.1f}" r="3.5" fill="{CLASSES[index]}"/>')
    parts += [arrow(530, 92, 576, 92), named(580, 56, 130, 72, "probe", "linear"), arrow(710, 92, 756, 92)]
    parts += [text(812, 88, "accuracy", bold=True), text(812, 108, "on test images", size=13)]
    picture("probe", 160, parts)


def _fan(x: float, y: float, length: float, angles: Iterable[float], colour: str) -> list[str]:
    parts, ends = [], []
    for angle in angles:
        end = x + length * math.cos(math.radians(angle)), y - length * math.sin(math.radians(angle))
        ends.append(end)
        line = f'<line x1="{x:g}" y1="{y:g}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{colour}" stroke-width="2"/>'
        parts += [line, f'<circle cx="{end[0]:.1f}" cy="{end[1]:.1f}" r="5" fill="{colour}"/>']
    return parts


def _circle(x: float, y: float, radius: float, edge: str = FAINT, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="none" stroke="{edge}" stroke-width="1.8"{dashed}/>'


def deviation() -> None:
    """The projections of an image's views as unit vectors, close together and far apart, with their Deviation."""
    parts = []
    for x, title, angles in (
        (220, "views alike", (72, 82, 90, 97, 107)),
        (640, "views differ", (18, 55, 88, 128, 165)),
    ):
        unit = [(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in angles]
        n = len(unit)
        mean = [sum(column) / n for column in zip(*unit, strict=True)]
        value = 1 - mean[0] ** 2 - mean[1] ** 2
        parts += [text(x, 28, title, bold=True), _circle(x, 190, 120), *_fan(x, 190, 120, angles, BLUE)]
        parts += [arrow(x, 190, x + 120 * mean[0], 190 - 120 * mean[1])]
        parts.append(text(x, 226, f"Deviation {value:.2f}"))
        parts.append(text(x, 248, f"length of the mean {math.hypot(*mean):.2f}", size=13))
    clip = '<clipPath id="upper"><rect x="0" y="0" width="880" height="194"/></clipPath>'
    shown = [part if "<text" in part else f'<g clip-path="url(#upper)">{part}</g>' for part in parts]
    picture("deviation", 262, [clip, *shown])


def overlap() -> None:
    """Two samples as balls around their mean features: apart, and overlapping."""
    parts = []
    for x, title, apart, radii in ((220, "apart: Ov &lt; 0", 74, (17, 20)), (640, "overlap: Ov &gt; 0", 34, (22, 26))):
        length, balls = 150, []
        for centre, radius, colour in zip((90 + apart / 2, 90 - apart / 2), radii, (BLUE, ORANGE), strict=True):
            cx, cy = x + length * math.cos(math.radians(centre)), 252 - length * math.sin(math.radians(centre))
            size = length * math.sin(math.radians(radius))
            at = f'cx="{cx:.1f}" cy="{cy:.1f}"'
            filled = f'fill="{colour}" fill-opacity="0.25" stroke="{colour}" stroke-width="2"'
            line = f'<line x1="{x}" y1="252" x2="{cx:.1f}" y2="{cy:.1f}" stroke="{INK}" stroke-width="1.6"/>'
            balls += [f'<circle {at} r="{size:.1f}" {filled}/>', line, f'<circle {at} r="4.5" fill="{colour}"/>']
        half = math.radians(apart / 2)
        sx, sy = x - 44 * math.sin(half), 252 - 44 * math.cos(half)
        way = f"M{sx:.1f} {sy:.1f} A44 44 0 0 1 {2 * x - sx:.1f} {sy:.1f}"
        arc = f'<path d="{way}" fill="none" stroke="{INK}" stroke-width="1.6"/>'
        angle = f"{radii[0]}° + {radii[1]}° - {apart}° = {radii[0] + radii[1] - apart}°".replace("-", "&#8722;")
        parts += [text(x, 26, title, bold=True), *balls, arc, text(x, 196, f"{apart}°", size=13), text(x, 282, angle)]
    picture("overlap", 298, parts)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for draw in (stream, memory, terms, probe, deviation, overlap):
        draw()


if __name__ == "__main__":
    main()
