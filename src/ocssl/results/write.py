"""Writing a report: the page, and if asked for, its figures and tables in files of their own."""

from __future__ import annotations

from pathlib import Path

from ocssl.errors import RunFolderError
from ocssl.results.compare import compare
from ocssl.results.figures import all_charts
from ocssl.results.naming import find_runs
from ocssl.results.page import make_page
from ocssl.results.table_text import as_csv, as_latex, as_markdown
from ocssl.results.tables import for_export
from ocssl.runs.folder import write_out


def write_report(folders: list[Path], output: Path, figures: Path | None = None, tables: Path | None = None) -> int:
    """Write one self-contained HTML file on the runs of some folders, all or nothing; returns its size in bytes.

    `figures` and `tables` are folders for the charts as PDF and PNG and the tables as LaTeX, Markdown and CSV.
    """
    runs = find_runs(folders)
    for place in filter(None, (figures, tables)):
        if place.exists() and not place.is_dir():
            raise RunFolderError(f"cannot write to {place}: it is a file; name a folder.")
    page = make_page(runs).encode("utf-8", "replace")
    if output.is_dir():
        raise RunFolderError(f"cannot write the report to {output}: it is a folder; name a file.")
    write_out(output, page)
    comparisons = compare(runs)
    if figures:
        from ocssl.results.static_figures import print_chart

        for group in all_charts(runs, comparisons).values():
            for chart in group:
                for kind, packed in print_chart(chart).items():
                    write_out(figures / f"{chart.key}.{kind}", packed)
    if tables:
        for table, numbers in for_export(runs, comparisons):
            written = {"tex": as_latex(table), "md": as_markdown(table), "csv": as_csv(numbers)}
            for kind, words in written.items():
                write_out(tables / f"{table.key}.{kind}", words.encode("utf-8", "replace"))
    return len(page)
