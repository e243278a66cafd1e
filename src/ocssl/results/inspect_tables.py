"""What a look back at a run shows on the screen, and in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rich.table import Table

from ocssl.runs.events import plain
from ocssl.runs.folder import write_out


def evaluation_table(found: dict[str, Any]) -> Table:
    """A row for each checkpoint, a column for each probe; per-task averages where there are some."""
    names = list(found["summary"])
    tasks = [name for name in names if "tasks" in found["summary"][name]]
    title = f"{found['method']} on {found['benchmark']}: accuracy, per cent"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("minibatch", "experience", *names):
        table.add_column(column, justify="right")
    for name in tasks:
        for time in ("past", "current", "future"):
            table.add_column(f"{name}: {time}", justify="right")
    for row in found["checkpoints"]:
        cells = [str(row["position"]), _moment(row), *(_per_cent(row[name]["accuracy"]) for name in names)]
        for name in tasks:
            summary = found["summary"][name]["tasks"]
            at = row["experience"] - 1 if row["at_end"] else None
            cells += [_per_cent(None if at is None else summary[time][at]) for time in ("past", "current", "future")]
        table.add_row(*cells)
    lines = [_line(name, found["summary"][name]) for name in names]
    table.caption, table.caption_justify = "\n".join(lines), "left"
    return table


def _line(name: str, summary: dict[str, Any]) -> str:
    words = [f"{key} {_per_cent(summary[key])}" for key in ("start", "final", "average")]
    if "tasks" in summary:
        keys = ("forgetting", "backward_transfer", "forward_transfer")
        words += [f"{key.replace('_', ' ')} {_per_cent(summary['tasks'][key])}" for key in keys]
    return f"{name}: {', '.join(words)}"


def diagnosis_table(found: dict[str, Any]) -> Table:
    """A row for each checkpoint and set of images."""
    title = f"{found['method']} on {found['benchmark']}: latent space"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("minibatch", "exp.", "images", "Deviation", "Overlap", "align.", "unif.", "rank", "AUC"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found["checkpoints"]:
        for name in ("stream", "memory", "test"):
            if row.get(name) is None:
                continue
            seen, shape = row[name], row[name]["shape"]
            numbers = [seen["deviation"], seen["overlap"], seen["alignment"], shape["uniformity"]]
            table.add_row(
                str(row["position"]),
                _moment(row),
                f"{shape['samples']} {name}",
                *("-" if value is None else f"{value:.3f}" for value in numbers),
                f"{shape['effective_rank']:.1f}",
                f"{shape['auc']:.3f}",
            )
        online = row["online"]
        if online["overlap"] is not None:
            table.add_row(str(row["position"]), _moment(row), "stored", "", f"{online['overlap']:.3f}")
    table.caption = (
        "exp.: experience. Overlap: share of pairs. align., unif.: alignment, uniformity. rank: effective rank. "
        "AUC: of the cumulative explained variance. stored: from the memory's statistics alone."
    )
    table.caption_justify = "left"
    return table


def _moment(row: dict[str, Any]) -> str:
    return f"{row['experience']}" if row["at_end"] or not row["position"] else f"in {row['experience']}"


def _per_cent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1f}"


def write_json(found: dict[str, Any], path: Path) -> None:
    """Write all numbers to a file, all or nothing; what was not measured is null."""
    write_out(path, json.dumps(plain(found), indent=1).encode())
