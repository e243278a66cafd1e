"""Runs that never ran: folders with invented numbers, so that all tables and figures can be drawn at once."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ocssl.evaluate.per_task import summarise
from ocssl.results.paper.plan import Planned
from ocssl.runs.config import to_toml
from ocssl.runs.folder import EVENTS, METRICS, SETTINGS
from ocssl.runs.profiler import TIMING

TASKS, MINIBATCHES = 4, 8


def invent(folder: Path, run: Planned) -> dict[str, Any]:
    """A finished run with numbers that depend on what it is and nothing else."""
    random = np.random.default_rng(zlib.crc32(run.folder.encode()))
    matrix = random.uniform(10, 60, (TASKS, TASKS))
    accuracies = random.uniform(10, 60, TASKS).tolist()
    positions = [MINIBATCHES // TASKS * (task + 1) for task in range(TASKS)]
    metrics = {
        "method": run.settings.method,
        "benchmark": run.settings.benchmark,
        "seed": run.settings.seed,
        "start_accuracy": 10.0 + run.settings.seed,
        "final_accuracy": accuracies[-1],
        "average_accuracy": float(np.mean(accuracies)),
        "steps": 6 * MINIBATCHES,
        "seconds": 60.0,
        "accuracies": accuracies,
        "positions": positions,
        "deviations": random.uniform(0, 1, TASKS).tolist(),
        "overlaps": random.uniform(0, 1, TASKS).tolist(),
        "tasks": {"matrix": matrix.tolist(), **vars(summarise(matrix, list(range(TASKS))))},
    }
    folder.mkdir(parents=True)
    (folder / SETTINGS).write_text(to_toml(run.settings))
    (folder / METRICS).write_text(json.dumps(metrics))
    steps = [{"event": "step", "position": i + 1, "ssl": float(random.uniform(-1, 0))} for i in range(MINIBATCHES)]
    (folder / EVENTS).write_text("".join(json.dumps(step) + "\n" for step in steps))
    (folder / TIMING).write_text(json.dumps({"forward": 2.0 + run.settings.seed, "backward": 1.0, "probe": 50.0}))
    return metrics


def look(run: Planned) -> list[dict[str, Any]]:
    """What a look back at such a run would find."""
    random = np.random.default_rng(zlib.crc32(run.folder.encode()) + 1)

    def shape() -> dict[str, Any]:
        values = np.sort(random.uniform(0, 5, 6))[::-1]
        return {
            "uniformity": -float(random.uniform(0, 3)),
            "singular_values": values.tolist(),
            "normalised": (values / values[0]).tolist(),
            "cev": (values.cumsum() / values.sum()).tolist(),
        }

    def seen() -> dict[str, Any]:
        return {"deviation": float(random.uniform()), "overlap": float(random.uniform()), "shape": shape()}

    rows = []
    for task in range(TASKS + 1):
        times = {"past": shape() if task > 1 else None, "current": shape() if task else None}
        rows.append(
            {
                "position": MINIBATCHES // TASKS * task,
                "experience": task,
                "stream": seen(),
                "memory": seen() if task else None,
                "test": seen(),
                "online": {"overlap": float(random.uniform()) if task else None},
                "times": {**times, "future": shape() if task < TASKS else None},
            }
        )
    return rows
