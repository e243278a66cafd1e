"""Tables of runs as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean, stdev

from ocssl.report.figures import Style, styles
from ocssl.report.runs import ONLINE, Run
from ocssl.report.words import by_series, health

NOTHING = "-"
STROKES = {"dash": "9 6", "dot": "3 3", "dashdot": "9 4 3 4", "longdash": "12 5"}  # plotly's dashes in SVG


def _table(caption: str, headers: Sequence[str], rows: Sequence[tuple[str, list[str]]], text: Sequence[int]) -> str:
    """A table of ready cells, each row with its regime; the columns in `text` are words, all others numbers.

    Rows of a regime stand together under its name, the online ones first; their name is left out where all are online.
    """
    classes = ["" if i in text else ' class="number"' for i in range(len(headers))]
    head = "".join(f'<th scope="col"{c}>{escape(header)}</th>' for header, c in zip(headers, classes, strict=True))
    regimes = sorted(dict.fromkeys(regime for regime, _ in rows), key=lambda regime: regime != ONLINE)
    body = []
    for regime in regimes:
        if regimes != [ONLINE]:
            body.append(f'<tr><th scope="rowgroup" class="regime" colspan="{len(headers)}">{escape(regime)}</th></tr>')
        for first, *rest in (cells for own, cells in rows if own == regime):
            cells = "".join(map("<td{}>{}</td>".format, classes[1:], rest))
            body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<p class="quiet">{escape(caption)}</p>'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _show(value: float | None, form: str = ".1f") -> str:
    return NOTHING if value is None else format(value, form)


def _mark(style: Style) -> str:
    """A piece of the line that stands for a series in the charts."""
    dashes = f' stroke-dasharray="{STROKES[style.dash]}"' if style.dash in STROKES else ""
    line = f'<line x1="0" y1="5" x2="30" y2="5" stroke="{style.colour}" stroke-width="3"{dashes}></line>'
    return f'<svg class="mark" width="30" height="10" aria-hidden="true">{line}</svg>'


def overview(runs: Sequence[Run]) -> str:
    """One row a run: what it reached, what it took, and whether it is well."""
    look = styles(runs)
    rows = [
        (
            run.regime,
            [
                _mark(look[run.series]) + escape(run.name),
                escape(run.benchmark),
                NOTHING if run.seed is None else str(run.seed),
                *map(_show, (run.start, run.final, run.average)),
                _show(run.steps, ".0f"),
                _show(run.seconds),
                escape(health(run)) if not run.collapsed else f'<span class="bad">{escape(health(run))}</span>',
            ],
        )
        for run in runs
    ]
    headers = ("method", "benchmark", "seed", "start, %", "final, %", "average, %", "steps", "seconds", "health")
    caption = "Average: mean accuracy over the evaluations after each experience. Unfinished runs: numbers so far."
    return _table(caption, headers, rows, text=(0, 1, 8))


def over_seeds(runs: Sequence[Run]) -> str:
    """Means over seeds, where a method was run with more than one."""
    groups = by_series(run for run in runs if run.finished)
    rows = []
    for series, group in groups.items():
        columns = (
            [getattr(run, key) for run in group if getattr(run, key) is not None] for key in ("final", "average")
        )
        cells = [f"{fmean(v):.1f} ± {stdev(v):.1f}" if len(v) > 1 else NOTHING for v in columns]
        if len(group) > 1:
            rows.append((group[0].regime, [escape(series), str(len(group)), *cells]))
    caption = "Mean and standard deviation over seeds, finished runs only."
    return _table(caption, ("method", "seeds", "final, %", "average, %"), rows, text=(0,)) if rows else ""


def evaluations(runs: Sequence[Run]) -> str:
    """Every evaluation, for readers who cannot use a chart."""
    rows = [
        (
            run.regime,
            [
                escape(run.label),
                str(e.experience),
                _show(e.seen, ".0f"),
                _show(e.accuracy),
                _show(e.deviation, ".3f"),
                _show(e.overlap, ".1%"),
            ],
        )
        for run in runs
        for e in run.evaluations
    ]
    headers = ("run", "experience", "images seen", "accuracy, %", "Deviation", "Overlap")
    table = _table("Experience 0 is the untrained encoder.", headers, rows, text=(0,))
    return f"<details><summary>All evaluations in numbers</summary>{table}</details>" if rows else ""
