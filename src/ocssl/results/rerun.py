"""How to make a run again: the shortest command line that gives its settings."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable
from typing import Any

from ocssl._distributed.ranks import command
from ocssl.errors import OcsslError
from ocssl.results.read import Run
from ocssl.runs.config import RunSettings, parse_assignments, resolve_run
from ocssl.runs.folder import SETTINGS
from ocssl.settings import flatten, validate


def again(run: Run) -> tuple[str, str]:
    """What to say on making a run again, and the command line that does it, if there is one."""
    try:
        wanted = validate(RunSettings, tomllib.loads(run.text))
    except (OcsslError, ValueError, RecursionError) as error:
        return f"This ocssl cannot make the run again: its {SETTINGS} is not right: {error}", ""
    start = command(wanted.compute.ranks).split()
    words = None if run.method.endswith(".toml") else _assignments(wanted)
    if words is not None:
        sets = [part for word in words for part in ("--set", word)]
        own = [*start, "run", wanted.method, wanted.benchmark, "--seed", str(wanted.seed), *sets]
        return "Make this run again:", shlex.join(own)
    folder = run.folder.resolve().name
    copy = shlex.quote(f"{folder}-again")
    return (
        f"Its recipe or its parts are not those of this ocssl, but {SETTINGS} says everything. Make this run again "
        "from the folder that its folder lies in; parts of your own take --parts FILE.py:",
        f"mkdir {copy} && cp {shlex.quote(f'{folder}/{SETTINGS}')} {copy} && {' '.join(start)} resume {copy}",
    )


def _assignments(wanted: RunSettings) -> list[str] | None:
    """The fewest `key=value` words that make a recipe into these settings; None if none do."""

    def gives(words: Iterable[str]) -> dict[str, Any]:
        given = {"compute.ranks": wanted.compute.ranks, **parse_assignments(words)}  # torchrun says how many
        return _flat(resolve_run(wanted.method, wanted.benchmark, wanted.seed, given))

    def enough(words: Iterable[str]) -> bool:
        try:
            return gives(words) == target
        except OcsslError:
            return False

    target = _flat(wanted)
    try:
        usual = gives([])
    except OcsslError:
        return None
    differ = {key: value for key, value in target.items() if key not in usual or usual[key] != value}
    words = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in differ.items()]
    if not enough(words):
        return None
    for word in list(words):
        fewer = [other for other in words if other != word]
        words = fewer if enough(fewer) else words
    return words


def _flat(settings: RunSettings) -> dict[str, Any]:
    return {key: value for key, value in flatten(settings.model_dump(mode="json")) if value is not None}
