"""Write docs/field.md from finished runs of `ocssl reproduce field`; what is not there is said to be missing.

    python benchmarks/keep_runs.py reproduced/mini-cifar100/runs docs/results/field/cifar100/runs
    python benchmarks/field_page.py docs/results/field -o docs/field.md

The folder has one folder for each benchmark (cifar100, mini-imagenet, pacs), each with `runs` in it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocssl._files.atomic import write_out
from ocssl.results.paper import Planned, read_plan, read_scale, runs_of
from ocssl.results.paper.field import tables
from ocssl.results.paper.run_store import Group, RunStore

INTRODUCTION = """# Fourteen methods at equal compute

All recipes that train online, on three benchmarks of real images, three streams and two objectives. This page is
written by a command from the runs kept in `docs/results/field`:

```sh
ocssl reproduce field --benchmark cifar100 --data DIR --dry-run     # what it costs, in hours
ocssl reproduce field --benchmark cifar100 --data DIR --seed 0      # likewise mini-imagenet, pacs; continues if stopped
python benchmarks/keep_runs.py reproduced/mini-cifar100/runs docs/results/field/cifar100/runs
python benchmarks/field_page.py docs/results/field -o docs/field.md
```

**Streams.** *Regular*: the benchmark's own order. *Blurry 0.3*: 30 % of every experience is dealt out over all.
*Irregular*: experiences of unequal length and class count ([order of the stream](benchmarks.md#order-of-the-stream)).

**Equal compute.** Every method does the work of FIFO with 6 passes on each stream minibatch. The work is the number of
rows that pass through the encoder and copies of it, forwards and backwards (which counts twice), as `ocssl.cost` counts
them. A method takes the most passes that stay within this work plus 2 %. So the teachers of CLA-E and CLIMB and the
snapshot of SCALE are paid for with passes, and LUMP, whose steps have 10 rows, takes many more steps. Heads and the
memory's own work are not counted.

**The same for all.** Half of the mini protocol in three ways, so that this number of runs is affordable: a network of
width 8 instead of 16, 200 memory slots instead of 400, and half of its images (5,000; PACS 4,000). Learning rate,
optimizer, views and probe are those of the mini protocol, which was chosen on FIFO and Reservoir alone
([results](results.md#the-mini-protocol)). No method was tuned here. SCALE and Osiris-R have a loss of their own, so
their runs are the same under both objectives.

**Differences** are against FIFO, chosen before any run, on runs with the same seed. Intervals are by Student's t with
Holm's correction for the number of comparisons in the table.
"""


def one_line_each(text: str) -> str:
    """Paragraphs as one line each; code keeps its lines."""
    parts = text.split("\n\n")
    return (
        "\n\n".join(part if part.startswith("```") else part.rstrip("\n").replace("\n", " ") for part in parts) + "\n"
    )


def gathered(folder: Path, benchmark: str) -> tuple[list[Planned], list[Group]]:
    """The runs that are planned on a benchmark, and those of them that are finished in a folder."""
    runs = runs_of(read_plan("field"), read_scale("mini", benchmark))
    return runs, RunStore(folder / benchmark, {}).gather(runs)


def page(folder: Path) -> str:
    plan = read_plan("field")
    found = [gathered(folder, benchmark) for benchmark in plan.benchmarks]
    planned = [run for runs, _ in found for run in runs]
    groups = [group for _, more in found for group in more]
    done = len({result.planned.address for group in groups for result in group.results})
    wanted = len({run.address for run in planned})
    state = f"**{done} of {wanted} planned runs are finished.** "
    state += "The last table says which." if done else "There are no results yet: only the plan and its cost are below."
    return "\n".join(
        [one_line_each(INTRODUCTION), state + "\n", *(t.markdown() for t in tables(plan, planned, groups, "FIFO"))]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder with a folder of kept runs for each benchmark")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/field.md"))
    options = parser.parse_args()
    write_out(options.output, page(options.runs).encode())
    print(options.output)


if __name__ == "__main__":
    main()
