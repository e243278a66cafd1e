"""The page of a report: tables, charts, memories and settings of runs in one file that fetches nothing.

Every text that comes from a run folder passes `escape`; the page's security policy allows its own two scripts and no other.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from statistics import fmean, stdev
from string import Template

from plotly.offline import get_plotlyjs

from ocssl.checkpoint import replace_file
from ocssl.errors import RunFolderError
from ocssl.report.figures import Chart, evaluation_chart, step_chart, styles
from ocssl.report.gallery import Gallery, make_gallery
from ocssl.report.runs import Run, find_runs
from ocssl.report.words import by_series, command, health, summary

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
    charts = {key: [chart for chart in group if chart] for key, group in _charts(runs).items()}
    title = "ocssl report: " + ", ".join(dict.fromkeys(run.method for run in runs))
    galleries = _galleries(runs)  # first, for what it notes on runs
    body = [
        f"<h1>{escape(title)}</h1>\n<p>{escape(summary(runs))}</p>",
        _alarms(runs),
        "<h2>Overview</h2>",
        _overview(runs),
        _seeds(runs),
        "<h2>Accuracy</h2>",
        _grid(charts["accuracy"]),
        _numbers(runs),
        "<h2>Loss</h2>",
        _grid(charts["loss"]),
        "<h2>Latent space</h2>",
        "<p>Latent Rehearsal Decay shows here first: Deviation falls and Overlap rises before accuracy drops.</p>",
        _grid(charts["latent"]),
        "<h2>Health</h2>",
        _grid(charts["health"]),
        "<h2>Final memory</h2>",
        galleries,
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


def _charts(runs: Sequence[Run]) -> dict[str, list[Chart | None]]:
    return {
        "accuracy": [
            evaluation_chart(
                "accuracy",
                "Accuracy over the stream",
                "Accuracy of a probe on the frozen encoder; the first point is the untrained encoder, "
                "vertical lines are the ends of experiences.",
                "accuracy, %",
                runs,
                percent=1,
            )
        ],
        "loss": [
            step_chart("ssl", "SSL loss", "Without extra terms, so that methods can be compared.", "SSL loss", runs)
        ],
        "latent": [
            evaluation_chart(
                "deviation",
                "Deviation",
                "How far the views of one image lie apart, from 0 to 1: a fall means that the encoder "
                "packs each image ever tighter.",
                "Deviation",
                runs,
            ),
            evaluation_chart(
                "overlap",
                "Overlap",
                "Share of pairs of images whose views mix: a rise means that images are told apart less and less.",
                "Overlap, % of pairs",
                runs,
                percent=100,
            ),
        ],
        "health": [
            step_chart("spread", "Spread", "Near 0, all images get the same features.", "spread of features", runs),
            step_chart("rank", "Effective rank", "Near 1, features vary along one line only.", "directions used", runs),
            step_chart(
                "active",
                "Active overlap pairs",
                "Share of pairs on which the Overlap term acts; 0 means that it does nothing.",
                "active pairs, %",
                runs,
                percent=100,
            ),
        ],
    }


def _grid(charts: Sequence[Chart]) -> str:
    if not charts:
        return '<p class="quiet">Nothing was recorded.</p>'
    figures = (
        f"<figure><figcaption><h3>{chart.title}</h3><p>{chart.words}</p></figcaption>"
        f'<div class="plot" id="{chart.key}" role="img" aria-label="Chart: {chart.title}. {chart.words}"></div></figure>'
        for chart in charts
    )
    return f'<div class="charts">{"".join(figures)}</div>'


def _alarms(runs: Sequence[Run]) -> str:
    alarms = [f"<p><strong>{escape(run.label)}</strong> {escape(alarm)}</p>" for run in runs for alarm in run.alarms]
    return f'<div class="alarm" role="alert"><strong>Warning</strong>{"".join(alarms)}</div>' if alarms else ""


def _table(caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int]) -> str:
    """A table of ready cells; the columns in `text` are words, all others numbers."""
    classes = ["" if i in text else ' class="number"' for i in range(len(headers))]
    head = "".join(f'<th scope="col"{c}>{escape(header)}</th>' for header, c in zip(headers, classes, strict=True))
    body = (
        f'<tr><th scope="row">{first}</th>' + "".join(map("<td{}>{}</td>".format, classes[1:], rest)) + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _show(value: float | None, form: str = ".1f") -> str:
    return "–" if value is None else format(value, form)


def _overview(runs: Sequence[Run]) -> str:
    look = styles(runs)
    rows = [
        [
            f'<span class="mark" style="background:{look[run.series].colour}"></span>{escape(run.series)}',
            escape(run.benchmark),
            str(run.seed),
            *map(_show, (run.start, run.final, run.average)),
            _show(run.steps, ".0f"),
            _show(run.seconds),
            escape(health(run)),
        ]
        for run in runs
    ]
    headers = ("method", "benchmark", "seed", "start, %", "final, %", "average, %", "steps", "seconds", "health")
    caption = "Average: mean accuracy over the evaluations after each experience. Unfinished runs: numbers so far."
    return _table(caption, headers, rows, text=(0, 1, 8))


def _seeds(runs: Sequence[Run]) -> str:
    groups = by_series(run for run in runs if run.finished)
    rows = []
    for series, group in groups.items():
        columns = (
            [getattr(run, key) for run in group if getattr(run, key) is not None] for key in ("final", "average")
        )
        cells = [f"{fmean(v):.1f} ± {stdev(v):.1f}" if len(v) > 1 else "–" for v in columns]
        if len(group) > 1:
            rows.append([escape(series), str(len(group)), *cells])
    caption = "Mean and standard deviation over seeds, finished runs only."
    return _table(caption, ("method", "seeds", "final, %", "average, %"), rows, text=(0,)) if rows else ""


def _numbers(runs: Sequence[Run]) -> str:
    rows = [
        [
            escape(run.label),
            str(e.experience),
            _show(e.seen, ".0f"),
            _show(e.accuracy),
            _show(e.deviation, ".3f"),
            _show(e.overlap, ".1%"),
        ]
        for run in runs
        for e in run.evaluations
    ]
    headers = ("run", "experience", "images seen", "accuracy, %", "Deviation", "Overlap")
    table = _table("Experience 0 is the untrained encoder.", headers, rows, text=(0,))
    return f"<details><summary>All evaluations in numbers</summary>{table}</details>" if rows else ""


def _galleries(runs: Sequence[Run]) -> str:
    chosen = list(runs)
    if len(chosen) > MOST_GALLERIES:
        chosen = [max(group, key=lambda run: run.seed or 0) for group in by_series(runs).values()][:MOST_GALLERIES]
    parts = [_gallery(run, make_gallery(run)) for run in chosen]
    if len(chosen) < len(runs):
        parts.append(f'<p class="quiet">Memories of {len(runs) - len(chosen)} more runs are left out.</p>')
    order = '<p class="quiet">Slots by stored loss, highest first.</p>'
    return "\n".join([order, *parts])


def _gallery(run: Run, gallery: Gallery | None) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in run.notes)
    if gallery is None:
        return f"<figure><figcaption><h3>{escape(run.label)}</h3>{notes}</figcaption></figure>"
    part = "all" if gallery.shown == gallery.filled else f"the {gallery.shown} of highest loss"
    facts = (
        f"{gallery.filled} slots filled ({part} shown), mean stored loss {gallery.loss:.3f}, "
        f"mean age {gallery.age:.0f} stream images, median draws {gallery.draws:.0f}."
    )
    alt = f"Contact sheet of {gallery.shown} images in the final memory of {run.label}, highest loss first"
    picture = base64.b64encode(gallery.png).decode()
    return (
        f"<figure><figcaption><h3>{escape(run.label)}</h3><p>{facts}</p>{notes}</figcaption>"
        f'<img src="data:image/png;base64,{picture}" width="{gallery.width}" height="{gallery.height}" '
        f'alt="{escape(alt)}"></figure>'
    )


def _settings(run: Run) -> str:
    facts = [f"Folder: {run.folder.name}", *([f"Variant: {run.variant}"] if run.variant else []), *run.notes]
    return (
        f"<details><summary>{escape(run.label)}</summary>"
        + "".join(f'<p class="quiet">{escape(fact)}</p>' for fact in facts)
        + f"<p>Make this run again:</p><pre><code>{escape(command(run))}</code></pre>"
        f"<pre><code>{escape(run.text)}</code></pre></details>"
    )
