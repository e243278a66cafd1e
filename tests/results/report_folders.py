"""Run folders with everything that a run records, written by hand: nothing is trained."""

from __future__ import annotations

import json
import math
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from conftest import random_images, small_learner
from ocssl._core import checkpoint
from ocssl.runs.config import resolve_run, to_toml
from ocssl.runs.snapshots import write_snapshot

METHODS = ("solar", "er-fifo", "er-reservoir", "minred")
LEVEL = {"solar-c": 42.0, "solar": 40.0, "er-fifo": 35.0, "er-reservoir": 36.0, "minred": 30.0}
DECAYING = "er-reservoir"


def make_sweep(folder: Path, methods: tuple[str, ...] = METHODS, seeds: int = 3, **size: int) -> Path:
    """Runs of some methods with some seeds each; `er-reservoir` decays in the second half."""
    for method in methods:
        for seed in range(seeds):
            make_full_run(folder / f"{method}-{seed}", method, seed, **size)
    return folder


def make_full_run(
    folder: Path, method: str = "solar", seed: int = 0, experiences: int = 10, each: int = 20, classes: int = 20
) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text(to_toml(resolve_run(method, "synthetic", seed, {})))
    chance = random.Random(f"{method} {seed}")
    total = experiences * each
    events: list[dict[str, Any]] = [{"event": "start", "minibatches": total, "experiences": experiences}]
    events += evaluated(method, 0, 0, experiences, classes, total, chance)
    for position in range(1, total + 1):
        step = {"event": "step", "position": position, "steps": 3 * position, "seen": 10 * position}
        step |= {
            "ssl": -position / total + chance.gauss(0, 0.05),
            "spread": 0.8,
            "participation_ratio": 5 + chance.random(),
        }
        events.append(step | ({"terms": {"overlap": 0.1, "overlap.active": 0.25}} if method == "solar" else {}))
        if position % each == 0:
            events += evaluated(method, position // each, position, experiences, classes, total, chance)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    known = [event["accuracy"] for event in events if event["event"] == "evaluation" and event["experience"]]
    metrics = {"method": method, "benchmark": "synthetic", "seed": seed, "start_accuracy": 10.0, "steps": 3 * total}
    metrics |= {"final_accuracy": known[-1], "average_accuracy": sum(known) / len(known), "seconds": 100.0}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    phases = ("draw", "views", "forward", "terms", "backward", "optimizer", "refresh", "insert", "rest")
    spent = {name: float(i + seed) for i, name in enumerate((*phases, "data", "probe", "save"))}
    (folder / "timing.json").write_text(json.dumps(spent))
    numbers = torch.arange(200)
    columns = {"image": random_images(200, 32, seed), "loss": numbers.float(), "id": numbers.clone(), "born": numbers}
    tensors = {f"memory.column.{name}": column for name, column in (columns | {"draws": numbers.clone()}).items()}
    checkpoint.write(folder / "checkpoints" / f"{total:08d}", {**tensors, "memory.seen": torch.tensor(10 * total)}, {})
    _snapshots(folder, each)
    return folder


def evaluated(
    method: str, experience: int, position: int, experiences: int, classes: int, total: int, chance: random.Random
) -> list[dict[str, Any]]:
    """The events of an evaluation."""
    share = experience / experiences
    ill = max(0.0, share - 0.5) if method == DECAYING else 0.0
    accuracy = 10 + LEVEL[method] * (1 - math.exp(-5 * share)) - 40 * ill + chance.gauss(0, 0.2)
    facts = {"event": "evaluation", "experience": experience, "position": position, "seen": 10 * position}
    facts |= {"accuracy": accuracy, "deviation": 0.5 - 0.6 * ill, "overlap": 0.3 - 0.1 * share + 0.6 * ill}
    facts |= {"online_overlap": 0.2, "tasks": [accuracy + chance.random() for _ in range(experiences)], "seconds": 1.0}
    spectrum = [math.exp(-i * (0.02 + 0.05 * ill)) for i in range(128)]
    found = [facts, {"event": "spectrum", "position": position, "values": spectrum}]
    if not position:
        return [*found, {"event": "memory", "position": 0, "seen": 0, "stored": 0}]
    filled = [i < 20 * share for i in range(20)]
    held = {"event": "memory", "position": position, "seen": 10 * position, "stored": 200}
    held |= {"age": [1.0, 10.0, 20.0 * (1 + share), 50.0, 10.0 * position], "born": [10 * f for f in filled]}
    held |= {"loss": [-0.9, -0.7, -0.5, -0.2, 0.1], "losses": {"low": -0.9, "high": 0.1, "counts": list(range(20))}}
    return [*found, held | {"classes": [chance.randrange(10) for _ in range(classes)]}]


def _snapshots(folder: Path, each: int) -> None:
    """Looks at a learner whose memory changes, at the first four evaluations."""
    for i, files in enumerate(_looks()):
        place = folder / "snapshots" / f"{each * i:08d}"
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)


@cache
def _looks() -> list[dict[str, bytes]]:
    """The files of the snapshots; made once, as they take longest."""
    learner = small_learner("er-fifo")
    with tempfile.TemporaryDirectory() as place:
        for i in range(4):
            learner.partial_fit(random_images(10, seed=i), ids=torch.arange(10 * i, 10 * i + 10))
            write_snapshot(Path(place), learner, i)
        looks = sorted((Path(place) / "snapshots").iterdir())
        return [{path.name: path.read_bytes() for path in look.iterdir()} for look in looks]
