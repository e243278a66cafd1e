"""What a memory holds at the end of runs: when its images arrived, how often they were replayed, and their stored loss.

    python benchmarks/memory_contents.py reproduced/mini-cifar100/runs

It reads the last checkpoint of finished runs, so it needs run folders and not kept ones. The shares are of slots, by
the fifth of the stream in which their image arrived: an even memory has 20 % in each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

import ocssl
from ocssl._core.table import Row, Table
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import by_series, find_runs

PARTS = 5


def shares(born: np.ndarray, seen: int, parts: int = PARTS) -> list[float]:
    """The share of slots whose image arrived in each part of the stream, the first part first.

    >>> shares(np.array([0, 1, 9, 9]), 10)
    [0.5, 0.0, 0.0, 0.0, 0.5]
    """
    part = np.minimum(born.astype(np.int64) * parts // seen, parts - 1)
    return (np.bincount(part, minlength=parts) / max(1, len(part))).tolist()


def contents(run: Run) -> tuple[list[float], float, float]:
    """Shares by arrival, the median number of draws, and the mean stored loss."""
    learner = ocssl.Learner.load(run.folder)
    table = learner.memory.table()
    return shares(table["born"], learner.seen), float(np.median(table["draws"])), float(table["loss"].mean())


def table_of(runs: Sequence[Run]) -> Table:
    rows = []
    for name, own in by_series([run for run in runs if run.finished]).items():
        found = [contents(run) for run in own]
        parts = [f"{100 * fmean(part):.0f} %" for part in zip(*(parts for parts, _, _ in found), strict=True)]
        draws, loss = (fmean(values) for values in zip(*(more for _, *more in found), strict=True))
        rows.append(Row([name, f"{len(own)}", *parts, f"{draws:.0f}", f"{loss:.2f}"]))
    heads = ["method", "seeds", *(f"{i + 1}." for i in range(PARTS)), "draws, median", "stored loss"]
    note = "Shares of slots by the fifth of the stream in which their image arrived; means over seeds."
    return Table(heads, rows, text=(0,), title="What the memory holds", caption=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of run folders")
    print(table_of(find_runs(parser.parse_args().folders)).markdown())


if __name__ == "__main__":
    main()
