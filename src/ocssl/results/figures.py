"""All charts of a report, part by part; the same runs give the same figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ocssl.results.bars import compute_chart, forest_chart
from ocssl.results.chart import Chart
from ocssl.results.compare import Comparison
from ocssl.results.curves import Columns, Numbers, evaluation_chart, quantile_chart, step_chart
from ocssl.results.heatmap import born_map, class_map, loss_map, spectrum_chart, task_map
from ocssl.results.read import Run
from ocssl.results.records import Evaluation
from ocssl.results.summary import decays

ACTIVE = "overlap.active"  # has a chart of its own


def all_charts(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> dict[str, list[Chart]]:
    """The charts of each part of the page, without those for which no run has the numbers."""
    made: dict[str, list[Chart | None]] = {
        "comparison": [forest_chart(comparisons)],
        "accuracy": [_accuracy(runs)],
        "tasks": [task_map(runs)],
        "latent": _latent(runs),
        "spectrum": [spectrum_chart(runs)],
        "loss": _losses(runs),
        "health": _health(runs),
        "memory": [
            born_map(runs),
            quantile_chart(
                "age",
                "Age of stored images",
                "Stream images that have passed since arrival: the median as a line, the middle half as a band. A line "
                "that rises without end is a memory that no longer changes.",
                "age, stream images",
                runs,
                lambda held: held.age,
            ),
            class_map(runs),
            loss_map(runs),
        ],
        "compute": [compute_chart(runs)],
    }
    return {part: [chart for chart in charts if chart] for part, charts in made.items()}


def _accuracy(runs: Sequence[Run]) -> Chart | None:
    return evaluation_chart(
        "accuracy",
        "Accuracy over the stream",
        "Accuracy of a probe on the frozen encoder, means over seeds with a band of one standard deviation; the first "
        "point is the untrained encoder; vertical lines, if any, are ends of experiences after which it was measured.",
        "accuracy, %",
        runs,
        lambda e: e.accuracy,
        percent=1,
    )


def _latent(runs: Sequence[Run]) -> list[Chart | None]:
    phases = decays(runs)

    def overlap(key: str, title: str, words: str, measure: Callable[[Evaluation], float | None]) -> Chart | None:
        marked = phases if key == "overlap" else {}
        return evaluation_chart(key, title, words, "Overlap, % of pairs", runs, measure, percent=100, decays=marked)

    return [
        evaluation_chart(
            "deviation",
            "Deviation",
            "How far the views of one image lie apart, from 0 to 1: a fall means that the encoder "
            "packs each image ever tighter.",
            "Deviation",
            runs,
            lambda e: e.deviation,
            decays=phases,
        ),
        overlap(
            "overlap",
            "Overlap",
            "Share of pairs of images whose views mix: a rise means that images are told apart less and less.",
            lambda e: e.overlap,
        ),
        overlap(
            "online-overlap",
            "Overlap in the memory",
            "The same of stored images, from statistics that training left there: what a method can see by itself.",
            lambda e: e.online_overlap,
        ),
    ]


def _losses(runs: Sequence[Run]) -> list[Chart | None]:
    objectives = dict.fromkeys(run.objective for run in runs if run.has_loss)
    terms = dict.fromkeys(name.partition(".")[0] for run in runs for name in run.terms)
    return [
        *(
            step_chart(
                f"ssl-{i}",
                f"SSL loss: {objective}",
                "The objective's own loss, without terms; comparable between runs with the same objective.",
                "SSL loss",
                runs,
                _own_loss(objective),
            )
            for i, objective in enumerate(objectives, 1)
        ),
        *(
            step_chart(
                f"term-{i}",
                f"Loss of the term {term}",
                "Before its weight; comparable between runs with the same term."
                + " Thin lines with marks: its parts, or what else it shows." * _has_signals(runs, term),
                "loss of the term",
                runs,
                _of_term(term),
            )
            for i, term in enumerate(terms, 1)
        ),
    ]


def _own_loss(objective: str) -> Columns:
    return lambda run: {"": run.trace["ssl"]} if run.has_loss and run.objective == objective else {}


def _of_term(term: str) -> Columns:
    def columns(run: Run) -> dict[str, Numbers]:
        names = [name for name in run.terms if name.partition(".")[0] == term and name != ACTIVE]
        return {name.partition(".")[2]: run.terms[name] for name in names}

    return columns


def _has_signals(runs: Sequence[Run], term: str) -> bool:
    return any(name.startswith(f"{term}.") and name != ACTIVE for run in runs for name in run.terms)


def _health(runs: Sequence[Run]) -> list[Chart | None]:
    return [
        step_chart(
            "spread",
            "Spread",
            "Near 0, all images get the same features.",
            "spread of features",
            runs,
            lambda run: {"": run.trace["spread"]},
        ),
        step_chart(
            "rank",
            "Effective rank",
            "Near 1, features vary along one line only.",
            "directions used",
            runs,
            lambda run: {"": run.trace["rank"]},
        ),
        step_chart(
            "active",
            "Active overlap pairs",
            "Share of pairs on which the Overlap term acts; 0 means that it does nothing.",
            "active pairs, %",
            runs,
            lambda run: {"": run.terms.get(ACTIVE, [])},
            percent=100,
        ),
    ]
