"""The numbers of a run that has come to its end, as `metrics.json` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ocssl.evaluate.per_task import summarise
from ocssl.learner import Learner
from ocssl.runs.config import RunSettings

if TYPE_CHECKING:
    from ocssl.runs.run import Position


def summary(
    settings: RunSettings, position: Position, learner: Learner, faults: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    """Final and average accuracy with all that they were made of."""
    after = [e for e in position.evaluations if e["experience"] > 0]
    start = [e for e in position.evaluations if e["experience"] == 0]
    accuracies = [e["accuracy"] for e in after]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return {
        "method": settings.method,
        "benchmark": settings.benchmark,
        "seed": settings.seed,
        "probe": settings.evaluate.probe,
        "probe_compat": settings.evaluate.compat,
        "start_accuracy": start[0]["accuracy"] if start else None,
        "final_accuracy": known[-1] if known else None,
        "average_accuracy": sum(known) / len(known) if known else None,
        "accuracies": accuracies,
        "positions": [e["position"] for e in after],
        "deviations": [e["deviation"] for e in after],
        "overlaps": [e["overlap"] for e in after],
        "online_overlaps": [e["online_overlap"] for e in after],
        "tasks": _tasks(after, start, at_ends=not settings.evaluate.every),
        "collapsed": position.warned,
        "bad_images": {"count": len(faults), "images": [{"name": n, "reason": r} for n, r in faults.items()]},
        "steps": learner.steps,
        "seen": learner.seen,
        "seconds": round(seconds, 3),
    }


def _tasks(after: list[dict[str, Any]], start: list[dict[str, Any]], at_ends: bool) -> dict[str, Any] | None:
    """What the tasks' own probes say, where there are some: the whole matrix and what is read from it."""
    if not after or any(e.get("tasks") is None for e in after):
        return None
    matrix = np.array([e["tasks"] for e in after], dtype=np.float64)
    seen = [e["task"] for e in after]
    baseline = start[0]["tasks"] if start else None
    found = asdict(summarise(matrix, seen, baseline)) if at_ends and None not in seen else {}
    return {"matrix": matrix.tolist(), "tasks_seen": seen, "baseline": baseline, **found}
