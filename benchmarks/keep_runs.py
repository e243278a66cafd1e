"""Keep what tables and charts need of finished runs, small enough for a repository: no weights and no images.

    python benchmarks/keep_runs.py reproduced/mini-cifar100/runs docs/results/mini-cifar100
    ocssl report docs/results/mini-cifar100 -o report.html

Of a run folder come: its settings without where images lay, its metrics and times, and its diary with one step in ten
and six digits. `ocssl reproduce` takes such folders for finished runs, where they are copied back.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ocssl.runs.config import read_settings, to_toml
from ocssl.runs.events import read_events
from ocssl.runs.folder import EVENTS, METRICS, SETTINGS, finished
from ocssl.runs.profiler import TIMING
from ocssl.settings import DataSettings

EVERY = 10


def short(value: Any) -> Any:
    """Numbers with six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [short(item) for item in value]
    return {key: short(item) for key, item in value.items()} if isinstance(value, dict) else value


def keep(run: Path, place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    settings = read_settings(run / SETTINGS)
    settings = settings.model_copy(update={"data": DataSettings(bad_images=settings.data.bad_images)})
    (place / SETTINGS).write_text(to_toml(settings))
    (place / METRICS).write_bytes((run / METRICS).read_bytes())
    (place / TIMING).write_bytes((run / TIMING).read_bytes())
    kept = [e for e in read_events(run / EVENTS) if e["event"] != "step" or e["position"] % EVERY == 0]
    (place / EVENTS).write_text("".join(json.dumps(short(event)) + "\n" for event in kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder of run folders; unfinished ones are passed over")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    for run in sorted(path.parent for path in options.runs.glob(f"*/{METRICS}")):
        if finished(run) is not None:
            keep(run, options.out / run.name)
            print(run.name)


if __name__ == "__main__":
    main()
