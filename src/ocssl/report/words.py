"""What a report says in words: which method did best, what went wrong, and how to make a run again."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from ocssl.errors import OcsslError
from ocssl.report.runs import ONLINE, Run, flatten
from ocssl.runs.config import RunSettings, parse_assignments, resolve_run
from ocssl.runs.folder import SETTINGS
from ocssl.settings import validate


def summary(runs: Sequence[Run]) -> str:
    """One paragraph: how many runs, the best method, by how much, and what the reader should know."""
    words = [f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}."]
    words += _rankings(runs)
    below = [run.label for run in runs if run.finished and _below_start(run)]
    if below:
        words.append(f"Ending below the untrained encoder: {', '.join(below)}.")
    unfinished = [run.label for run in runs if not run.finished]
    if unfinished:
        words.append(f"Unfinished, so not compared: {', '.join(unfinished)}.")
    fallen = [run.label for run in runs if run.collapsed]
    words.append(f"Collapsed: {', '.join(fallen)}." if fallen else "Nothing collapsed.")
    return " ".join(words)


def _rankings(runs: Sequence[Run]) -> list[str]:
    """A sentence on each group of finished runs that can be compared: one benchmark, regime, stream and probe."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.regime != ONLINE):
        if run.finished and run.average is not None:
            probe = run.settings.get("evaluate.probe")
            groups.setdefault(f"{run.benchmark} {run.regime} {probe} {sorted(_stream(run).items())}", []).append(run)
    words = [_ranking(group, list(groups.values())) for group in groups.values()]
    if len(groups) > 1:
        words.append("These groups are not compared with one another.")
    if any(len(by_series(group)) > 1 and len(group) == len(by_series(group)) for group in groups.values()):
        words.append("With one seed a method, small differences may be chance.")
    return words


def _stream(run: Run) -> dict[str, Any]:
    """Settings of the stream; the regime speaks for the epochs."""
    return {key: value for key, value in run.settings.items() if key.startswith("stream.") and key != "stream.epochs"}


def _ranking(runs: list[Run], groups: Sequence[list[Run]]) -> str:
    several = by_series(runs)
    means = {series: fmean(run.average or 0.0 for run in group) for series, group in several.items()}
    best, *others = sorted(means, key=lambda series: -means[series])
    where = f"On {runs[0].benchmark} ({_circumstances(runs[0], [group[0] for group in groups])}) {best} has"
    if not others:
        return f"{where} an average accuracy of {means[best]:.1f} %."
    gap = means[best] - means[others[0]]
    margin = f"{gap:.1f} points above" if gap >= 0.05 else "less than 0.1 points above"
    return f"{where} the best average accuracy: {means[best]:.1f} %, {margin} {others[0]}."


def _circumstances(run: Run, groups: Sequence[Run]) -> str:
    """The probe, and in what a group differs from the others on its benchmark; each is given by one of its runs."""
    others = [other for other in groups if other.benchmark == run.benchmark]
    words = [f"{run.settings.get('evaluate.probe', 'unknown')} probe"]
    if {other.regime for other in others} != {ONLINE}:
        words.append(run.regime)
    keys = sorted({key for other in others for key in _stream(other)})
    differ = [key for key in keys if any(_stream(other).get(key) != _stream(run).get(key) for other in others)]
    return "; ".join(words + [f"{key}={json.dumps(run.settings.get(key), default=str)}" for key in differ])


def _below_start(run: Run) -> bool:
    return run.start is not None and run.final is not None and run.final < run.start


def by_series(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but the seed, together; of two with one seed, the later."""
    groups: dict[str, dict[int | None, Run]] = {}
    for run in runs:
        groups.setdefault(run.series, {})[run.seed] = run
    return {series: list(group.values()) for series, group in groups.items()}


def health(run: Run) -> str:
    """ok, or what is wrong, with how far an unfinished run has come."""
    done, total = run.minibatches
    far = f" ({done:.0f} of {total:.0f} minibatches)" if done is not None and total is not None else ""
    words = ["collapsed"] * run.collapsed + [f"unfinished{far}"] * (not run.finished)
    return ", ".join(words) or "ok"


def again(run: Run) -> tuple[str, str]:
    """What to say on making a run again, and the command line that does it, if there is one."""
    try:
        wanted = validate(RunSettings, tomllib.loads(run.text))
    except (OcsslError, ValueError, RecursionError) as error:
        return f"This ocssl cannot make the run again: its {SETTINGS} is not right: {error}", ""
    words = None if run.method.endswith(".toml") else _assignments(wanted)
    if words is not None:
        sets = [part for word in words for part in ("--set", word)]
        own = ["ocssl", "run", wanted.method, wanted.benchmark, "--seed", str(wanted.seed), *sets]
        return "Make this run again:", shlex.join(own)
    folder = run.folder.resolve().name
    copy = shlex.quote(f"{folder}-again")
    return (
        f"Its recipe or its parts are not those of this ocssl, but {SETTINGS} says everything. Make this run again "
        "from the folder that its folder lies in; parts of your own take --parts FILE.py:",
        f"mkdir {copy} && cp {shlex.quote(f'{folder}/{SETTINGS}')} {copy} && ocssl resume {copy}",
    )


def _assignments(wanted: RunSettings) -> list[str] | None:
    """The fewest `key=value` words that make a recipe into these settings; None if none do."""

    def gives(words: Iterable[str]) -> dict[str, Any]:
        return _flat(resolve_run(wanted.method, wanted.benchmark, wanted.seed, parse_assignments(words)))

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
