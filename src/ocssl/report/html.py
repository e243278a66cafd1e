"""The page of a report: tables, charts, memories and settings of runs in one file that fetches nothing.

Every text from a run folder passes `escape`, and the page's security policy allows no script but its own two.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs

from ocssl.checkpoint import replace_file
from ocssl.errors import RunFolderError
from ocssl.report.figures import MANY, Chart, all_charts
from ocssl.report.gallery import make_gallery
from ocssl.report.runs import Run, find_runs, short
from ocssl.report.tables import evaluations, over_seeds, overview
from ocssl.report.words import again, by_series, summary

MOST_GALLERIES = 6


def write_report(folders: list[Path], output: Path) -> int:
    """Write one self-contained HTML file on the runs of some folders, all or nothing; returns its size in bytes."""
    page = make_page(find_runs(folders)).encode("utf-8", "replace")
    if output.is_dir():
        raise RunFolderError(f"cannot write the report to {output}: it is a folder; name a file.")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        replace_file(output, page)
    except OSError as error:
        raise RunFolderError(f"cannot write the report to {output}: {error.strerror or error}.") from None
    return len(page)


def make_page(runs: Sequence[Run]) -> str:
    """The whole page; the same runs give the same text."""
    charts = {key: [chart for chart in group if chart] for key, group in all_charts(runs).items()}
    methods = list(dict.fromkeys(short(run.method) for run in runs))
    names = ", ".join(methods) if len(methods) <= 5 else f"{len(runs)} runs of {len(methods)} methods"
    title = f"ocssl report: {names}"
    body = [
        f"<h1>{escape(title)}</h1>\n<p>{escape(summary(runs))}</p>",
        _alarms(runs),
        "<h2>Overview</h2>",
        overview(runs),
        _notes(f"{run.label}: {note}" for run in runs for note in run.notes),
        over_seeds(runs),
        "<h2>Accuracy</h2>",
        _how_to_read(runs),
        _grid(charts["accuracy"]),
        evaluations(runs),
        "<h2>Loss</h2>",
        _grid(charts["loss"]),
        "<h2>Latent space</h2>",
        "<p>Latent Rehearsal Decay shows here first: Deviation falls and Overlap rises before accuracy drops.</p>",
        _grid(charts["latent"]),
        "<h2>Health</h2>",
        _grid(charts["health"]),
        "<h2>Final memory</h2>",
        _galleries(runs),
        "<h2>Settings</h2>",
        *map(_settings, runs),
    ]
    figures = {chart.key: chart.figure for group in charts.values() for chart in group}
    plotly, script = get_plotlyjs(), files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    return Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        hashes=" ".join(map(_hash, (plotly, script))),
        body="\n".join(part for part in body if part),
        charts=json.dumps(figures, allow_nan=False).replace("<", "\\u003c"),
        plotly=plotly,
        script=script,
    )


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _grid(charts: Sequence[Chart]) -> str:
    if not charts:
        return '<p class="quiet">Nothing was recorded.</p>'
    figures = (
        f"<figure><figcaption><h3>{escape(chart.title)}</h3><p>{chart.words}</p></figcaption>"
        f'<div class="plot" style="--entries:{_entries(chart)}" id="{chart.key}" role="img" '
        f'aria-label="Chart: {escape(chart.title)}. {chart.words}"></div></figure>'
        for chart in charts
    )
    return f'<div class="charts">{"".join(figures)}</div>'


def _entries(chart: Chart) -> int:
    """How many names the legend has, so that the page can leave room for them."""
    return sum(trace["showlegend"] for trace in chart.figure["data"])


def _alarms(runs: Sequence[Run]) -> str:
    alarms = [f"<p><strong>{escape(run.label)}</strong> {escape(alarm)}</p>" for run in runs for alarm in run.alarms]
    return f'<div class="alarm" role="alert"><strong>Warning</strong>{"".join(alarms)}</div>' if alarms else ""


def _how_to_read(runs: Sequence[Run]) -> str:
    """What holds for all charts of these runs."""
    words = []
    if any(run.regime.startswith("offline") for run in runs):
        words.append(
            "Offline runs, marked in the legends, are told or shown more than online ones: they are no equals."
        )
    if len(by_series(runs)) >= MANY:
        words.append("In a legend, click a name to hide it, double-click to see it alone.")
    return f"<p>{' '.join(words)}</p>" if words else ""


def _galleries(runs: Sequence[Run]) -> str:
    without = [run for run in runs if run.settings.get("memory.capacity") == 0]
    runs = chosen = [run for run in runs if run.settings.get("memory.capacity") != 0]
    if len(chosen) > MOST_GALLERIES:
        chosen = [max(group, key=lambda run: run.seed or 0) for group in by_series(runs).values()][:MOST_GALLERIES]
    parts = [_gallery(run) for run in chosen]
    if len(chosen) < len(runs):
        left_out = f"Memories of {len(runs) - len(chosen)} more runs are left out; a report on fewer runs shows them."
        parts.append(_notes([left_out]))
    if without:
        parts.append(_notes([f"No images are stored by {', '.join(run.label for run in without)}."]))
    return "\n".join(parts)


def _gallery(run: Run) -> str:
    gallery, notes = make_gallery(run)
    caption, picture = "", ""
    if gallery is not None:
        part = "all" if gallery.shown == gallery.filled else str(gallery.shown)
        loss = "" if gallery.loss is None else f"mean stored loss {gallery.loss:.3f}, "
        caption = (
            f"<p>{gallery.filled} slots filled ({part} shown, {gallery.order}), {loss}"
            f"mean age {gallery.age:.0f} stream images, median draws {gallery.draws:.0f}.</p>"
        )
        alt = f"Contact sheet of {gallery.shown} images in the final memory of {run.label}, {gallery.order}"
        picture = (
            f'<img src="data:image/png;base64,{base64.b64encode(gallery.png).decode()}" '
            f'width="{gallery.width}" height="{gallery.height}" alt="{escape(alt)}">'
        )
    return f"<figure><figcaption><h3>{escape(run.label)}</h3>{caption}{_notes(notes)}</figcaption>{picture}</figure>"


def _notes(notes: Iterable[str]) -> str:
    return "".join(f'<p class="quiet">{escape(note)}</p>' for note in notes)


def _settings(run: Run) -> str:
    facts = [f"Folder: {run.folder.resolve().name}"] + [f"Variant: {run.variant}"] * bool(run.variant)
    words, command = again(run)
    code = f"<pre><code>{escape(command)}</code></pre>" if command else ""
    return (
        f"<details><summary>{escape(run.label)}</summary>{_notes(facts)}<p>{escape(words)}</p>{code}"
        f"<pre><code>{escape(run.text)}</code></pre></details>"
    )
