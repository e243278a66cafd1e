"""The command that makes a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

from ocssl._distributed.ranks import command
from ocssl._files.toml import parse_toml
from ocssl.errors import OcsslError
from ocssl.results.read_runs import Run
from ocssl.runs.config import RunSettings, parse_assignments, resolve_run
from ocssl.runs.folder import SETTINGS
from ocssl.settings import flatten, validate


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
        again = [*start, "run", wanted.method, wanted.benchmark, "--seed", str(wanted.seed), *sets]
        return "Make this run again:", shlex.join(again)
    folder = run.folder.resolve().name
    copy = shlex.quote(f"{folder}-again")
    return (
        f"Its recipe or its parts are not those of this ocssl, but {SETTINGS} says everything. Make this run again "
        "in the parent folder of the run folder; if it uses custom parts, add --parts FILE.py:",
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
