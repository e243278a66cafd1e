"""The page of a report: tables, charts, memories and settings of runs in one file that fetches nothing.

Every text from a run folder is escaped, and the page's security policy allows no script but its own two.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from ocssl.results import tables
from ocssl.results.chart import MANY, Chart
from ocssl.results.compare import Comparison, compare
from ocssl.results.decay import RULE
from ocssl.results.figures import all_charts
from ocssl.results.markup import folded, grid, notes, table_html, table_or_note
from ocssl.results.memory_section import galleries
from ocssl.results.read import Run
from ocssl.results.rerun import again
from ocssl.results.series import by_series
from ocssl.results.summary import decay_words, repeated, summary, unlike
from ocssl.results.untrusted_values import shortened

MANY_RUNS = 6  # from which on their table is folded


def make_page(runs: Sequence[Run]) -> str:
    """The whole page; the same runs give the same text."""
    comparisons = compare(runs)
    charts = all_charts(runs, comparisons)
    names = list(shortened(run.method for run in runs).values())
    title = "ocssl report: " + (", ".join(names) if len(names) <= 5 else f"{len(runs)} runs of {len(names)} methods")
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="summary">{escape(" ".join(summary(runs)))}</p>',
        _alarms(runs),
        "<h2>Overview</h2>",
        _overview(runs),
        "<h2>Paired comparison</h2>",
        _comparison(comparisons, runs, charts["comparison"]),
        "<h2>Accuracy</h2>",
        _how_to_read(runs),
        grid(charts["accuracy"] + charts["tasks"]),
        "" if charts["tasks"] else notes(["No run has probes of single tasks (evaluate.per_task)."]),
        table_or_note("All evaluations in numbers", tables.evaluations(runs)),
        table_or_note("Tasks in numbers", tables.tasks(runs)),
        "<h2>Latent space</h2>",
        _latent(runs),
        grid(charts["latent"] + charts["spectrum"]),
        "<h2>Loss</h2>",
        grid(charts["loss"]),
        "<h2>Health</h2>",
        grid(charts["health"]),
        "<h2>Memory through time</h2>",
        grid(charts["memory"], "These runs did not record what their memories held."),
        table_or_note("Memories in numbers", tables.held(runs)),
        "<h2>Final memory</h2>",
        galleries(runs),
        "<h2>Compute</h2>",
        grid(charts["compute"], "These runs did not record where their time went."),
        table_or_note("Seconds in numbers", tables.compute(runs)),
        "<h2>Settings</h2>",
        *map(_settings, runs),
    ]
    figures = {chart.key: chart.figure for group in charts.values() for chart in group}
    plotly, script = parsed_once(get_plotlyjs()), files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    return Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        hashes=" ".join(map(_hash, (plotly, script))),
        body="\n".join(part for part in body if part),
        charts=json.dumps(figures, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        plotly=plotly,
        script=script,
    )


def parsed_once(plotly: str) -> str:
    """The library with its main function in brackets, which tells browsers to compile it at once.

    Without them they read five megabytes once to look for mistakes and again to run them: a fifth of the opening time.
    A library that begins or ends otherwise stays as it is.
    """
    head, tail = "this, () => {\n", "\nreturn Plotly;\n}));"
    if plotly.count(head) != 1 or not plotly.rstrip().endswith(tail):
        return plotly
    return plotly.rstrip().removesuffix(tail).replace(head, "this, (() => {\n") + "\nreturn Plotly;\n})));"


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _alarms(runs: Sequence[Run]) -> str:
    alarms = [f"<p><strong>{escape(run.label)}</strong> {escape(alarm)}</p>" for run in runs for alarm in run.alarms]
    return f'<div class="alarm" role="alert"><strong>Warning</strong>{"".join(alarms)}</div>' if alarms else ""


def _overview(runs: Sequence[Run]) -> str:
    methods, each = tables.methods(runs), table_html(tables.each_run(runs))
    return "\n".join(
        [
            table_html(methods) if methods.rows else "",
            folded(f"All {len(runs)} runs", each) if len(runs) > MANY_RUNS else each,
            notes(f"{run.label}: {note}" for run in runs for note in run.notes),
            notes(filter(None, [repeated(runs, by_series(runs))])),
        ]
    )


def _comparison(comparisons: Sequence[Comparison], runs: Sequence[Run], charts: Sequence[Chart]) -> str:
    if not comparisons:
        return notes(["There are no two methods to compare: finished runs on one stream with one probe."])
    return table_html(tables.comparison(comparisons, runs)) + notes(unlike(runs)) + (grid(charts) if charts else "")


def _latent(runs: Sequence[Run]) -> str:
    """The rule of decay, and what it says of each series."""
    said = "".join(
        f"<li><strong>{escape(series)}</strong>: {escape(decay_words(group))}</li>"
        for series, group in by_series(runs).items()
    )
    return (
        "<p>Latent Rehearsal Decay shows here first: Deviation falls and Overlap rises before accuracy drops.</p>"
        f'<ul>{said}</ul><p class="quiet">{escape(RULE)} A method decays if most of its seeds do; shaded bands show '
        "from when to when.</p>"
    )


def _how_to_read(runs: Sequence[Run]) -> str:
    """What holds for all charts of these runs."""
    words = []
    if any(run.regime.startswith("offline") for run in runs):
        words.append(
            "Offline runs, marked in the legends, are told or shown more than online ones: they are no equals."
        )
    if len(by_series(runs)) >= MANY:
        words.append("In a legend, click a name to hide it, double-click to see it alone.")
    if any(not run.finished for run in runs) and any(run.finished for run in runs):
        words.append("Unfinished runs are thin lines of their own.")
    return f"<p>{' '.join(words)}</p>" if words else ""


def _settings(run: Run) -> str:
    facts = [f"Folder: {run.folder.resolve().name}"] + [f"Variant: {run.variant}"] * bool(run.variant)
    words, command = again(run)
    code = f"<pre><code>{escape(command)}</code></pre>" if command else ""
    return folded(run.label, f"{notes(facts)}<p>{escape(words)}</p>{code}<pre><code>{escape(run.text)}</code></pre>")
