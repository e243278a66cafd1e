"""The report: tables, charts, memories and settings of runs in one page that fetches nothing, and files for papers.

Every text from a run folder is escaped, and the page's security policy allows no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ocssl._core.table import MISSING, Table
from ocssl._files.atomic import write_out
from ocssl.errors import RunFolderError
from ocssl.results import settings_tables
from ocssl.results import tables as report_tables
from ocssl.results.chart import Chart
from ocssl.results.compare import Comparison, best_first, compare
from ocssl.results.draw_page import DASH_ARRAYS, draw
from ocssl.results.figures import all_charts
from ocssl.results.latent_decay import RULE
from ocssl.results.latent_pictures import make_moments
from ocssl.results.memory_pictures import make_evicted, make_gallery, make_strip
from ocssl.results.palette import COLOURS, DARK, HEAT, styles
from ocssl.results.read_runs import Run
from ocssl.results.rerun_command import rerun_command
from ocssl.results.run_groups import by_series, find_runs, shortened
from ocssl.results.summary import cards, decay_words, repeated, summary, unlike

MANY_RUNS = 6  # from which on their table is folded
LONGEST_WORD = 24  # characters of a name that stay on one line
MOST_GALLERIES, MOST_LOOKED_THROUGH = 6, 4
SECTIONS = {  # of the page, in its order: address and title
    "overview": "Overview",
    "compared": "Paired comparison",
    "accuracy": "Accuracy",
    "latent": "Latent space",
    "health": "Health",
    "loss": "Loss",
    "memory": "Memory through time",
    "final-memory": "Final memory",
    "neighbours": "Hyperballs and neighbours",
    "compute": "Compute",
    "settings": "Settings",
}


def write_report(
    folders: list[Path], output: Path, figures: Path | None = None, tables: Path | None = None, follow: float = 0
) -> int:
    """Write one self-contained HTML file on the runs of some folders, all or nothing; returns its size in bytes.

    `figures` and `tables` are folders for the charts as PDF and PNG and the tables as LaTeX, Markdown and CSV.
    With `follow` the page is read again every `follow` seconds, as long as a run is unfinished.
    """
    runs = best_first(find_runs(folders))
    follow = 0 if all(run.finished for run in runs) else follow
    for place in filter(None, (figures, tables)):
        if place.exists() and not place.is_dir():
            raise RunFolderError(f"cannot write to {place}: it is a file; name a folder.")
    comparisons = compare(runs)
    charts = all_charts(runs, comparisons)
    page = make_page(runs, comparisons, charts, follow).encode("utf-8", "replace")
    if output.is_dir():
        raise RunFolderError(f"cannot write the report to {output}: it is a folder; name a file.")
    write_out(output, page)
    if figures:
        from ocssl.results.draw_matplotlib import print_chart

        for chart in (chart for group in charts.values() for chart in group):
            for kind, packed in print_chart(chart).items():
                write_out(figures / f"{chart.key}.{kind}", packed)
    if tables:
        for table, numbers in report_tables.for_export(runs, comparisons):
            written = {"tex": table.latex(), "md": table.markdown(), "csv": numbers.for_programs().csv()}
            for kind, words in written.items():
                write_out(tables / f"{table.key}.{kind}", words.encode("utf-8", "replace"))
    return len(page)


def report_json(folders: list[Path]) -> dict[str, Any]:
    """What the report says, for programs."""
    runs = best_first(find_runs(folders))
    return {
        "summary": summary(runs),
        "methods": _typed(report_tables.numbers_of_methods(runs)),
        "comparison": report_tables.comparison_json(compare(runs)),
        "runs": [{"folder": str(run.folder), "finished": run.finished, "collapsed": run.collapsed} for run in runs],
    }


def _typed(table: Table) -> list[dict[str, str | float | None]]:
    """Rows for programs, numbers as numbers."""
    words = {table.headers[column] for column in table.text}
    return [
        {key: cell if key in words else None if cell == MISSING else float(cell) for key, cell in row.items()}
        for row in table.records()
    ]


def make_page(
    runs: Sequence[Run], comparisons: Sequence[Comparison], charts: dict[str, list[Chart]], follow: float = 0
) -> str:
    """The whole page; the same runs give the same text."""
    series = by_series(runs)
    names = list(shortened(run.method for run in runs).values())
    templates = Environment(
        loader=PackageLoader("ocssl.results"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"pieces": pieces, "wide": wide}
    plots = {chart.key: [draw(panel) for panel in chart.panels] for group in charts.values() for chart in group}
    labelled = any(run.labelled for run in runs)
    shown = _pictures(runs, follow)
    there = {
        "compared": bool(comparisons),
        "accuracy": labelled,
        "final-memory": bool(shown["galleries"]),
        "neighbours": bool(shown["moments"]),
    }
    return templates.get_template("page.html").render(
        labelled=labelled,
        title="ocssl report: " + (", ".join(names) if len(names) <= 5 else f"{len(runs)} runs of {len(names)} methods"),
        runs=runs,
        folded=len(runs) > min(MANY_RUNS, len(series)),
        sections={address: name for address, name in SECTIONS.items() if there.get(address, True)},
        look=styles(runs),
        dashes=DASH_ARRAYS,
        cards=cards(runs),
        summary=summary(runs),
        follow=follow,
        alarms=[(run.label, alarm) for run in runs for alarm in run.alarms],
        notes=[f"{run.label}: {note}" for run in runs for note in run.notes] + repeated(runs, series),
        how_to_read=_how_to_read(runs, comparisons, labelled),
        unlike=unlike(runs),
        decays={name: decay_words(group) for name, group in series.items()},
        decay_rule=RULE,
        charts=charts,
        plots_of=plots,
        longest_short=LONGEST_WORD,
        methods=report_tables.methods(runs),
        health_table=report_tables.health_table(runs),
        each_run=report_tables.each_run(runs),
        comparison=report_tables.comparison(comparisons, runs),
        evaluations=report_tables.evaluations(runs),
        tasks=report_tables.tasks(runs),
        memories=report_tables.memories(runs),
        seconds=report_tables.compute(runs),
        skipped=report_tables.skipped(runs),
        settings_that_differ=settings_tables.that_differ(runs),
        settings_in_common=settings_tables.in_common(runs),
        strip_of=make_strip,
        rerun_command=rerun_command,
        **shown,
        **_style_and_script({key: [plot.numbers for plot in drawn] for key, drawn in plots.items()}),
    )


def _style_and_script(numbers: dict[str, Any]) -> dict[str, Markup]:
    """What the page holds as it is; nothing of it ends a script early."""
    place = files(__package__).joinpath("templates")
    script = place.joinpath("page.js").read_text(encoding="utf-8")
    style = place.joinpath("page.css").read_text(encoding="utf-8")
    data = json.dumps(numbers, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    light, dark = (" ".join(f"--c{i}: {colour};" for i, colour in enumerate(own)) for own in (COLOURS, DARK))
    colours = f":root {{ {light} --heat: linear-gradient(to right, {', '.join(HEAT)}); }}\n"
    colours += f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = {"style": colours + style, "script": script, "numbers": data, "hashes": f"'sha256-{digest}'"}
    return {name: Markup(text) for name, text in found.items()}


def pieces(words: str) -> list[tuple[str, bool]]:
    """A name cut where a line may break: after a dot before a word, an underscore, a slash or a space; and whether it
    stays whole.

    >>> pieces("memory.keep er-fifo")
    [('memory.', True), ('keep ', True), ('er-fifo', True)]
    >>> pieces("0.25")
    [('0.25', True)]
    """
    found = re.findall(r"(?:[^._/\s]|\.(?=\d))*(?:[_/\s]|\.(?!\d))|(?:[^._/\s]|\.(?=\d))+", words)
    return [(piece, len(piece) <= LONGEST_WORD) for piece in found]


def wide(charts: Sequence[Chart]) -> set[str]:
    """The keys of charts that take the whole width: those of rows or of several panels, and one without a neighbour."""
    single = [chart.key for chart in charts if len(chart.panels) == 1 and not chart.panels[0].rows]
    alone = single[-1:] if len(single) % 2 else []
    return {chart.key for chart in charts if chart.key not in single} | set(alone)


def _pictures(runs: Sequence[Run], follow: float) -> dict[str, Any]:
    """Pictures of memories and of what encoders see, without runs that have none; and sentences on what is missing."""
    found = _memories(runs)
    galleries = [(run, *make_gallery(run), make_evicted(run)) for run in found["pictured"]]
    looks = [(run, *make_moments(run)) for run in found["pictured"][: 0 if follow else MOST_LOOKED_THROUGH]]
    missing = [*_missing("Final memory", galleries), *_missing("Hyperballs and neighbours", looks)]
    if follow and found["pictured"]:
        missing.append("Hyperballs and neighbours are drawn when runs are finished.")
    found |= {"pictured": [run for run, gallery, *_ in galleries if gallery], "missing_pictures": missing}
    galleries = [part for part in galleries if part[1] or part[3]]
    return found | {"galleries": galleries, "moments": [part for part in looks if part[1]]}


def _missing(what: str, parts: Sequence[tuple[Any, ...]]) -> list[str]:
    """One sentence for all runs of which the same is to be said; parts begin with a run, its picture, and notes."""
    runs: dict[str, list[str]] = {}
    for run, picture, notes, *_ in parts:
        if not picture:
            runs.setdefault(" ".join(notes), []).append(run.label)
    who = {
        words: "all runs" if len(labels) == len(parts) > 1 else " and ".join(labels) for words, labels in runs.items()
    }
    return [f"{what} of {labels}: {words}" for words, labels in who.items()]


def _memories(runs: Sequence[Run]) -> dict[str, Any]:
    """The runs whose memories are shown: of many, one seed a series."""
    storing = pictured = [run for run in runs if run.settings.get("memory.capacity") != 0]
    if len(storing) > MOST_GALLERIES:
        pictured = [max(group, key=lambda run: run.seed or 0) for group in by_series(storing).values()][:MOST_GALLERIES]
    without = [run.label for run in runs if run.settings.get("memory.capacity") == 0]
    return {"pictured": pictured, "left_out": len(storing) - len(pictured), "without_memory": without}


def _how_to_read(runs: Sequence[Run], comparisons: Sequence[Comparison], labelled: bool) -> list[str]:
    """What holds for all charts of these runs."""
    words = []
    if not labelled:
        words.append(
            "There are no labels, so no probe was trained: read the latent space, the health and the neighbours of "
            "images instead."
        )
    elif not comparisons:
        words.append("There are no two methods to compare: finished runs on one stream with one probe.")
    if any(run.regime.startswith("offline") for run in runs):
        words.append("Offline runs, marked in the legends, see more than online ones: the comparison is not fair.")
    if len(by_series(runs)) > 1:
        words.append("Click a name beside a chart to hide it in all charts, double-click to see it alone.")
    if any(not run.finished for run in runs) and any(run.finished for run in runs):
        words.append("Unfinished runs are drawn as thin lines, one for each.")
    return words
