"""What a report says in words: which method did best, what went wrong, and how to make a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from ocssl.errors import OcsslError
from ocssl.report.runs import Run, flatten
from ocssl.runs.config import resolve_run


def summary(runs: Sequence[Run]) -> str:
    """One paragraph: how many runs, the best method, by how much, and what the reader should know."""
    words = [f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}."]
    for fair in _comparable(runs):
        words += _ranking(fair)
    below = [run.label for run in runs if run.finished and _below_start(run)]
    if below:
        words.append(f"Ending below the untrained encoder: {', '.join(below)}.")
    unfinished = [run.label for run in runs if not run.finished]
    if unfinished:
        words.append(f"Unfinished, so not compared: {', '.join(unfinished)}.")
    fallen = [run.label for run in runs if run.collapsed]
    words.append(f"Collapsed: {', '.join(fallen)}." if fallen else "Nothing collapsed.")
    return " ".join(words)


def _comparable(runs: Sequence[Run]) -> Iterable[list[Run]]:
    """Finished runs whose accuracies mean the same: one benchmark, one stream, one probe."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.finished and run.average is not None:
            stream = {
                key: value for key, value in run.settings.items() if key.startswith(("stream.", "evaluate.probe"))
            }
            groups.setdefault(f"{run.benchmark} {sorted(stream.items())}", []).append(run)
    return groups.values()


def _ranking(runs: list[Run]) -> list[str]:
    where = f"On {runs[0].benchmark} ({runs[0].settings.get('evaluate.probe', 'unknown')} probe)"
    several = by_series(runs)
    means = {series: fmean(run.average or 0.0 for run in group) for series, group in several.items()}
    best, *others = sorted(means, key=lambda series: -means[series])
    if not others:
        return [f"{where} {best} has an average accuracy of {means[best]:.1f} %."]
    gap = means[best] - means[others[0]]
    margin = f"{gap:.1f} points above" if gap >= 0.05 else "less than 0.1 points above"
    lead = f"{where} {best} has the best average accuracy: {means[best]:.1f} %, {margin} {others[0]}."
    if max(map(len, several.values())) == 1:
        return [lead, "With one seed a method, small differences may be chance."]
    return [lead]


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


def command(run: Run) -> str:
    """The command line that makes a run again, with every setting that is not the method's and benchmark's own."""
    words = ["ocssl", "run", run.method, run.benchmark, "--seed", str(run.seed or 0)]
    for key, value in _own_settings(run).items():
        words += ["--set", f"{key}={json.dumps(value, default=str)}"]
    return shlex.join(words)


def _own_settings(run: Run) -> dict[str, Any]:
    if run.method.endswith(".toml"):  # a recipe of the user's, which may have changed since
        return {}
    try:
        usual = dict(flatten(resolve_run(run.method, run.benchmark, run.seed or 0, {}).model_dump(mode="json")))
    except OcsslError:
        return {}
    return {key: value for key, value in run.settings.items() if key not in usual or usual[key] != value}
