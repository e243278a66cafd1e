"""The part of the page that shows pictures: memories at the end, and what left them on the way."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from ocssl.results.gallery import MOST_EVICTED, Evicted, Sheet, make_evicted, make_gallery
from ocssl.results.markup import notes
from ocssl.results.read import Run
from ocssl.results.series import by_series

MOST_GALLERIES = 6


def galleries(runs: Sequence[Run]) -> str:
    """A contact sheet of each run's memory; of many runs, one seed a series."""
    without = [run for run in runs if run.settings.get("memory.capacity") == 0]
    runs = chosen = [run for run in runs if run.settings.get("memory.capacity") != 0]
    if len(chosen) > MOST_GALLERIES:
        chosen = [max(group, key=lambda run: run.seed or 0) for group in by_series(runs).values()][:MOST_GALLERIES]
    parts = [_gallery(run) for run in chosen]
    if len(chosen) < len(runs):
        left_out = f"Memories of {len(runs) - len(chosen)} more runs are left out; a report on fewer runs shows them."
        parts.append(notes([left_out]))
    if without:
        parts.append(notes([f"No images are stored by {', '.join(run.label for run in without)}."]))
    return "\n".join(parts)


def _gallery(run: Run) -> str:
    gallery, words = make_gallery(run)
    caption, picture = "", ""
    if gallery is not None:
        part = "all" if gallery.shown == gallery.filled else str(gallery.shown)
        loss = "" if gallery.loss is None else f"mean stored loss {gallery.loss:.3f}, "
        caption = (
            f"<p>{gallery.filled} slots filled ({part} shown, {gallery.order}), {loss}"
            f"mean age {gallery.age:.0f} stream images, median draws {gallery.draws:.0f}.</p>"
        )
        alt = f"Contact sheet of {gallery.shown} images in the final memory of {run.label}, {gallery.order}"
        picture = _image(gallery.sheet, alt)
    left = "".join(_evicted(run, evicted) for evicted in make_evicted(run))
    left = f"<h4>Just evicted</h4>{left}" if left else notes(["No small pictures were kept on the way."])
    head = f"<figcaption><h3>{escape(run.label)}</h3>{caption}{notes(words)}</figcaption>"
    return f"<figure>{head}{picture}{left}</figure>"


def _evicted(run: Run, evicted: Evicted) -> str:
    when = "between two evaluations"
    if evicted.begin is not None and evicted.end is not None:
        when = f"between {evicted.begin:.0f} and {evicted.end:.0f} % of the stream"
    part = f" ({MOST_EVICTED} shown)" if evicted.gone > MOST_EVICTED else ""
    words = f"{evicted.gone} of {evicted.of} pictured images left {when}{part}."
    if evicted.sheet is None:
        return notes([words])
    return notes([words]) + _image(evicted.sheet, f"Images evicted from the memory of {run.label} {when}")


def _image(sheet: Sheet, alt: str) -> str:
    address = f"data:image/{sheet.kind};base64,{base64.b64encode(sheet.packed).decode()}"
    return f'<img src="{address}" width="{sheet.width}" height="{sheet.height}" alt="{escape(alt)}">'
