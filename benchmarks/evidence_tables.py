"""The tables of docs/results.md that compare full runs, from the runs that are kept.

    python benchmarks/evidence_tables.py

It fills every place between `<!-- evidence FOLDER seeds 0 1 2 -->` and `<!-- end -->`, FOLDER below docs/results: the
rows of `ocssl reproduce evidence` with means over these seeds, and the differences between `solar-c` and each of them,
paired over the seeds that both have. Between `<!-- label-free PATTERNS -->` and `<!-- end -->` come the rank
correlations of `ocssl compare --label-free` over the runs in all folders that these patterns match below docs/results.
A test compares the page with the runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from front_page import ROOT, rows, shown

from ocssl._core.measures import MEASURES as MEASURES_OF_RUNS
from ocssl._core.table import MISSING, Row, Table, mean_and_deviation, mean_cell, number_cell
from ocssl._files.atomic import write_out
from ocssl.results.compare import CONFIDENCE, t_quantile
from ocssl.results.paper.field import Gap, gap, holm
from ocssl.results.rank_correlation import LEAST_UNITS, Correlation, label_free
from ocssl.results.read_runs import Run
from ocssl.results.run_groups import find_runs

PAGE, RESULTS = ROOT / "docs" / "results.md", ROOT / "docs" / "results"
PLACE = re.compile(r"(<!-- evidence (\S+) seeds ([\d ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
LABEL_FREE = re.compile(r"(<!-- label-free ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)
OURS = "SOLAR-C"
MEASURES = {"final": "Final", "average": "Average"}
EARLY, LATE = 5, 90.0  # experiences; share of the stream, in per cent, from which the end is measured


def accuracy_after(run: Run, experience: int) -> float | None:
    return next((e["accuracy"] for e in run.evaluations if e.experience == experience), None)


def rank_at_the_end(run: Run) -> float | None:
    """The participation ratio, averaged over the kept steps of the last tenth of the stream."""
    pairs = zip(run.trace["share"], run.trace["participation_ratio"], strict=True)
    values = [y for x, y in pairs if x is not None and y is not None and x >= LATE]
    return fmean(values) if values else None


def overlap_at_the_end(run: Run) -> float | None:
    found = run.evaluations[-1]["overlap"] if run.evaluations else None
    return None if found is None else 100 * found


def age_of_slots(run: Run) -> float | None:
    """How many images ago the image of the median slot arrived, at the end."""
    return run.memories[-1].age[2] if run.memories and run.memories[-1].age else None


def classes_in_slots(run: Run) -> float | None:
    return float(sum(n > 0 for n in run.memories[-1].classes)) if run.memories else None


def results(found: Mapping[str, Sequence[Run]]) -> Table:
    """A row a method: means and standard deviations over its seeds, the best Average first."""
    columns = [
        lambda run: accuracy_after(run, EARLY),
        lambda run: run.final,
        lambda run: run.average,
        rank_at_the_end,
        overlap_at_the_end,
    ]
    whole = [age_of_slots, classes_in_slots]  # without a deviation
    made = []
    for name, own in found.items():
        cells = [mean_cell(map(column, own)) for column in columns]
        cells += [number_cell(mean_and_deviation(map(column, own))[0], form=".0f") for column in whole]
        made.append(Row([shown(name), f"{len(own)}", *cells]))
    heads = ["", "seeds", f"after {EARLY} experiences", "Final", "Average", "participation ratio", "Overlap, %"]
    return Table([*heads, "age of slots", "classes in slots"], made)


def gaps(found: Mapping[str, Sequence[Run]]) -> list[Gap]:
    """Ours less every other row in both measures, named `row: measure`; corrected for all of them."""
    ours = {run.seed: run for run in found.get(OURS, ())}
    made = []
    for name, own in found.items():
        for key in MEASURES:
            pairs = [(getattr(ours[run.seed], key), getattr(run, key)) for run in own if run.seed in ours]
            differences = [a - b for a, b in pairs if a is not None and b is not None]
            if name != OURS and differences:
                made.append(gap(f"{name}: {key}", differences))
    return holm(made)


def words(one: Gap | None) -> list[str]:
    """A difference with its interval before correction, its p-value, and whether it is clear after it."""
    if one is None:
        return [MISSING] * 3
    if one.p is None:
        return [f"{one.mean:+.1f} ({one.pairs})", MISSING, MISSING]
    half = one.error * t_quantile(one.pairs - 1, CONFIDENCE)
    return [
        f"{one.mean:+.1f} [{one.mean - half:.1f}, {one.mean + half:.1f}]",
        f"{one.p:.3f}",
        "yes" if one.clear else "no",
    ]


def differences(found: Mapping[str, Sequence[Run]]) -> Table:
    """A row a method that ours is compared with."""
    tested = {one.name: one for one in gaps(found)}
    names = [name for name in found if name != OURS]
    made = [Row([name, *(cell for key in MEASURES for cell in words(tested.get(f"{name}: {key}")))]) for name in names]
    tests = sum(one.p is not None for one in tested.values())
    note = "Points, paired over seeds, with 95 % intervals by Student's t; a lone number in parentheses: too few pairs."
    if tests:
        note += f" Intervals and p are not corrected; clear: after Holm's correction for these {tests} comparisons."
    return Table([f"{shown(OURS)} against", "Final", "p", "clear", "Average", "p", "clear"], made, caption=note)


def rank_correlations(patterns: Sequence[str]) -> Table:
    """How well measures without labels rank as the probe does: within runs, and between methods where there are enough.

    The measure that does best between methods comes first.
    """
    found = label_free(find_runs(path for pattern in patterns for path in sorted(RESULTS.glob(pattern))))
    groups = [group for group in found["between"] if group["methods"] >= LEAST_UNITS]
    parts = [found["within"], found["changes"], *(group["measures"] for group in groups)]
    columns = [{facts["measure"]: Correlation(**facts) for facts in part} for part in parts]
    between = columns[2:]

    def order(key: str) -> float:
        return -fmean(abs(column[key].rho) * agrees(key, column[key].rho) if key in column else 0 for column in between)

    rows = [
        Row([name_of(key), *(f"{c[key].words} ({c[key].units})" if key in c else MISSING for c in columns)])
        for key in sorted(columns[0], key=order)
    ]
    heads = ["within a run (runs)", "changes within a run (runs)"]
    numbers = [f", group {number}" for number in range(1, len(groups) + 1)] if len(groups) > 1 else [""]
    heads += [f"between methods{number} (methods)" for number in numbers[: len(groups)]]
    return Table(["measure", *heads], rows)


def agrees(key: str, rho: float) -> int:
    """1 where a correlation has the sign that the measure should have, else -1; those without a direction have 1."""
    better = MEASURES_OF_RUNS[key].better if key in MEASURES_OF_RUNS else ""
    return -1 if rho * {"up": 1, "down": -1}.get(better, 0) < 0 else 1


def name_of(key: str) -> str:
    """A measure's name, and that less of it is better."""
    if key not in MEASURES_OF_RUNS:
        return key.replace("_", " ")
    measure = MEASURES_OF_RUNS[key]
    return measure.label + " (less is better)" * (measure.better == "down")


def filled(page: str) -> str:
    """The page with the tables of today's runs in their places."""

    def tables(place: re.Match[str]) -> str:
        start, folder, seeds, end = place.groups()
        wanted = {int(seed) for seed in seeds.split()}
        runs = [run for run in find_runs([RESULTS / folder]) if run.seed in wanted]
        found = rows(runs)
        return "\n\n".join([start.strip(), *(t.markdown().strip() for t in (results(found), differences(found))), end])

    def correlations(place: re.Match[str]) -> str:
        start, patterns, end = place.groups()
        return "\n\n".join([start.strip(), rank_correlations(patterns.split()).markdown().strip(), end])

    return LABEL_FREE.sub(correlations, PLACE.sub(tables, page))


def main() -> None:
    write_out(PAGE, filled(PAGE.read_text()).encode())
    print(PAGE)


if __name__ == "__main__":
    main()
