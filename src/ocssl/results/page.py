"""The report: tables, charts, memories and settings of runs in one page that fetches nothing, and files for papers.

Every text from a run folder is escaped, and the page's security policy allows no script but its own two.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image, features
from plotly.offline import get_plotlyjs
from torch import Tensor

from ocssl._core import checkpoint
from ocssl._distributed.ranks import command
from ocssl._files.atomic import write_out
from ocssl._files.toml import parse_toml
from ocssl.errors import CheckpointError, OcsslError, RunFolderError
from ocssl.results import tables as report_tables
from ocssl.results.chart import MANY, Chart, styles
from ocssl.results.compare import Comparison, compare
from ocssl.results.draw_plotly import plotly_figure
from ocssl.results.figures import all_charts
from ocssl.results.latent_decay import RULE
from ocssl.results.read import Run
from ocssl.results.run_groups import by_series, find_runs, shortened
from ocssl.results.summary import decay_words, repeated, summary, unlike
from ocssl.runs.config import RunSettings, parse_assignments, resolve_run
from ocssl.runs.folder import SETTINGS, SNAPSHOTS, complete_checkpoints
from ocssl.settings import flatten, validate

MANY_RUNS = 6  # from which on their table is folded
MOST_GALLERIES = 6
STROKES = {"dash": "9 6", "dot": "3 3", "dashdot": "9 4 3 4", "longdash": "12 5"}  # plotly's dashes in SVG


def write_report(folders: list[Path], output: Path, figures: Path | None = None, tables: Path | None = None) -> int:
    """Write one self-contained HTML file on the runs of some folders, all or nothing; returns its size in bytes.

    `figures` and `tables` are folders for the charts as PDF and PNG and the tables as LaTeX, Markdown and CSV.
    """
    runs = find_runs(folders)
    for place in filter(None, (figures, tables)):
        if place.exists() and not place.is_dir():
            raise RunFolderError(f"cannot write to {place}: it is a file; name a folder.")
    comparisons = compare(runs)
    charts = all_charts(runs, comparisons)
    page = make_page(runs, comparisons, charts).encode("utf-8", "replace")
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


def make_page(runs: Sequence[Run], comparisons: Sequence[Comparison], charts: dict[str, list[Chart]]) -> str:
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
    return templates.get_template("page.html").render(
        title="ocssl report: " + (", ".join(names) if len(names) <= 5 else f"{len(runs)} runs of {len(names)} methods"),
        runs=runs,
        many_runs=MANY_RUNS,
        look=styles(runs),
        strokes=STROKES,
        summary=summary(runs),
        alarms=[(run.label, alarm) for run in runs for alarm in run.alarms],
        notes=[f"{run.label}: {note}" for run in runs for note in run.notes] + repeated(runs, series),
        how_to_read=_how_to_read(runs),
        unlike=unlike(runs),
        decays={name: decay_words(group) for name, group in series.items()},
        decay_rule=RULE,
        charts=charts,
        methods=report_tables.methods(runs),
        each_run=report_tables.each_run(runs),
        comparison=report_tables.comparison(comparisons, runs),
        evaluations=report_tables.evaluations(runs),
        tasks=report_tables.tasks(runs),
        memories=report_tables.memories(runs),
        seconds=report_tables.compute(runs),
        gallery_of=make_gallery,
        evicted_of=make_evicted,
        rerun_command=rerun_command,
        **_memories(runs),
        **_scripts({chart.key: plotly_figure(chart) for group in charts.values() for chart in group}),
    )


def _scripts(figures: dict[str, Any]) -> dict[str, Markup]:
    """What the page runs and reads as it is; nothing of it ends a script early."""
    plotly = parsed_once(get_plotlyjs())
    script = files(__package__).joinpath("templates/page.js").read_text(encoding="utf-8")
    data = json.dumps(figures, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    hashes = " ".join(map(_hash, (plotly, script)))
    return {"plotly": Markup(plotly), "script": Markup(script), "figures": Markup(data), "hashes": Markup(hashes)}


def _memories(runs: Sequence[Run]) -> dict[str, Any]:
    """The runs whose memories are shown: of many, one seed a series."""
    storing = pictured = [run for run in runs if run.settings.get("memory.capacity") != 0]
    if len(storing) > MOST_GALLERIES:
        pictured = [max(group, key=lambda run: run.seed or 0) for group in by_series(storing).values()][:MOST_GALLERIES]
    without = [run.label for run in runs if run.settings.get("memory.capacity") == 0]
    return {"pictured": pictured, "left_out": len(storing) - len(pictured), "without_memory": without}


def parsed_once(plotly: str) -> str:
    """The library with its main function in parentheses, so that browsers compile it at once.

    Without them browsers parse the five megabytes twice, a fifth of the opening time. A library that begins or ends
    otherwise stays as it is.
    """
    head, tail = "this, () => {\n", "\nreturn Plotly;\n}));"
    if plotly.count(head) != 1 or not plotly.rstrip().endswith(tail):
        return plotly
    return plotly.rstrip().removesuffix(tail).replace(head, "this, (() => {\n") + "\nreturn Plotly;\n})));"


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _how_to_read(runs: Sequence[Run]) -> list[str]:
    """What holds for all charts of these runs."""
    words = []
    if any(run.regime.startswith("offline") for run in runs):
        words.append("Offline runs, marked in the legends, see more than online ones: the comparison is not fair.")
    if len(by_series(runs)) >= MANY:
        words.append("In a legend, click a name to hide it, double-click to see it alone.")
    if any(not run.finished for run in runs) and any(run.finished for run in runs):
        words.append("Unfinished runs are drawn as thin lines, one for each.")
    return words


def rerun_command(run: Run) -> tuple[str, str]:
    """A sentence on how to make a run again, and the shortest command line that does it, if there is one."""
    try:
        wanted = validate(RunSettings, parse_toml(run.text))
    except (OcsslError, ValueError) as error:
        return f"This ocssl cannot make the run again: its {SETTINGS} is not right: {error}", ""
    start = command(wanted.compute.ranks).split()
    words = None if run.method.endswith(".toml") else _assignments(wanted)
    if words is not None:
        sets = [part for word in words for part in ("--set", word)]
        return "Make this run again:", shlex.join(
            [*start, "run", wanted.method, wanted.benchmark, "--seed", str(wanted.seed), *sets]
        )
    folder = run.folder.resolve().name
    copy = shlex.quote(f"{folder}-again")
    return (
        f"Its recipe or its parts are not those of this ocssl, but {SETTINGS} says everything. Make this run again "
        "from the folder that its folder lies in; parts of your own take --parts FILE.py:",
        f"mkdir {copy} && cp {shlex.quote(f'{folder}/{SETTINGS}')} {copy} && {' '.join(start)} resume {copy}",
    )


def _assignments(wanted: RunSettings) -> list[str] | None:
    """The fewest `key=value` words that make a recipe into these settings; None if none do."""

    def result(words: Iterable[str]) -> dict[str, Any] | None:
        try:
            given = {"compute.ranks": wanted.compute.ranks, **parse_assignments(words)}  # torchrun says how many
            return _flat(resolve_run(wanted.method, wanted.benchmark, wanted.seed, given))
        except OcsslError:
            return None

    target, usual = _flat(wanted), result([])
    if usual is None:
        return None
    differ = {key: value for key, value in target.items() if key not in usual or usual[key] != value}
    words = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in differ.items()]
    if result(words) != target:
        return None
    for word in list(words):
        fewer = [other for other in words if other != word]
        words = fewer if result(fewer) == target else words
    return words


def _flat(settings: RunSettings) -> dict[str, Any]:
    return {key: value for key, value in flatten(settings.model_dump(mode="json")) if value is not None}


# ---- memories as pictures: what is kept at the end, and what was evicted on the way ----------------------------------

TILE, GAP, COLUMNS, MOST, MOST_EVICTED = 40, 2, 20, 200, 40
LARGEST_PNG = 60_000  # bytes; larger sheets are photographs, which WebP packs ten times smaller
DAMAGE = (CheckpointError, KeyError, TypeError, ValueError, IndexError, RuntimeError)


@dataclass(frozen=True)
class Sheet:
    """A contact sheet."""

    address: str  # the picture itself as a data URL, so that a page holds it
    width: int
    height: int


@dataclass(frozen=True)
class Evicted:
    """Pictures that the memory held at one evaluation and no longer at the next."""

    sheet: Sheet | None  # None where all were kept
    when: str  # between which evaluations
    words: str


@dataclass(frozen=True)
class Gallery:
    """The first slots of the newest readable checkpoint as a sheet, and all of them in numbers."""

    sheet: Sheet
    shown: int
    order: str
    words: str


def make_gallery(run: Run) -> tuple[Gallery | None, list[str]]:
    """The memory of the newest checkpoint that is whole, with notes on what could not be read."""
    notes: list[str] = []
    for state in reversed(complete_checkpoints(run.folder)):
        try:
            tensors, _ = checkpoint.read(state)
            image, loss, born, draws = (tensors[f"memory.column.{key}"] for key in ("image", "loss", "born", "draws"))
            if not len(image):
                return None, ["The memory is empty: this method stores no images."]
            _require_pictures(image, loss, born)
            ranked = run.has_loss and not run.settings.get("schedule.mix") and bool(loss.any())
            order = "highest stored loss first" if ranked else "newest first"
            rank = loss.nan_to_num(nan=-math.inf) if ranked else born
            best = rank.argsort(descending=True, stable=True)[:MOST]
            shown = "all" if len(best) == len(image) else str(len(best))
            words = f"{len(image)} slots filled ({shown} shown, {order}), "
            words += f"mean stored loss {float(loss[loss.isfinite()].double().mean()):.3f}, " if ranked else ""
            words += f"mean age {float(tensors['memory.seen']) - float(born.double().mean()):.0f} stream images, "
            words += f"median draws {float(draws.double().quantile(0.5)):.0f}."
            return Gallery(_contact_sheet(image[best]), len(best), order, words), notes
        except DAMAGE:
            notes.append(f"Checkpoint {state.name} is damaged and was skipped.")
    return None, [*notes, "No checkpoint can be read, so the memory is not shown."]


def make_evicted(run: Run) -> list[Evicted]:
    """What was evicted after the first evaluation with a memory, after one in the middle, and before the last."""
    found = [path for path in complete_checkpoints(run.folder, SNAPSHOTS) if path.name.isdecimal()]
    pairs = [pair for pair in itertools.pairwise(found) if int(pair[0].name) > 0]
    wanted = dict.fromkeys([0, (len(pairs) - 1) // 2, len(pairs) - 1]) if pairs else {}
    total = run.minibatches[1]
    evicted = []
    for before, after in (pairs[i] for i in wanted):
        try:
            tiles, ids = checkpoint.read(before)[0], checkpoint.read(after)[0]["memory.column.id"]
            images, names = tiles["tile.image"], tiles["tile.id"]
            if not len(images):
                continue
            _require_pictures(images, names)
            gone = images[~torch.isin(names, ids)]
            when = "between two evaluations"
            if total:
                begin, end = (100 * int(path.name) / total for path in (before, after))
                when = f"between {begin:.0f} and {end:.0f} % of the stream"
            cut = f" ({MOST_EVICTED} shown)" if len(gone) > MOST_EVICTED else ""
            words = f"{len(gone)} of {len(images)} pictured images left {when}{cut}."
            evicted.append(Evicted(_contact_sheet(gone[:MOST_EVICTED]) if len(gone) else None, when, words))
        except DAMAGE:
            continue  # an older or a damaged snapshot: the others are shown
    return evicted


def _require_pictures(images: Tensor, *columns: Tensor) -> None:
    fits = images.ndim == 4 and images.shape[1] == 3 and images.numel() and images.dtype == torch.uint8
    if not fits or any(column.ndim != 1 or len(column) != len(images) for column in columns):
        raise ValueError("columns of a memory do not have these shapes")


def _contact_sheet(images: Tensor) -> Sheet:
    """Tiles side by side on a clear ground: small images grow by a whole factor, large ones shrink. [n, 3, H, W]"""
    high, wide = images.shape[2:]
    factor = TILE // max(high, wide) or TILE / max(high, wide)
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    columns = min(COLUMNS, len(images))
    rows = math.ceil(len(images) / columns)
    sheet = Image.new("RGBA", (columns * (size[0] + GAP) - GAP, rows * (size[1] + GAP) - GAP))
    for index, pixels in enumerate(images.permute(0, 2, 3, 1).contiguous().numpy()):
        row, column = divmod(index, columns)
        method = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
        tile = Image.fromarray(pixels).resize(size, method)
        sheet.paste(tile, (column * (size[0] + GAP), row * (size[1] + GAP)))
    kind, packed = "png", io.BytesIO()
    sheet.save(packed, "PNG", optimize=True)
    if packed.tell() > LARGEST_PNG and features.check("webp"):  # the eye cannot tell them apart at this size
        kind, packed = "webp", io.BytesIO()
        sheet.save(packed, "WEBP", quality=80, method=4)
    return Sheet(f"data:image/{kind};base64,{base64.b64encode(packed.getvalue()).decode()}", *sheet.size)
